import { and, eq, gt, isNull, sql } from 'drizzle-orm';
import { LRUCache } from 'lru-cache';
import { SwitchboardError } from '../../../errors.ts';
import type { Database } from '../../../platform/database/database.ts';
import { LastUsed } from '../../../platform/database/write-behind.ts';
import { SingleFlight } from '../../../platform/queues.ts';
import type { Caller, Subject } from '../../access/caller.ts';
import { users } from '../../access/schema.ts';
import type { Server } from '../../catalogue/entry.ts';
import type { IdentityContext } from '../context.ts';
import { connections, tokenFamilies } from '../schema.ts';
import { sha256 } from '../../../platform/ids.ts';
import type { Sessions } from '../sign-in/sessions.ts';
import { invalidToken } from '../tokens/identity-token.ts';
import type { Connections } from './connections.ts';
import { ServerValues } from './server-values.ts';
import type { ConnectionRow } from './stored-tokens.ts';
import { targetOf, type Credential, type Holdings, type Target } from './holdings.ts';
import { NeedsReauth, ProviderRefresh, type VersionedTokens } from './provider-refresh.ts';
import type { Provider } from './provider.ts';

/** A server's refusal of a token triggers a refresh at most this often. */
const FORCE_EVERY_MS = 60_000;
/** How long a decrypted token is cached: except for the query, decrypting is the most expensive step. */
const OPENED_MS = 60_000;

/** The sign-in required by a server's entry, if the provider's settings allow it. */
interface Demand {
  readonly serverId: string;
  readonly provider: Provider;
  readonly scopes: readonly string[];
  readonly resource: string;
}

/**
 * Decides which provider token goes to which server. A token is released only if the server's entry names a provider, that
 * provider's settings name the server's origin, and the user has connected an account with the required scopes.
 */
export class Credentials {
  readonly #context: IdentityContext;
  readonly #connections: Connections;
  readonly #sessions: Sessions;
  readonly #refresh: ProviderRefresh;
  readonly #find: ReturnType<typeof prepareFind>;
  /** Decrypted tokens by the whole row they were sealed in, so that a changed row is decrypted again. */
  readonly #opened = new LRUCache<string, VersionedTokens>({ max: 5_000, ttl: OPENED_MS });
  readonly #refreshing = new SingleFlight<VersionedTokens>();
  readonly #forced = new LRUCache<string, { version: number; atMs: number }>({ max: 10_000 });
  readonly #lastUsed: LastUsed;

  readonly #values: ServerValues;

  constructor(options: {
    context: IdentityContext;
    connections: Connections;
    sessions: Sessions;
    holdings: Holdings;
  }) {
    this.#context = options.context;
    this.#connections = options.connections;
    this.#sessions = options.sessions;
    this.#refresh = new ProviderRefresh(options.context, options.connections);
    const { db, clock, log } = options.context;
    this.#find = prepareFind(db);
    this.#lastUsed = new LastUsed({
      clock,
      log,
      what: 'connection',
      write: id =>
        db
          .update(connections)
          .set({ lastUsedAt: sql`now()` })
          .where(eq(connections.id, id)),
    });
    this.#values = new ServerValues({ ...options, lastUsed: this.#lastUsed });
  }

  /**
   * Returns the credential of a call; undefined if the server takes none, usually immediately if there is no identity token
   * either. For a user, one query checks whether the identity token is still valid and loads the connection.
   * @throws SwitchboardError `identity_token_required`, `identity_token_invalid`, `connection_required` (with a sign-in
   * link), `provider_not_configured`, `provider_unavailable`
   */
  forCall(caller: Caller, server: Server): Promise<Credential | undefined> | undefined {
    const demand = this.#demandOf(server);
    if (demand) return this.#ofProvider(caller, demand);
    return caller.subject ? this.#ofServer(caller, server) : this.#values.forKey(caller, server);
  }

  async #ofProvider(caller: Caller, demand: Demand): Promise<Credential> {
    const { connection, userId } = await this.#load(caller, targetAt(demand));
    return this.#use(caller, demand, userId, connection, false);
  }

  async #ofServer(caller: Caller, server: Server): Promise<Credential | undefined> {
    const { connection } = await this.#load(caller, targetOf(server));
    return this.#values.forUser(caller, server, connection);
  }

  /**
   * Returns a newer credential after the server refused this one; undefined if there is none.
   * @throws SwitchboardError `connection_required` if somebody must enter another key
   */
  async renewed(
    caller: Caller,
    server: Server,
    refused: Credential | undefined,
  ): Promise<Credential | undefined> {
    const demand = this.#demandOf(server);
    if (!demand) {
      const own = caller.subject && (await this.#load(caller, targetOf(server))).connection;
      return refused
        ? this.#values.refused(caller, server, refused, own)
        : this.#values.wanted(caller, server, own);
    }
    if (!refused) return undefined;
    const { connection, userId } = await this.#load(caller, targetAt(demand));
    if (connection?.id !== refused.connectionId) return undefined;
    const isNewer = connection.version > refused.version;
    if (!isNewer && (!connection.hasRefreshToken || !this.#mayForce(connection))) return undefined;
    const offered = await this.#use(caller, demand, userId, connection, !isNewer);
    // If the provider is unavailable, this is the token that was refused.
    return offered.version > refused.version ? offered : undefined;
  }

  /**
   * Checks an identity token that the call does not need: a token is never silently ignored.
   * @throws SwitchboardError `identity_token_invalid`
   */
  async requireLive(caller: Caller): Promise<void> {
    if (caller.subject) await this.#load(caller, undefined);
  }

  /** Waits for pending writes. */
  async close(): Promise<void> {
    await this.#lastUsed.close();
  }

  #demandOf({ auth, remoteUrl, id }: Server): Demand | undefined {
    if (auth.kind !== 'user_oauth' || auth.provider === undefined) return undefined;
    const provider = this.#context.providers.get(auth.provider);
    const origin = new URL(remoteUrl).origin;
    if (!provider?.settings.allowedOrigins.includes(origin)) {
      throw new SwitchboardError(
        'provider_not_configured',
        provider
          ? `The server ${id} requires a sign-in at ${auth.provider}, whose allowed_origins does not include ${origin}. Ask the operator to add it to SWITCHBOARD_PROVIDERS.`
          : `The server ${id} requires a sign-in at ${auth.provider}, which is not configured. Ask the operator to add it to SWITCHBOARD_PROVIDERS.`,
      );
    }
    return { serverId: id, provider, scopes: auth.scopes ?? [], resource: auth.resource ?? '' };
  }

  async #load(
    caller: Caller,
    target: Target | undefined,
  ): Promise<{ userId: string; connection: Found | undefined }> {
    const subject = caller.subject;
    if (!subject) throw tokenRequired();
    const [row] = await this.#find.execute({
      userId: subject.userId,
      tenantId: caller.tenantId,
      familyId: subject.familyId ?? '',
      provider: target?.provider ?? '',
      resource: target?.resource ?? '',
    });
    if (!row || !isLive(subject, row)) throw invalidToken();
    return {
      userId: subject.userId,
      connection: row.connection === null ? undefined : { ...row.connection, fresh: row.fresh },
    };
  }

  async #use(
    caller: Caller,
    demand: Demand,
    userId: string,
    connection: Found | undefined,
    refused: boolean,
  ): Promise<Credential> {
    if (!connection) throw await this.#required(caller, demand, userId, 'not_connected', demand.scopes);
    if (connection.status === 'needs_reauth')
      throw await this.#required(caller, demand, userId, 'needs_reauth', []);
    const missing = demand.scopes.filter(scope => !connection.scopes.includes(scope));
    if (missing.length > 0)
      throw await this.#required(caller, demand, userId, 'missing_scopes', missing, connection.scopes);
    const tokens =
      connection.fresh && !refused ? await this.#open(connection) : await this.#renew(demand, connection);
    if (!tokens) throw await this.#required(caller, demand, userId, 'needs_reauth', []);
    this.#lastUsed.touch(connection.id);
    return {
      connectionId: connection.id,
      version: tokens.version,
      headers: { authorization: `Bearer ${tokens.accessToken}` },
      secrets: [tokens.accessToken],
    };
  }

  async #open(connection: Found): Promise<VersionedTokens | undefined> {
    const { id, tenantId, userId, provider, resource, version, sealed } = connection;
    const key = digestOf([tenantId, userId, id, provider, resource, version, sealed]);
    const known = this.#opened.get(key);
    if (known) return known;
    const tokens = await this.#connections.tokensOf(connection);
    const opened = tokens && { accessToken: tokens.accessToken, refreshToken: undefined, version };
    if (opened) this.#opened.set(key, opened);
    return opened;
  }

  /** Returns undefined if only the user can renew the connection. */
  async #renew(demand: Demand, connection: Found): Promise<VersionedTokens | undefined> {
    const { id, version } = connection;
    try {
      return await this.#refreshing.run(`${id}/${version}`, () =>
        this.#refresh.run(demand.provider, id, version),
      );
    } catch (error) {
      if (error instanceof NeedsReauth) return undefined;
      throw error;
    }
  }

  async #required(
    caller: Caller,
    demand: Demand,
    userId: string,
    reason: 'not_connected' | 'needs_reauth' | 'missing_scopes',
    missing: readonly string[],
    held: readonly string[] = [],
  ): Promise<SwitchboardError> {
    const { provider, resource } = demand;
    const { name, title } = provider.settings;
    const scopes = [...new Set([...held, ...demand.scopes])];
    const session = await this.#sessions.justInTime(caller, userId, { provider, scopes, resource });
    return new SwitchboardError(
      'connection_required',
      `${REASONS[reason](title)} Ask the user to open auth_url and sign in, then repeat the call.`,
      {
        members: {
          kind: 'provider',
          server_id: demand.serverId,
          provider: name,
          reason,
          missing,
          missing_scopes: missing,
          ...session,
        },
      },
    );
  }

  /**
   * Returns whether a refused token may be replaced. A server that refuses every token must not turn each call into a
   * refresh. Calls with the same refused token share one.
   */
  #mayForce({ id, version }: Found): boolean {
    const now = this.#context.clock.now();
    const last = this.#forced.get(id);
    if (last && version !== last.version && now - last.atMs < FORCE_EVERY_MS) return false;
    this.#forced.set(id, { version, atMs: now });
    return true;
  }
}

const targetAt = ({ provider, resource }: Demand): Target => ({ provider: provider.settings.name, resource });

const digestOf = (parts: readonly unknown[]): string =>
  Buffer.from(sha256(JSON.stringify(parts))).toString('base64url');

const REASONS = {
  not_connected: (title: string) => `The user has not connected a ${title} account yet.`,
  needs_reauth: (title: string) => `The user's connection to ${title} has ended and must be renewed.`,
  missing_scopes: (title: string) => `The user's connection to ${title} lacks scopes that this server needs.`,
};

const tokenRequired = () =>
  new SwitchboardError(
    'identity_token_required',
    "This server acts for an end user, but the request names none. Send the user's identity token as Authorization: Bearer together with X-API-Key. For a client that cannot do that, such as an IDE, the operator can create a key for the user with switchboard keys create --user USER_ID.",
  );

/** A token with less than this left is refreshed before use. */
const FRESH_SEC = 60;

/** The columns of a connection that a call needs. */
type Found = Pick<
  ConnectionRow,
  | 'id'
  | 'tenantId'
  | 'userId'
  | 'provider'
  | 'resource'
  | 'status'
  | 'scopes'
  | 'sealed'
  | 'version'
  | 'hasRefreshToken'
> & { readonly fresh: boolean };

/** Prepares the single query of a call: whether user and family are still valid, and the connection. */
function prepareFind(db: Database) {
  return db
    .select({
      epoch: users.tokenEpoch,
      familyId: tokenFamilies.id,
      connection: {
        id: connections.id,
        tenantId: connections.tenantId,
        userId: connections.userId,
        provider: connections.provider,
        resource: connections.resource,
        status: connections.status,
        scopes: connections.scopes,
        sealed: connections.sealed,
        version: connections.version,
        hasRefreshToken: connections.hasRefreshToken,
      },
      fresh: sql<boolean>`coalesce(${connections.accessExpiresAt} > now() + make_interval(secs => ${FRESH_SEC}), true)`,
    })
    .from(users)
    .leftJoin(
      tokenFamilies,
      and(
        eq(tokenFamilies.id, sql.placeholder('familyId')),
        eq(tokenFamilies.userId, users.id),
        isNull(tokenFamilies.revokedAt),
        gt(tokenFamilies.expiresAt, sql`now()`),
      ),
    )
    .leftJoin(
      connections,
      and(
        eq(connections.userId, users.id),
        eq(connections.provider, sql.placeholder('provider')),
        eq(connections.resource, sql.placeholder('resource')),
      ),
    )
    .where(and(eq(users.id, sql.placeholder('userId')), eq(users.tenantId, sql.placeholder('tenantId'))))
    .prepare('find_credential');
}

/** Returns whether the claims of the identity token or the key are still valid. */
const isLive = (subject: Subject, row: { epoch: number; familyId: string | null }): boolean =>
  row.epoch === subject.epoch && (subject.familyId === undefined || row.familyId === subject.familyId);
