import { and, desc, eq, isNull, or, sql } from 'drizzle-orm';
import { LRUCache } from 'lru-cache';
import { SwitchboardError } from '../../errors.ts';
import { quoted } from '../../platform/sanitize.ts';
import type { Clock } from '../../platform/clock.ts';
import type { Database } from '../../platform/database/database.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { Metrics } from '../../platform/telemetry/metrics.ts';
import { SCOPES, type Scope, type Subject } from './caller.ts';
import { Audit, type Actor } from './audit.ts';
import { ensureUser, lockUser, requireUserId } from './users.ts';
import { apiKeys, users } from './schema.ts';
import { generateApiKey, hashApiKey, idOfApiKey, sameHash } from './api-key.ts';
import {
  info,
  NO_LIMIT,
  ownerOf,
  quotaColumns,
  quotaMeta,
  quotaOf,
  scopesFor,
  subjectOf,
  type ApiKeyInfo,
  type NewApiKey,
  type NewKeyInput,
  type NewKeyRow,
  type QuotaChange,
} from './key-info.ts';
import { KeyRows, lockLine, type KeyRow } from './key-rows.ts';
import { KeyUse, type Quota, type UseCount } from './quota.ts';
import { ensureTenant, LOCAL_TENANT, Tenants } from './tenants.ts';

/** The id under which the key of `SWITCHBOARD_API_KEY` appears in logs and limits. */
const ENVIRONMENT_KEY = 'environment';
const LAST_USED_EVERY_MS = 60_000;

/** Who holds a key. */
export interface Principal {
  readonly tenantId: string;
  readonly keyId: string;
  readonly scopes: ReadonlySet<Scope>;
  /** The one end user that a key bound to a user acts for. */
  readonly subject?: Subject;
  /** What the key may use in a month; absent: no limit. */
  readonly quota?: Quota;
  /** For a key that came by rotation: the one under which its use is counted. */
  readonly countedAs?: string;
}

const ENVIRONMENT_PRINCIPAL: Principal = {
  tenantId: LOCAL_TENANT,
  keyId: ENVIRONMENT_KEY,
  scopes: new Set(SCOPES),
};

interface ApiKeysOptions {
  readonly db: Database;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics?: Metrics;
  readonly environmentKey: string | undefined;
  /** Whether other processes work on the same database. */
  readonly shared?: boolean;
}

/** Each change is recorded in the audit log, with who made it; without an actor it is Switchboard itself. */
export class ApiKeys {
  readonly tenants: Tenants;
  /** What is counted against the keys' quotas. */
  readonly use: KeyUse;
  readonly #audit: Audit;
  readonly #db: Database;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #environmentHash: Uint8Array | undefined;
  readonly #rows: KeyRows;
  readonly #writes = new Set<Promise<void>>();
  readonly #touchedAt = new LRUCache<string, number>({ max: 10_000 });

  constructor({ db, clock, log, metrics, environmentKey, shared = false }: ApiKeysOptions) {
    this.#audit = new Audit(log, metrics);
    this.tenants = new Tenants(db, this.#audit);
    this.use = new KeyUse({ db, clock, log, metrics, shared });
    this.#db = db;
    this.#clock = clock;
    this.#log = log;
    this.#environmentHash = environmentKey === undefined ? undefined : hashApiKey(environmentKey);
    this.#rows = new KeyRows(db, clock);
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
    return {
      tenantId: row.tenantId,
      keyId: row.id,
      scopes: new Set(row.scopes),
      ...subjectOf(row),
      ...quotaOf(row),
    };
  }

  /**
   * A new key; its tenant, and the user it acts for, are made when they are new.
   * @throws SwitchboardError `invalid_request`: a user id of a wrong form, or a scope that acts for others.
   */
  async create(input: NewKeyInput, actor: Partial<Actor> = {}): Promise<NewApiKey> {
    const { name, tenantId = LOCAL_TENANT, userId } = input;
    const externalId = userId === undefined ? undefined : requireUserId(userId);
    const scopes = scopesFor(input.scopes, { tenantId, isUsers: externalId !== undefined });
    const created = await this.#db.transaction(async tx => {
      await ensureTenant(tx, tenantId);
      const user = externalId === undefined ? undefined : await ensureUser(tx, tenantId, externalId);
      const expiresAt = input.expiresAt ?? null;
      const quota = { ...NO_LIMIT, ...quotaColumns(input.quota) };
      const values = { name, tenantId, scopes: [...scopes], expiresAt, countedAs: null, ...quota };
      const key = await this.#insert(tx, { ...values, ...ownerOf(user) });
      const meta = { key: key.id, scopes: scopes.join(','), for_user: user !== undefined };
      await this.#audit.record(tx, actor, { event: 'key_created', outcome: 'ok', tenantId, meta });
      return key;
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

  /** The newest first, with what has been used of the quotas. */
  async list(): Promise<(ApiKeyInfo & { readonly used_this_month: UseCount })[]> {
    const found = await this.#select(this.#db).orderBy(desc(apiKeys.createdAt), apiKeys.id);
    const used = await this.use.thisMonth();
    const usedBy = ({ countedAs, id }: KeyRow) => used.get(countedAs ?? id) ?? { calls: 0, searches: 0 };
    return found.map(({ row, user }) => Object.assign(info(row, user), { used_this_month: usedBy(row) }));
  }

  /**
   * What is left out stays as it is. The quota is that of the whole line of rotations.
   * @throws SwitchboardError `key_not_found`.
   */
  async change(
    id: string,
    { name, quota }: { readonly name?: string | undefined; readonly quota?: QuotaChange | undefined },
    actor: Partial<Actor> = {},
  ): Promise<ApiKeyInfo> {
    const columns = quotaColumns(quota);
    const { changed, after } = await this.#db.transaction(async tx => {
      const { row: before, user: seen } = await this.#require(tx, id);
      await lockLine(tx, before);
      if (name === undefined && Object.keys(columns).length === 0)
        return { changed: [], after: info(before, seen) };
      const first = before.countedAs ?? id;
      if (name !== undefined) await tx.update(apiKeys).set({ name }).where(eq(apiKeys.id, id));
      const isOfLine = or(eq(apiKeys.id, first), eq(apiKeys.countedAs, first));
      const line =
        Object.keys(columns).length === 0
          ? []
          : await tx.update(apiKeys).set(columns).where(isOfLine).returning({ id: apiKeys.id });
      const { row, user } = await this.#require(tx, id);
      const meta = { key: id, ...(name === undefined ? {} : { renamed: true }), ...quotaMeta(columns) };
      const { tenantId } = row;
      await this.#audit.record(tx, actor, { event: 'key_changed', outcome: 'ok', tenantId, meta });
      return { changed: [id, ...line.map(one => one.id)], after: info(row, user) };
    });
    for (const one of changed) this.#rows.changed(one);
    return after;
  }

  /**
   * A new key in place of an old one: same tenant, name, scopes, user and expiry. The old one goes on for the overlap, never
   * for longer than it would have.
   * @throws SwitchboardError `key_not_found`, or `invalid_request` for a key that is over already.
   */
  async rotate(
    id: string,
    overlapMs: number,
    actor: Partial<Actor> = {},
  ): Promise<NewApiKey & { readonly replaces: ApiKeyInfo }> {
    const rotated = await this.#db.transaction(async tx => {
      const { row: seen } = await this.#require(tx, id);
      // The user first, as every transaction on what a user has: a revocation meanwhile must see the new key.
      if (seen.userId !== null) await lockUser(tx, seen.tenantId, seen.userId);
      await lockLine(tx, seen);
      const { row } = await this.#require(tx, id);
      if (!this.#isLive(row))
        throw new SwitchboardError('invalid_request', `The API key ${id} is over. Make a new one instead.`);
      const end = Math.min(this.#clock.now() + overlapMs, row.expiresAt?.getTime() ?? Infinity);
      await tx
        .update(apiKeys)
        .set({ expiresAt: new Date(end) })
        .where(eq(apiKeys.id, id));
      const created = await this.#insert(tx, { ...row, countedAs: row.countedAs ?? id });
      const old = await this.#require(tx, id);
      const meta = { key: id, by: created.id, overlap_sec: Math.round(overlapMs / 1000) };
      const { tenantId } = row;
      await this.#audit.record(tx, actor, { event: 'key_rotated', outcome: 'ok', tenantId, meta });
      return { ...created, replaces: info(old.row, old.user) };
    });
    this.#rows.changed(id);
    return rotated;
  }

  /** Ends a key at once in this process. Revoking twice keeps the first time. @throws SwitchboardError `key_not_found`. */
  async revoke(id: string, actor: Partial<Actor> = {}): Promise<ApiKeyInfo> {
    const { row, user } = await this.#db.transaction(async tx => {
      const [ended] = await tx
        .update(apiKeys)
        .set({ revokedAt: sql`now()` })
        .where(and(eq(apiKeys.id, id), isNull(apiKeys.revokedAt)))
        .returning({ tenantId: apiKeys.tenantId });
      if (ended) {
        const meta = { key: id };
        await this.#audit.record(tx, actor, { event: 'key_revoked', outcome: 'ok', ...ended, meta });
      }
      return this.#require(tx, id);
    });
    this.#rows.changed(id);
    return info(row, user);
  }

  /** Waits for what is still being written. */
  async close(): Promise<void> {
    await Promise.all([...this.#writes, this.use.close()]);
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

  async #insert(
    tx: Database,
    { name, tenantId, scopes, userId, userEpoch, expiresAt, countedAs, ...quota }: NewKeyRow,
  ): Promise<NewApiKey> {
    const { id, key, hash } = generateApiKey();
    const { monthlyCalls, monthlySearches } = quota;
    const owner = { tenantId, userId, userEpoch };
    await tx
      .insert(apiKeys)
      .values({ id, hash, name, scopes, expiresAt, countedAs, monthlyCalls, monthlySearches, ...owner });
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

const unauthorized = () => new SwitchboardError('unauthorized', 'Missing or invalid API key.');
