import { setTimeout as delay } from 'node:timers/promises';
import { and, eq, isNull, lte, or, sql } from 'drizzle-orm';
import { SwitchboardError } from '../../../errors.ts';
import { newId } from '../../../platform/ids.ts';
import type { Connections } from './connections.ts';
import { keepWithConnection, type ConnectionRow, type TokenPair } from './stored-tokens.ts';
import type { IdentityContext } from '../context.ts';
import { ProviderError, type Grant, type TokenIssuer } from './provider.ts';
import { connections } from '../schema.ts';

/**
 * Longer than what happens under the lease may take, so that a live holder never loses it: the token request and, for an id_token, a
 * look at the provider's keys, of 5 s each.
 */
const LEASE_SEC = 15;
/** A failing provider is not called again for this long. */
const COOLDOWN_SEC = 30;
/** How long a caller waits for another replica's refresh. */
const WAIT_MS = 5_500;
const LOOK_AGAIN_MS = 50;

/** Finds what issued a connection's tokens, and has read its metadata. */
export type IssuerOf = (tokens: TokenPair) => Promise<TokenIssuer>;

export type VersionedTokens = TokenPair & Pick<ConnectionRow, 'version' | 'signIn'>;

/** A connection has no usable tokens, and a refresh cannot get any: the user must sign in again. */
export class NeedsReauth extends Error {
  override readonly name = 'NeedsReauth';
}

/**
 * Refreshes provider tokens, one process at a time: the holder of the row's lease calls the provider, outside any
 * transaction, and its write is fenced by lease and version. If a token were refreshed twice, providers that rotate tokens
 * would end the whole grant.
 */
export class ProviderRefresh {
  readonly #context: IdentityContext;
  readonly #connections: Connections;

  constructor(context: IdentityContext, all: Connections) {
    this.#context = context;
    this.#connections = all;
  }

  /**
   * Returns tokens newer than `version`; or the old ones, if they are still valid and the provider is unavailable.
   * @param issuerOf finds what issued the tokens; if it fails, the issuer counts as unavailable
   * @throws NeedsReauth, or SwitchboardError `provider_unavailable`
   */
  async run(issuerOf: IssuerOf, id: string, version: number): Promise<VersionedTokens> {
    const deadlineMs = performance.now() + WAIT_MS;
    let issuer: PromiseSettledResult<TokenIssuer> | undefined;
    for (;;) {
      const row = await this.#read(id);
      const tokens = row && (await this.#connections.tokensOf(row));
      if (!row || !tokens) throw new NeedsReauth();
      const old = { ...tokens, version: row.version, signIn: row.signIn };
      if (row.version > version) return old;
      const { refreshToken } = tokens;
      if (refreshToken === undefined) {
        if (row.valid) return old;
        await this.#connections.end(row, { reason: 'expired' });
        throw new NeedsReauth();
      }
      const mayWait = performance.now() < deadlineMs;
      if (row.cooling || !mayWait) return fallBack(row.valid, old);
      // Its metadata may take longer to read than the lease lasts.
      [issuer] = issuer ? [issuer] : await Promise.allSettled([issuerOf(old)]);
      const leaseId = newId('lease');
      if (await this.#lease(id, version, leaseId))
        return this.#ask(issuer, row, leaseId, { ...old, refreshToken });
      await delay(LOOK_AGAIN_MS * (1 + Math.random()));
    }
  }

  async #ask(
    issuer: PromiseSettledResult<TokenIssuer>,
    row: ConnectionRow & { valid: boolean },
    leaseId: string,
    old: VersionedTokens & { refreshToken: string },
  ): Promise<VersionedTokens> {
    let grant: Grant;
    try {
      if (issuer.status === 'rejected') throw issuer.reason;
      grant = await issuer.value.refresh(old.refreshToken, row);
    } catch (error) {
      const reason = finalReasonOf(error);
      if (reason) {
        this.#context.metrics?.events.providerRefreshed('ended');
        await this.#connections.end(row, { leaseId, reason });
        throw new NeedsReauth();
      }
      this.#context.metrics?.events.providerRefreshed('failed');
      this.#context.log.warn(
        { err: error, provider: row.issuer ?? row.provider },
        'failed to refresh a provider token',
      );
      await this.#cool(row.id, leaseId);
      return fallBack(row.valid, old);
    }
    const { issuedTo } = old;
    const refreshToken = grant.refreshToken ?? old.refreshToken;
    const fresh = { accessToken: grant.accessToken, refreshToken, issuedTo };
    const stored = await this.#store(row, leaseId, fresh, grant);
    const isOurs = stored?.accessToken === fresh.accessToken;
    this.#context.metrics?.events.providerRefreshed(isOurs ? 'ok' : 'overtaken');
    if (stored) return stored;
    this.#context.outbox.kick();
    throw new NeedsReauth();
  }

  /**
   * Stores fresh tokens if this process still has the lease. If a new sign-in was faster, they are kept to be revoked with
   * the connection; without a connection, the provider is notified at once. Returns the tokens in use.
   */
  #store(
    row: ConnectionRow,
    leaseId: string,
    fresh: TokenPair,
    grant: Grant,
  ): Promise<VersionedTokens | undefined> {
    const { db, outbox } = this.#context;
    return db.transaction(async tx => {
      const [current] = await tx.select().from(connections).where(eq(connections.id, row.id)).for('update');
      const tokens = current && (await this.#connections.tokensOf(current));
      if (!current || !tokens) {
        await outbox.add(tx, row, fresh);
        return undefined;
      }
      if (current.leaseId !== leaseId || current.version !== row.version) {
        await keepWithConnection(tx, this.#context, current, fresh);
        const { version, signIn } = current;
        return version > row.version ? { ...tokens, version, signIn } : undefined;
      }
      const columns = await this.#connections.columnsOf(current, { ...tokens, ...fresh }, grant);
      await tx.update(connections).set(columns).where(eq(connections.id, row.id));
      return { ...fresh, version: row.version + 1, signIn: row.signIn };
    });
  }

  async #read(id: string): Promise<(ConnectionRow & { valid: boolean; cooling: boolean }) | undefined> {
    const [found] = await this.#context.db
      .select({
        row: connections,
        valid: sql<boolean>`coalesce(${connections.accessExpiresAt} > now(), true)`,
        cooling: sql<boolean>`coalesce(${connections.failedAt} > now() - make_interval(secs => ${COOLDOWN_SEC}), false)`,
      })
      .from(connections)
      .where(eq(connections.id, id));
    return found && { ...found.row, valid: found.valid, cooling: found.cooling };
  }

  async #lease(id: string, version: number, leaseId: string): Promise<boolean> {
    const taken = await this.#context.db
      .update(connections)
      .set({ leaseId, leaseUntil: sql`now() + make_interval(secs => ${LEASE_SEC})` })
      .where(
        and(
          eq(connections.id, id),
          eq(connections.version, version),
          eq(connections.status, 'active'),
          or(isNull(connections.leaseUntil), lte(connections.leaseUntil, sql`now()`)),
        ),
      )
      .returning({ id: connections.id });
    return taken.length > 0;
  }

  async #cool(id: string, leaseId: string): Promise<void> {
    await this.#context.db
      .update(connections)
      .set({ failedAt: sql`now()`, leaseId: null, leaseUntil: null })
      .where(holds(id, leaseId));
  }
}

/** Returns why a refresh failed for good; undefined if it may be repeated. */
function finalReasonOf(error: unknown): 'invalid_grant' | 'other_account' | undefined {
  const reason = error instanceof ProviderError ? error.reason : undefined;
  return reason === 'invalid_grant' || reason === 'other_account' ? reason : undefined;
}

const holds = (id: string, leaseId: string) => and(eq(connections.id, id), eq(connections.leaseId, leaseId));

function fallBack(valid: boolean, old: VersionedTokens): VersionedTokens {
  if (valid) return old;
  throw new SwitchboardError(
    'provider_unavailable',
    "The user's token has expired, and the identity provider cannot be reached to refresh it. Try again later.",
    { retryAfterSec: COOLDOWN_SEC },
  );
}
