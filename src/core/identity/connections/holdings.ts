import { and, eq, sql } from 'drizzle-orm';
import { LRUCache } from 'lru-cache';
import type { Database } from '../../../platform/database/database.ts';
import { monotonicMs, type Clock } from '../../../platform/time.ts';
import type { Caller } from '../../access/caller.ts';
import { users } from '../../access/schema.ts';
import { TENANT_HOLDER } from '../../access/tenants.ts';
import { accessOf, needsNothing, type Access, type ServerHead } from '../../catalogue/entry.ts';
import { connections } from '../schema.ts';
import type { Provider } from './provider.ts';

/** The headers that one call carries to one server, and the address it goes to. Never logged, never shown. */
export interface Credential {
  /** The result of the function `connectionKey`. Upstream sessions are separated by it, so that one account never uses another's session. */
  readonly connectionKey: string;
  readonly version: number;
  /** The headers by lower-case name. */
  readonly headers: Readonly<Record<string, string>>;
  /** The server's address with its variables filled in, if it has any. */
  readonly url?: URL;
  /** The parts of them that must appear nowhere else, even if the server repeats them. */
  readonly secrets: readonly string[];
}

/** Begins the target of a connection with one server. No provider's name has a colon. */
const OF_SERVER = 'server:';

/** The columns by which a user has at most one connection: a provider and a resource, or a server and its address. */
export interface Target {
  readonly provider: string;
  readonly resource: string;
}

export const serverTarget = (serverId: string): string => `${OF_SERVER}${serverId}`;

/**
 * Returns the target of a connection with a server. Its credentials are not sent to another address; the path and the query count,
 * because a host may have many servers.
 */
export function targetOf(server: Pick<ServerHead, 'id' | 'remoteUrl'>): Target {
  const known = TARGETS.get(server);
  if (known) return known;
  const { origin, pathname, search } = new URL(server.remoteUrl);
  const target = { provider: serverTarget(server.id), resource: `${origin}${pathname}${search}` };
  TARGETS.set(server, target);
  return target;
}

/** Parsing an address takes longer than the rest of finding a connection. A changed server is another object. */
const TARGETS = new WeakMap<Pick<ServerHead, 'id' | 'remoteUrl'>, Target>();

/** Returns the server that a connection or a session is for; undefined if it is for an account at a provider. */
export const serverIdOf = (provider: string): string | undefined =>
  provider.startsWith(OF_SERVER) ? provider.slice(OF_SERVER.length) : undefined;

/** Returns the kind of a connection with a server: values or an account at its own authorization server. */
export const kindAtServer = ({ issuer }: Pick<HeldConnection, 'issuer'>): 'credentials' | 'oauth' =>
  issuer === null ? 'credentials' : 'oauth';

/**
 * Limits a cache of what was decrypted: except for the query, decrypting is the most expensive step of a call. The keys have the
 * sealed text, which is longer than what it holds; servers decide how long their tokens are.
 */
export const OPENED = {
  max: 5_000,
  ttl: 60_000,
  maxSize: 16 * 1024 * 1024,
  sizeCalculation: (_opened: unknown, key: string) => key.length,
};

/** How long connections are cached: another process may have changed them. */
const BELIEVED_MS = 2_000;

/** A token is refreshed before use if less than a tenth of its lifetime is left, within these bounds. */
const FRESH_SEC = { min: 5, max: 60 };

/**
 * The columns of a connection that a call needs. Its secrets are sealed. The caches of decrypted secrets are keyed by the whole row:
 * a column that changes with each call, such as `last_used_at`, would defeat them.
 */
export const heldColumns = {
  id: connections.id,
  tenantId: connections.tenantId,
  userId: connections.userId,
  provider: connections.provider,
  resource: connections.resource,
  issuer: connections.issuer,
  status: connections.status,
  scopes: connections.scopes,
  sealed: connections.sealed,
  version: connections.version,
  signIn: connections.signIn,
  forUsers: connections.forUsers,
  hasRefreshToken: connections.hasRefreshToken,
};

/** True while the access token can be used; also for values, which do not expire. */
export const isFresh = () => {
  const tenth = sql`(${connections.accessExpiresAt} - ${connections.updatedAt}) / 10`;
  const { min, max } = FRESH_SEC;
  const margin = sql`greatest(make_interval(secs => ${min}), least(make_interval(secs => ${max}), ${tenth}))`;
  return sql<boolean>`coalesce(${connections.accessExpiresAt} > now() + ${margin}, true)`;
};

export type HeldConnection = Pick<typeof connections.$inferSelect, keyof typeof heldColumns> & {
  readonly fresh: boolean;
};

/**
 * Tells connections apart, and the sign-ins of one at a server's own authorization server: a later one may be with another account. A
 * provider says which account it is, so that another one is another connection.
 */
export const connectionKey = ({
  id,
  issuer,
  signIn,
}: Pick<HeldConnection, 'id' | 'issuer' | 'signIn'>): string =>
  issuer === null || signIn === 1 ? id : `${id}/${signIn}`;

/** The connections of one holder by target. */
export class HeldTargets {
  readonly #byTarget: ReadonlyMap<string, HeldConnection>;

  constructor(rows: readonly HeldConnection[]) {
    this.#byTarget = new Map(rows.map(row => [keyOf(row), row]));
  }

  get(target: Target): HeldConnection | undefined {
    return this.#byTarget.get(keyOf(target));
  }

  /** Returns the connection with a server. */
  with(server: ServerHead): HeldConnection | undefined {
    return this.#byTarget.size === 0 ? undefined : this.get(targetOf(server));
  }
}

const keyOf = ({ provider, resource }: Target): string => `${provider} ${resource}`;

/**
 * Caches the connections that a tenant shares, and those of its users, so that a call costs no query. Changes of this process show
 * immediately, those of other processes after two seconds.
 */
export class Holdings {
  readonly #db: Database;
  readonly #held: LRUCache<string, HeldTargets, { tenantId: string; userId: string | undefined }>;

  constructor(db: Database, clock: Clock) {
    this.#db = db;
    this.#held = new LRUCache({
      max: 10_000,
      ttl: BELIEVED_MS,
      perf: { now: () => monotonicMs(clock) },
      // A reader that waits gets what was read, also where the connections were changed meanwhile.
      ignoreFetchAbort: true,
      fetchMethod: (_key, _stale, { context }) => this.#read(context),
    });
  }

  /** Returns what the tenant shares, if that was read lately. */
  peek(tenantId: string): HeldTargets | undefined {
    return this.#held.get(tenantId);
  }

  /** Returns the connections of a user, or without one those that the tenant shares. */
  async of(tenantId: string, userId?: string): Promise<HeldTargets> {
    const key = userId === undefined ? tenantId : `${tenantId} ${userId}`;
    return (await this.#held.fetch(key, { context: { tenantId, userId } })) ?? new HeldTargets([]);
  }

  /** Forgets what a holder has and what the tenant shares, after this process has changed one of them. */
  forget(tenantId: string, userId: string | undefined): void {
    this.#held.delete(tenantId);
    if (userId !== undefined) this.#held.delete(`${tenantId} ${userId}`);
  }

  async #read({ tenantId, userId }: { tenantId: string; userId: string | undefined }): Promise<HeldTargets> {
    const holder = userId === undefined ? eq(users.externalId, TENANT_HOLDER) : eq(users.id, userId);
    const rows = await this.#db
      .select({ ...heldColumns, fresh: isFresh() })
      .from(connections)
      .innerJoin(users, eq(users.id, connections.userId))
      .where(and(eq(users.tenantId, tenantId), holder));
    return new HeldTargets(rows);
  }
}

interface Known {
  readonly providers: { get(name: string): Provider | undefined };
  readonly authorization: { isSetUp(issuer: string | undefined): boolean };
}

/** Returns the access that a server gives one caller. */
export type AccessOf = (server: ServerHead) => Access;

/**
 * Returns a function that tells for any server whether this caller's calls carry what it requires. It may be two seconds behind.
 * @throws what the database throws
 */
export async function accessFor(
  holdings: Holdings,
  { providers, authorization }: Known,
  { tenantId, subject }: Pick<Caller, 'tenantId' | 'subject'>,
): Promise<AccessOf> {
  const [shared, own] = await Promise.all([
    holdings.of(tenantId),
    subject ? holdings.of(tenantId, subject.userId) : undefined,
  ]);
  /** Whether the operator has set up meanwhile what a server was found to need. */
  const isSetUp = ({ learned }: ServerHead) =>
    learned?.needsSetup === true && authorization.isSetUp(learned.issuer);
  return server => {
    const access = accessOf(server);
    if (needsNothing(server)) return access;
    if (access.kind === 'provider') return { ...access, status: statusAtProvider(server, own, providers) };
    const ofTenant = shared.with(server);
    const held = own?.with(server) ?? (subject && !ofTenant?.forUsers ? undefined : ofTenant);
    if (!held) return isSetUp(server) ? { ...access, status: 'connect' } : access;
    return { kind: kindAtServer(held), status: held.status === 'active' ? 'connected' : 'connect' };
  };
}

function statusAtProvider(
  { auth, remoteUrl }: ServerHead,
  own: HeldTargets | undefined,
  providers: Known['providers'],
): Access['status'] {
  const { provider = '', resource = '' } = auth;
  const origins = providers.get(provider)?.settings.allowedOrigins;
  if (!origins?.includes(new URL(remoteUrl).origin)) return 'setup_needed';
  return own?.get({ provider, resource })?.status === 'active' ? 'connected' : 'connect';
}
