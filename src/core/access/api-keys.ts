import { and, eq, isNull, or, sql } from 'drizzle-orm';
import { LRUCache } from 'lru-cache';
import { SwitchboardError } from '../../errors.ts';
import { monotonicMs, type Clock } from '../../platform/time.ts';
import type { Place } from '../../platform/database/columns.ts';
import type { Database } from '../../platform/database/database.ts';
import { LastUsed } from '../../platform/database/write-behind.ts';
import { quoted } from '../../platform/sanitize.ts';
import { SingleFlight } from '../../platform/queues.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { Metrics } from '../metrics.ts';
import {
  keyInfo,
  quotaColumns,
  quotaMeta,
  scopesFor,
  type ApiKeyInfo,
  type KeyRow,
  type NewApiKey,
  type NewKeyInput,
  type QuotaChange,
} from './api-key.ts';
import type { Actor, Audit } from './audit.ts';
import { ENVIRONMENT_KEY_ID, FULL_SCOPES, type Principal, type Quota } from './caller.ts';
import { ClientKeys, invalidAccessToken } from './client-keys.ts';
import { KeyWatch } from './key-watch.ts';
import { pageOfKeys, type KeyFilter } from './key-pages.ts';
import { Digests, generateApiKey, hashApiKey, idOfApiKey, sameHash } from './key-text.ts';
import { KeyUse, type UseCount } from './quota.ts';
import { apiKeys, users } from './schema.ts';
import { ensureTenant, ensureUser, LOCAL_TENANT, lockUser, requireUserId, Tenants } from './tenants.ts';

/** How long a process caches a row that another process may have changed. */
const CACHE_MS = 2_000;

/** The holder of the key in `SWITCHBOARD_API_KEY`. */
const ENVIRONMENT_PRINCIPAL: Principal = {
  tenantId: LOCAL_TENANT,
  keyId: ENVIRONMENT_KEY_ID,
  scopes: new Set(FULL_SCOPES),
};

interface ApiKeysOptions {
  readonly db: Database;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics?: Metrics;
  readonly audit: Audit;
  readonly environmentKey: string | undefined;
  /** True if other processes use the same database. */
  readonly shared?: boolean;
}

/**
 * API keys: checked on every request and managed by operators. Each change is recorded in the audit log with its actor;
 * without an actor, it was Switchboard itself.
 */
export class ApiKeys {
  readonly tenants: Tenants;
  readonly use: KeyUse;
  /** Keys that stand for the sign-ins of MCP clients. */
  readonly clients: ClientKeys;
  readonly #audit: Audit;
  readonly #db: Database;
  readonly #clock: Clock;
  readonly #environmentHash: Uint8Array | undefined;
  readonly #watch: KeyWatch;
  readonly #rows: KeyRows;
  readonly #lastUsed: LastUsed;
  readonly #digests: Digests;

  constructor({ db, clock, log, metrics, audit, environmentKey, shared = false }: ApiKeysOptions) {
    this.#audit = audit;
    this.tenants = new Tenants(db, audit);
    this.use = new KeyUse({ db, clock, log, metrics, shared });
    this.#db = db;
    this.#clock = clock;
    this.#environmentHash = environmentKey === undefined ? undefined : hashApiKey(environmentKey);
    this.#watch = new KeyWatch({ db, log, shared });
    this.#rows = new KeyRows(db, clock, id => this.#watch.changed(id));
    this.clients = new ClientKeys({ db, audit, onChange: id => this.#rows.changed(id) });
    this.#digests = new Digests(clock);
    this.#lastUsed = new LastUsed({
      clock,
      log,
      what: 'API key',
      write: (id, lastUsedAt) => db.update(apiKeys).set({ lastUsedAt }).where(eq(apiKeys.id, id)),
    });
  }

  /** Creates the tenant of the first key and the environment's key. */
  async prepare(): Promise<void> {
    await ensureTenant(this.#db, LOCAL_TENANT);
  }

  /**
   * Returns the holder of a key, at once if the key is cached.
   * @param isGuarded true if the address has tried too many wrong keys, so that further ones must not each cost a query
   * @throws SwitchboardError `unauthorized`, with one text for every reason, so that an attacker learns nothing
   */
  authenticate(
    key: string | undefined,
    isGuarded = () => Promise.resolve(false),
  ): Principal | Promise<Principal> {
    if (key === undefined) throw unauthorized();
    const hash = this.#digests.of(key);
    if (this.#environmentHash && sameHash(hash, this.#environmentHash)) return ENVIRONMENT_PRINCIPAL;
    const id = idOfApiKey(key);
    if (id === undefined) throw unauthorized();
    const cached = this.#rows.cached(id);
    if (cached) return this.#holderOf(cached, hash);
    return this.#rows.find(id, isGuarded).then(row => this.#holderOf(row, hash));
  }

  /** Returns whether a text is the key of the settings, which may look like anything. */
  isEnvironmentKey(key: string): boolean {
    return this.#environmentHash !== undefined && sameHash(this.#digests.of(key), this.#environmentHash);
  }

  /**
   * Returns the holder of a client's sign-in, whose access token was verified, at once if it is cached.
   * @throws SwitchboardError `unauthorized` if it has ended
   */
  authenticateClient(id: string): Principal | Promise<Principal> {
    const cached = this.#rows.cached(id);
    if (cached) return this.#holder(cached, invalidAccessToken);
    const found = this.#rows.find(id, () => Promise.resolve(false));
    return found.then(row => this.#holder(row, invalidAccessToken));
  }

  /** @throws SwitchboardError `unauthorized` */
  #holderOf(row: CachedKey | undefined, hash: Uint8Array): Principal {
    if (!row || !sameHash(hash, row.hash)) throw unauthorized();
    return this.#holder(row);
  }

  /** @throws SwitchboardError `unauthorized` */
  #holder(row: CachedKey | undefined, refusal = unauthorized): Principal {
    if (!row || !this.#isLive(row)) throw refusal();
    this.#lastUsed.touch(row.id);
    return (row.principal ??= principalOf(row));
  }

  /**
   * Creates a key, and its tenant and user if they do not exist.
   * @throws SwitchboardError `invalid_request` for an invalid user id or a forbidden scope
   */
  async create(input: NewKeyInput, actor: Partial<Actor> = {}): Promise<NewApiKey> {
    const { name, tenantId = LOCAL_TENANT, userId } = input;
    const externalId = userId === undefined ? undefined : requireUserId(userId);
    const scopes = scopesFor(input.scopes, { tenantId, isUsers: externalId !== undefined });
    const created = await this.#db.transaction(async tx => {
      await ensureTenant(tx, tenantId);
      const user = externalId === undefined ? undefined : await ensureUser(tx, tenantId, externalId);
      const key = await this.#insert(tx, {
        name,
        tenantId,
        scopes: [...scopes],
        userId: user?.id ?? null,
        userEpoch: user?.tokenEpoch ?? null,
        expiresAt: input.expiresAt ?? null,
        ...quotaColumns(input.quota),
      });
      const meta = { key: key.id, scopes: scopes.join(','), ...quotaMeta(input.quota) };
      const of = user === undefined ? { tenantId } : { tenantId, userId: user.id };
      await this.#audit.record(actor, { event: 'key_created', outcome: 'ok', ...of, meta }, tx);
      return key;
    });
    this.#rows.changed(created.id);
    return created;
  }

  /** Creates the first key; returns undefined if a key already exists. */
  async createFirst(): Promise<string | undefined> {
    const [any] = await this.#db.select({ id: apiKeys.id }).from(apiKeys).limit(1);
    if (any) return undefined;
    return (await this.create({ name: 'first start', scopes: FULL_SCOPES })).key;
  }

  /** Lists keys, newest first, with their usage. `next` is the place of the last one if there are more. */
  async list(
    filter: KeyFilter = {},
  ): Promise<{ keys: (ApiKeyInfo & { readonly used_this_month: UseCount })[]; next: Place | undefined }> {
    const { limit = Infinity } = filter;
    const found = await pageOfKeys(this.#db, filter);
    const used = await this.use.thisMonth();
    const usedBy = ({ countedAs, id }: KeyRow) => used.get(countedAs ?? id) ?? { calls: 0, searches: 0 };
    const last = found.length > limit ? found[limit - 1] : undefined;
    return {
      keys: found
        .slice(0, limit)
        .map(({ row, user }) => Object.assign(keyInfo(row, user), { used_this_month: usedBy(row) })),
      next: last && { createdAt: last.createdAt, id: last.row.id },
    };
  }

  /**
   * Renames a key or changes its quota, which it shares with its rotated successors. Omitted fields stay unchanged.
   * @throws SwitchboardError `key_not_found`
   */
  async change(
    id: string,
    { name, quota }: { readonly name?: string | undefined; readonly quota?: QuotaChange | undefined },
    actor: Partial<Actor> = {},
  ): Promise<ApiKeyInfo> {
    const columns = quotaColumns(quota);
    const hasColumns = Object.keys(columns).length > 0;
    const changed = [id];
    const after = await this.#db.transaction(async tx => {
      const { row: before, user: seen } = await this.#require(tx, id);
      await lockLine(tx, before);
      if (name === undefined && !hasColumns) return keyInfo(before, seen);
      if (name !== undefined) await tx.update(apiKeys).set({ name }).where(eq(apiKeys.id, id));
      if (hasColumns) {
        const first = before.countedAs ?? id;
        const isOfLine = or(eq(apiKeys.id, first), eq(apiKeys.countedAs, first));
        const line = await tx.update(apiKeys).set(columns).where(isOfLine).returning({ id: apiKeys.id });
        changed.push(...line.map(one => one.id));
      }
      const { row, user } = await this.#require(tx, id);
      const meta = { key: id, ...(name === undefined ? {} : { renamed: true }), ...quotaMeta(quota) };
      await this.#audit.record(actor, { event: 'key_changed', outcome: 'ok', ...ownerOf(row), meta }, tx);
      return keyInfo(row, user);
    });
    for (const one of changed) this.#rows.changed(one);
    return after;
  }

  /**
   * Creates a successor of a key, with its tenant, name, scopes, user, quota and expiry. The old key stays valid for the
   * overlap, but never beyond its own expiry.
   * @throws SwitchboardError `key_not_found`, or `invalid_request` for a revoked or expired key
   */
  async rotate(
    id: string,
    overlapMs: number,
    actor: Partial<Actor> = {},
  ): Promise<NewApiKey & { readonly replaces: ApiKeyInfo }> {
    const rotated = await this.#db.transaction(async tx => {
      const { row: seen } = await this.#require(tx, id);
      // Locks the user first, like every transaction on a user's data, so that a concurrent revocation sees the new key.
      if (seen.userId !== null) await lockUser(tx, seen.tenantId, seen.userId);
      await lockLine(tx, seen);
      const { row } = await this.#require(tx, id);
      if (row.clientId !== null)
        throw new SwitchboardError(
          'invalid_request',
          `${id} stands for a sign-in of ${row.name}, which renews its own tokens. Revoke it to end the sign-in.`,
        );
      if (!this.#isLive(row))
        throw new SwitchboardError(
          'invalid_request',
          `The API key ${id} was revoked or has expired. Create a new key instead.`,
        );
      const expiresAt = new Date(
        Math.min(this.#clock.now() + overlapMs, row.expiresAt?.getTime() ?? Infinity),
      );
      await tx.update(apiKeys).set({ expiresAt }).where(eq(apiKeys.id, id));
      const { name, tenantId, scopes, userId, userEpoch, monthlyCalls, monthlySearches } = row;
      const created = await this.#insert(tx, {
        name,
        tenantId,
        scopes,
        userId,
        userEpoch,
        monthlyCalls,
        monthlySearches,
        expiresAt: row.expiresAt,
        countedAs: row.countedAs ?? id,
      });
      const old = await this.#require(tx, id);
      const meta = { key: id, by: created.id, overlap_sec: Math.round(overlapMs / 1000) };
      await this.#audit.record(actor, { event: 'key_rotated', outcome: 'ok', ...ownerOf(row), meta }, tx);
      return { ...created, replaces: keyInfo(old.row, old.user) };
    });
    this.#rows.changed(id);
    return rotated;
  }

  /** Revokes a key, in this process immediately. Revoking twice keeps the first time. @throws SwitchboardError `key_not_found` */
  async revoke(id: string, actor: Partial<Actor> = {}): Promise<ApiKeyInfo> {
    const { row, user } = await this.#db.transaction(async tx => {
      const [ended] = await tx
        .update(apiKeys)
        .set({ revokedAt: sql`now()` })
        .where(and(eq(apiKeys.id, id), isNull(apiKeys.revokedAt)))
        .returning({ tenantId: apiKeys.tenantId, userId: apiKeys.userId });
      if (ended) {
        const meta = { key: id };
        await this.#audit.record(actor, { event: 'key_revoked', outcome: 'ok', ...ownerOf(ended), meta }, tx);
      }
      return this.#require(tx, id);
    });
    this.#rows.changed(id);
    return keyInfo(row, user);
  }

  /** Calls a listener whenever a key may have ended, also more than once. Returns a function that ends this. */
  watch(id: string, listener: () => void): () => void {
    return this.#watch.watch(id, listener);
  }

  /** Discards what this process has cached of a key that was revoked with its user. */
  forget(id: string): void {
    this.#rows.changed(id);
  }

  /** Waits for pending writes. */
  async close(): Promise<void> {
    await Promise.all([this.#lastUsed.close(), this.use.close(), this.#watch.close()]);
  }

  #select(db: Database) {
    return db
      .select({ row: apiKeys, user: users.externalId })
      .from(apiKeys)
      .leftJoin(users, eq(users.id, apiKeys.userId));
  }

  async #require(db: Database, id: string): Promise<{ row: KeyRow; user: string | null }> {
    const [found] = await this.#select(db).where(eq(apiKeys.id, id));
    if (!found) throw new SwitchboardError('key_not_found', `No API key has the id ${quoted(id)}.`);
    return found;
  }

  async #insert(tx: Database, values: Omit<typeof apiKeys.$inferInsert, 'id' | 'hash'>): Promise<NewApiKey> {
    const { key, ...secret } = generateApiKey();
    await tx.insert(apiKeys).values({ ...values, ...secret });
    const { row, user } = await this.#require(tx, secret.id);
    return { ...keyInfo(row, user), key };
  }

  #isLive(row: KeyRow): boolean {
    return row.revokedAt === null && (row.expiresAt === null || row.expiresAt.getTime() > this.#clock.now());
  }
}

const unauthorized = () => new SwitchboardError('unauthorized', 'Missing or invalid API key.');

/** Returns the tenant and the user of a key, for the audit log. */
const ownerOf = ({ tenantId, userId }: Pick<KeyRow, 'tenantId' | 'userId'>) =>
  userId === null ? { tenantId } : { tenantId, userId };

/** Returns the holder of a key, with its quota. */
function principalOf(row: KeyRow): Principal {
  const { userId, userEpoch, monthlyCalls, monthlySearches, countedAs } = row;
  const quota: Quota = {
    ...(monthlyCalls === null ? {} : { calls: monthlyCalls }),
    ...(monthlySearches === null ? {} : { searches: monthlySearches }),
  };
  return {
    tenantId: row.tenantId,
    keyId: row.id,
    scopes: new Set(row.scopes),
    ...(userId === null || userEpoch === null ? {} : { subject: { userId, epoch: userEpoch } }),
    ...(Object.keys(quota).length === 0 ? {} : { quota }),
    ...(countedAs === null ? {} : { countedAs }),
  };
}

/** A key's row, with its holder once it was asked for. */
type CachedKey = KeyRow & { principal?: Principal };

/** Caches the rows of API keys briefly, so that not every request queries the database. */
class KeyRows {
  readonly #db: Database;
  readonly #clock: Clock;
  readonly #rows: LRUCache<string, CachedKey>;
  #ids: { readonly atMs: number; readonly ids: ReadonlySet<string> } | undefined;
  readonly #readingIds = new SingleFlight<ReadonlySet<string>>();
  readonly #onChange: (id: string) => void;
  #changes = 0;

  constructor(db: Database, clock: Clock, onChange: (id: string) => void) {
    this.#db = db;
    this.#clock = clock;
    this.#onChange = onChange;
    this.#rows = new LRUCache({
      max: 10_000,
      ttl: CACHE_MS,
      // A clock that is set back must not keep a revoked key valid.
      perf: { now: () => monotonicMs(clock) },
      ttlResolution: 0,
    });
  }

  /** Returns the row of a key that was read within the last two seconds. */
  cached(id: string): CachedKey | undefined {
    return this.#rows.get(id);
  }

  /**
   * Reads the row of a key. After too many wrong keys from an address, its further keys share one query every two seconds,
   * for the list of existing ids; a valid key is still found. Operators create keys, so there are thousands, not millions.
   */
  async find(id: string, isGuarded: () => Promise<boolean>): Promise<CachedKey | undefined> {
    if ((await isGuarded()) && !(await this.#knownIds()).has(id)) return undefined;
    const changes = this.#changes;
    const [row] = await this.#db.select().from(apiKeys).where(eq(apiKeys.id, id));
    // A row read before a revocation committed must not enter the cache after it.
    if (row && changes === this.#changes) this.#rows.set(id, row);
    return row;
  }

  /** Discards the cached row of a key and the list of ids. */
  changed(id: string): void {
    this.#changes++;
    this.#ids = undefined;
    this.#rows.delete(id);
    this.#onChange(id);
  }

  async #knownIds(): Promise<ReadonlySet<string>> {
    if (this.#ids && monotonicMs(this.#clock) - this.#ids.atMs < CACHE_MS) return this.#ids.ids;
    const changes = this.#changes;
    // A caller after a change must not join an earlier read, which would miss the new key.
    return this.#readingIds.run(String(changes), async () => {
      const atMs = monotonicMs(this.#clock);
      const rows = await this.#db.select({ id: apiKeys.id }).from(apiKeys);
      const ids = new Set(rows.map(row => row.id));
      if (changes === this.#changes) this.#ids = { atMs, ids };
      return ids;
    });
  }
}

/**
 * Locks a key and the first one of its line, which holds the shared quota, so that no other transaction can extend or change
 * the line.
 */
async function lockLine(tx: Database, { id, countedAs }: KeyRow): Promise<void> {
  // Always locks the first key of the line first; a fixed order prevents deadlocks.
  for (const one of [countedAs ?? id, id])
    await tx.select({ id: apiKeys.id }).from(apiKeys).where(eq(apiKeys.id, one)).for('update');
}
