import { and, desc, eq, isNull, sql } from 'drizzle-orm';
import { LRUCache } from 'lru-cache';
import { SwitchboardError } from '../../errors.ts';
import type { Clock } from '../../infra/clock.ts';
import type { Database } from '../../infra/database.ts';
import type { Log } from '../../infra/log.ts';
import { SCOPES, type Scope, type Subject } from '../caller.ts';
import { ensureUser, lockUser, requireUserId, type User } from '../identity/users.ts';
import { apiKeys, users } from '../schema.ts';
import { generateApiKey, hashApiKey, idOfApiKey, sameHash } from './api-key.ts';
import { KeyRows, type KeyRow } from './key-rows.ts';
import { ensureTenant, LOCAL_TENANT, Tenants } from './tenants.ts';

/** The id under which the key of `SWITCHBOARD_API_KEY` appears in logs and limits. */
const ENVIRONMENT_KEY = 'environment';
const LAST_USED_EVERY_MS = 60_000;
const DEFAULT_SCOPES: readonly Scope[] = ['search', 'proxy', 'identity'];
/** All that a key that acts for one user may have: the others act for any user, or for none. */
const USER_SCOPES: readonly Scope[] = ['search', 'proxy'];

/** Who holds a key. */
export interface Principal {
  readonly tenantId: string;
  readonly keyId: string;
  readonly scopes: ReadonlySet<Scope>;
  /** The one end user that a key bound to a user acts for. */
  readonly subject?: Subject;
}

const ENVIRONMENT_PRINCIPAL: Principal = {
  tenantId: LOCAL_TENANT,
  keyId: ENVIRONMENT_KEY,
  scopes: new Set(SCOPES),
};

/** A key as an operator sees it: never the secret. */
export interface ApiKeyInfo {
  readonly id: string;
  readonly name: string;
  readonly tenant: string;
  /** The caller's own id of the one user it acts for. */
  readonly user: string | null;
  readonly scopes: readonly Scope[];
  readonly created_at: string;
  readonly expires_at: string | null;
  readonly revoked_at: string | null;
  readonly last_used_at: string | null;
}

/** With the key itself, which is seen here and never again. */
export interface NewApiKey extends ApiKeyInfo {
  readonly key: string;
}

export class ApiKeys {
  readonly tenants: Tenants;
  readonly #db: Database;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #environmentHash: Uint8Array | undefined;
  readonly #rows: KeyRows;
  readonly #writes = new Set<Promise<void>>();
  readonly #touchedAt = new LRUCache<string, number>({ max: 10_000 });

  constructor(options: { db: Database; clock: Clock; log: Log; environmentKey: string | undefined }) {
    this.tenants = new Tenants(options.db);
    this.#db = options.db;
    this.#clock = options.clock;
    this.#log = options.log;
    this.#environmentHash =
      options.environmentKey === undefined ? undefined : hashApiKey(options.environmentKey);
    this.#rows = new KeyRows(options.db, options.clock);
  }

  /** The tenant that the first start's key and the environment's key belong to. */
  async prepare(): Promise<void> {
    await ensureTenant(this.#db, LOCAL_TENANT);
  }

  /**
   * Who holds this key. `isGuarded` tells whether the address has tried too many wrong ones: its further ones must not each cost a query.
   * @throws SwitchboardError `unauthorized`, with one text for every reason, so that it tells an attacker nothing.
   */
  async authenticate(key: string | undefined, isGuarded = () => Promise.resolve(false)): Promise<Principal> {
    if (key === undefined) throw unauthorized();
    const hash = hashApiKey(key);
    if (this.#environmentHash && sameHash(hash, this.#environmentHash)) return ENVIRONMENT_PRINCIPAL;
    const id = idOfApiKey(key);
    if (id === undefined) throw unauthorized();
    const row = await this.#rows.find(id, isGuarded);
    if (!row || !sameHash(hash, row.hash) || !this.#isLive(row)) throw unauthorized();
    this.#touch(row.id);
    return { tenantId: row.tenantId, keyId: row.id, scopes: new Set(row.scopes), ...subjectOf(row) };
  }

  /**
   * A new key; its tenant, and the user it acts for, are made when they are new.
   * @throws SwitchboardError `invalid_request`: a user id of a wrong form, or a scope that acts for others.
   */
  async create(input: {
    readonly name: string;
    /** Default `local`. */
    readonly tenantId?: string | undefined;
    /** The caller's own id of the one user whom the key acts for. */
    readonly userId?: string | undefined;
    /** Default search, proxy, and identity unless the key acts for one user. */
    readonly scopes?: readonly Scope[] | undefined;
    readonly expiresAt?: Date | undefined;
  }): Promise<NewApiKey> {
    const { name, tenantId = LOCAL_TENANT, userId } = input;
    const externalId = userId === undefined ? undefined : requireUserId(userId);
    const { scopes = externalId === undefined ? DEFAULT_SCOPES : USER_SCOPES } = input;
    if (externalId !== undefined) requireUserScopes(scopes);
    const created = await this.#db.transaction(async tx => {
      await ensureTenant(tx, tenantId);
      const user = externalId === undefined ? undefined : await ensureUser(tx, tenantId, externalId);
      const expiresAt = input.expiresAt ?? null;
      return this.#insert(tx, { name, tenantId, scopes: [...scopes], expiresAt, ...ownerOf(user) });
    });
    this.#rows.changed(created.id);
    return created;
  }

  /** The first start's key: undefined when tenant `local` already has had one. */
  async createFirst(): Promise<string | undefined> {
    const [any] = await this.#db.select({ id: apiKeys.id }).from(apiKeys).limit(1);
    if (any) return undefined;
    return (await this.create({ name: 'first start', scopes: SCOPES })).key;
  }

  async list(): Promise<ApiKeyInfo[]> {
    const found = await this.#select(this.#db).orderBy(desc(apiKeys.createdAt), apiKeys.id);
    return found.map(({ row, user }) => info(row, user));
  }

  /**
   * A new key in place of an old one: same tenant, name, scopes, user and expiry. The old one goes on for the overlap, never
   * for longer than it would have.
   * @throws SwitchboardError `key_not_found`, or `invalid_request` for a key that is over already.
   */
  async rotate(id: string, overlapMs: number): Promise<NewApiKey & { readonly replaces: ApiKeyInfo }> {
    const rotated = await this.#db.transaction(async tx => {
      const { row: seen } = await this.#require(tx, id);
      // The user first, as every transaction on what a user has: a revocation meanwhile must see the new key.
      if (seen.userId !== null) await lockUser(tx, seen.tenantId, seen.userId);
      await tx.select().from(apiKeys).where(eq(apiKeys.id, id)).for('update');
      const { row } = await this.#require(tx, id);
      if (!this.#isLive(row))
        throw new SwitchboardError('invalid_request', `The API key ${id} is over. Make a new one instead.`);
      const end = Math.min(this.#clock.now() + overlapMs, row.expiresAt?.getTime() ?? Infinity);
      await tx
        .update(apiKeys)
        .set({ expiresAt: new Date(end) })
        .where(eq(apiKeys.id, id));
      const { name, tenantId, scopes, userId, userEpoch, expiresAt } = row;
      const created = await this.#insert(tx, { name, tenantId, scopes, userId, userEpoch, expiresAt });
      const old = await this.#require(tx, id);
      return { ...created, replaces: info(old.row, old.user) };
    });
    this.#rows.changed(id);
    return rotated;
  }

  /** Ends a key at once in this process. Revoking twice keeps the first time. @throws SwitchboardError `key_not_found`. */
  async revoke(id: string): Promise<ApiKeyInfo> {
    await this.#db
      .update(apiKeys)
      .set({ revokedAt: sql`now()` })
      .where(and(eq(apiKeys.id, id), isNull(apiKeys.revokedAt)));
    this.#rows.changed(id);
    const { row, user } = await this.#require(this.#db, id);
    return info(row, user);
  }

  /** Waits for what is still being written. */
  async close(): Promise<void> {
    await Promise.all(this.#writes);
  }

  #select(db: Database) {
    return db
      .select({ row: apiKeys, user: users.externalId })
      .from(apiKeys)
      .leftJoin(users, eq(users.id, apiKeys.userId));
  }

  async #require(db: Database, id: string): Promise<{ row: KeyRow; user: string | null }> {
    const [found] = await this.#select(db).where(eq(apiKeys.id, id));
    if (!found) throw new SwitchboardError('key_not_found', `No API key has the id ${JSON.stringify(id)}.`);
    return found;
  }

  async #insert(
    tx: Database,
    values: Pick<KeyRow, 'name' | 'tenantId' | 'scopes' | 'userId' | 'userEpoch' | 'expiresAt'>,
  ): Promise<NewApiKey> {
    const { id, key, hash } = generateApiKey();
    await tx.insert(apiKeys).values({ ...values, id, hash });
    const { row, user } = await this.#require(tx, id);
    return { ...info(row, user), key };
  }

  #isLive(row: KeyRow): boolean {
    return row.revokedAt === null && (row.expiresAt === null || row.expiresAt.getTime() > this.#clock.now());
  }

  #touch(id: string): void {
    const now = this.#clock.now();
    if (now - (this.#touchedAt.get(id) ?? -LAST_USED_EVERY_MS) < LAST_USED_EVERY_MS) return;
    this.#touchedAt.set(id, now);
    const write = this.#db
      .update(apiKeys)
      .set({ lastUsedAt: new Date(now) })
      .where(eq(apiKeys.id, id))
      .then(() => {})
      .catch((error: unknown) => this.#log.warn({ err: error, keyId: id }, 'last use of a key not written'))
      .finally(() => this.#writes.delete(write));
    this.#writes.add(write);
  }
}

const unauthorized = () =>
  new SwitchboardError(
    'unauthorized',
    'Send a valid API key in the header X-API-Key. `switchboard keys create` makes one.',
  );

function requireUserScopes(scopes: readonly Scope[]): void {
  const wrong = scopes.find(scope => !USER_SCOPES.includes(scope));
  if (wrong === undefined) return;
  throw new SwitchboardError(
    'invalid_request',
    `scopes: a key that acts for one user can have ${USER_SCOPES.join(' and ')}, not ${wrong}: it must not act for others`,
  );
}

const ownerOf = (user: User | undefined) => ({
  userId: user?.id ?? null,
  userEpoch: user?.tokenEpoch ?? null,
});

const subjectOf = ({ userId, userEpoch }: KeyRow): { subject?: Subject } =>
  userId === null || userEpoch === null ? {} : { subject: { userId, epoch: userEpoch } };

const info = (row: KeyRow, user: string | null): ApiKeyInfo => ({
  id: row.id,
  name: row.name,
  tenant: row.tenantId,
  user,
  scopes: row.scopes,
  created_at: row.createdAt.toISOString(),
  expires_at: row.expiresAt?.toISOString() ?? null,
  revoked_at: row.revokedAt?.toISOString() ?? null,
  last_used_at: row.lastUsedAt?.toISOString() ?? null,
});
