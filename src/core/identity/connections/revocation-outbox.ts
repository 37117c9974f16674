import { and, eq, inArray, lte, sql, type SQL } from 'drizzle-orm';
import { whyFailed, type Database } from '../../../platform/database/database.ts';
import { newId } from '../../../platform/ids.ts';
import { Repeat } from '../../../platform/time.ts';
import { OutageLog } from '../../../platform/telemetry/throttled-log.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import type { Audit } from '../../access/audit.ts';
import { keepWithConnection, type GrantOwner, type TokenPair } from './stored-tokens.ts';
import type { IssuedTo } from '../oauth/client.ts';
import type { TokenIssuer } from './provider.ts';
import type { Providers } from './providers.ts';
import { revocationOutbox } from '../schema.ts';
import { VaultError, type Binding, type Vault } from '../vault/vault.ts';

/** How long an unreachable provider is retried, in seconds; then the tokens are deleted unrevoked. */
const LIFETIME_SEC = 3600;
const BATCH = 10;
const LOOK_EVERY_MS = 5_000;
/** Longer than a batch takes, so that no other replica takes a row that is being processed. */
const FIRST_RETRY_SEC = 30;
const MAX_RETRY_SEC = 300;

/**
 * Tokens waiting to be revoked at their provider (RFC 7009). They are sealed only for this purpose, so the proxy cannot
 * decrypt them. Each row is processed by one replica at a time and survives crashes.
 */
export class Outbox {
  readonly #db: Database;
  readonly #vault: Vault;
  readonly #providers: Providers;
  #issuerOf: (issuedTo: IssuedTo) => Promise<TokenIssuer | undefined> = () => Promise.resolve(undefined);
  readonly #audit: Audit;
  readonly #log: Log;
  readonly #outage: OutageLog;
  readonly #looking = new Repeat(LOOK_EVERY_MS, () => this.#look());
  #closed = false;
  readonly #draining = new Map<string, Promise<void>>();

  constructor(options: { db: Database; vault: Vault; providers: Providers; audit: Audit; log: Log }) {
    this.#db = options.db;
    this.#vault = options.vault;
    this.#providers = options.providers;
    this.#audit = options.audit;
    this.#log = options.log;
    this.#outage = new OutageLog(options.log, 'resumed the revocation outbox');
  }

  /** Sets how the authorization servers of MCP servers are found. */
  findIssuers(issuerOf: (issuedTo: IssuedTo) => Promise<TokenIssuer | undefined>): void {
    this.#issuerOf = issuerOf;
  }

  /** Adds tokens, in the transaction that invalidates them. Call `kick` after the commit. */
  add(tx: Database, owner: GrantOwner, tokens: TokenPair): Promise<void> {
    return this.#insert(tx, owner, tokens, sql`now()`);
  }

  /** Adds tokens that wait until their account's connection ends, because revoking them could end that (`release`). */
  readonly hold = (tx: Database, owner: GrantOwner, tokens: TokenPair): Promise<void> =>
    this.#insert(tx, owner, tokens, NEVER);

  /** Makes the tokens due that wait for the end of a connection, in the transaction that ends it. Call `kick` after the commit. */
  async release(tx: Database, { provider, userId, subject }: GrantOwner): Promise<void> {
    await tx
      .update(revocationOutbox)
      .set({ nextAt: sql`now()`, expiresAt: EXPIRES })
      .where(
        and(
          eq(revocationOutbox.provider, provider),
          eq(revocationOutbox.userId, userId),
          eq(revocationOutbox.subject, subject),
          eq(revocationOutbox.nextAt, NEVER),
        ),
      );
  }

  async #insert(
    tx: Database,
    { provider, userId, subject }: GrantOwner,
    { accessToken, refreshToken, issuedTo }: TokenPair,
    nextAt: SQL,
  ): Promise<void> {
    const id = newId('out');
    const sealed = await this.#vault.sealJson(outboxBinding(provider, id), {
      accessToken,
      refreshToken,
      issuedTo,
    });
    await tx.insert(revocationOutbox).values({
      id,
      provider,
      userId,
      subject,
      sealed,
      nextAt,
      expiresAt: EXPIRES,
    });
  }

  start(): void {
    this.#looking.start();
  }

  /** Processes due rows in the background. */
  kick(): void {
    this.#looking.kick();
  }

  async close(): Promise<void> {
    await this.#looking.stop();
    this.#closed = true;
    await Promise.all(this.#draining.values());
  }

  async #look(): Promise<void> {
    try {
      await this.#drain();
      this.#outage.succeeded();
    } catch (error) {
      this.#outage.failed('revocation outbox', whyFailed(error), 'failed to process the revocation outbox');
    }
  }

  /** Processes each provider separately: a hanging one does not delay others' revocations. */
  async #drain(): Promise<void> {
    const due = await this.#db
      .selectDistinct({ provider: revocationOutbox.provider })
      .from(revocationOutbox)
      .where(lte(revocationOutbox.nextAt, sql`now()`));
    for (const { provider } of due) {
      if (this.#draining.has(provider)) continue;
      const work = this.#drainOf(provider)
        .catch((error: unknown) =>
          this.#log.warn({ ...whyFailed(error), provider }, 'failed to process the revocation outbox'),
        )
        .finally(() => this.#draining.delete(provider));
      this.#draining.set(provider, work);
    }
  }

  async #drainOf(provider: string): Promise<void> {
    for (;;) {
      const rows = await this.#take(provider);
      const done = await Promise.all(rows.map(row => this.#work(row)));
      if (rows.length === 0 || done.includes(false) || this.#closed) return;
    }
  }

  /** Claims rows by moving their next attempt into the future: if the process dies, they become due again. */
  #take(provider: string) {
    const due = this.#db
      .select({ id: revocationOutbox.id })
      .from(revocationOutbox)
      .where(and(eq(revocationOutbox.provider, provider), lte(revocationOutbox.nextAt, sql`now()`)))
      .orderBy(revocationOutbox.nextAt)
      .limit(BATCH)
      .for('update', { skipLocked: true });
    const wait = sql`make_interval(secs => least(${MAX_RETRY_SEC}, ${FIRST_RETRY_SEC} * power(2, ${revocationOutbox.attempts})))`;
    return this.#db
      .update(revocationOutbox)
      .set({ attempts: sql`${revocationOutbox.attempts} + 1`, nextAt: sql`now() + ${wait}` })
      .where(inArray(revocationOutbox.id, due))
      .returning({
        id: revocationOutbox.id,
        provider: revocationOutbox.provider,
        userId: revocationOutbox.userId,
        subject: revocationOutbox.subject,
        sealed: revocationOutbox.sealed,
        isOver: sql<boolean>`${revocationOutbox.expiresAt} <= now()`,
      });
  }

  /** Resolves to false if the row must be retried. */
  async #work(row: Taken): Promise<boolean> {
    const { id, provider } = row;
    try {
      const tokens = await this.#open(row);
      if (tokens && (await this.#isNeeded(row, tokens))) return true;
      await this.#remove(row, tokens ? await this.#revoke(provider, tokens) : 'unreadable');
      return true;
    } catch (error) {
      this.#log.warn({ err: error, provider, id }, 'provider refused a revocation');
      // Tried at least once after its deadline, however long this process was down.
      if (row.isOver) await this.#remove(row, 'abandoned');
      return row.isOver;
    }
  }

  /** Keeps the tokens with a new connection to the same account, because revoking them now could end it. */
  #isNeeded(row: Taken, tokens: TokenPair): Promise<boolean> {
    return this.#db.transaction(async tx => {
      const kept = await keepWithConnection(tx, { vault: this.#vault, outbox: this }, row, tokens);
      if (kept) await tx.delete(revocationOutbox).where(eq(revocationOutbox.id, row.id));
      return kept;
    });
  }

  async #remove({ id, provider }: Taken, result: string): Promise<void> {
    await this.#db.transaction(async tx => {
      const gone = await tx
        .delete(revocationOutbox)
        .where(eq(revocationOutbox.id, id))
        .returning({ id: revocationOutbox.id });
      if (gone.length === 0) return;
      const outcome = result === 'revoked' ? 'ok' : 'failed';
      await this.#audit.record({}, { event: 'provider_revocation', outcome, meta: { provider, result } }, tx);
    });
  }

  async #open({ id, provider, sealed }: Taken): Promise<TokenPair | undefined> {
    try {
      return await this.#vault.openJson<TokenPair>(outboxBinding(provider, id), sealed);
    } catch (error) {
      if (!(error instanceof VaultError)) throw error;
      this.#log.error({ err: error, provider, id }, 'ALARM: tokens to be revoked cannot be decrypted');
      return undefined;
    }
  }

  async #revoke(name: string, { accessToken, refreshToken, issuedTo }: TokenPair): Promise<string> {
    const provider = issuedTo ? await this.#issuerOf(issuedTo) : this.#providers.get(name);
    if (!provider) return 'provider_removed';
    // The refresh token first: at most providers its grant and access tokens end with it (RFC 7009 §2.1).
    if (refreshToken !== undefined && !(await provider.revoke(refreshToken, 'refresh_token')))
      return 'no_revocation_endpoint';
    return (await provider.revoke(accessToken, 'access_token')) ? 'revoked' : 'no_revocation_endpoint';
  }
}

const EXPIRES = sql`now() + make_interval(secs => ${LIFETIME_SEC})`;
const NEVER = sql`'infinity'::timestamptz`;

interface Taken extends GrantOwner {
  readonly id: string;
  readonly sealed: string;
  /** The row has expired. */
  readonly isOver: boolean;
}

export const outboxBinding = (provider: string, id: string): Binding => ({
  table: 'revocation_outbox',
  tenantId: '',
  userId: '',
  id: `${provider}/${id}`,
  purpose: 'revocation',
});
