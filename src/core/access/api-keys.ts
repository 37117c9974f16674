import { and, desc, eq, isNull, sql } from 'drizzle-orm';
import { LRUCache } from 'lru-cache';
import { SwitchboardError } from '../../errors.ts';
import type { Clock } from '../../infra/clock.ts';
import type { Database } from '../../infra/database.ts';
import type { Log } from '../../infra/log.ts';
import { SCOPES, type Scope } from '../caller.ts';
import { apiKeys, tenants } from '../schema.ts';
import { generateApiKey, hashApiKey, idOfApiKey, sameHash } from './api-key.ts';

export const LOCAL_TENANT = 'local';
/** The id under which the key of `SWITCHBOARD_API_KEY` appears in logs and limits. */
const ENVIRONMENT_KEY = 'environment';
/** How long a process may go on using a key's row without looking again (DESIGN §7). */
const CACHE_MS = 5_000;
const LAST_USED_EVERY_MS = 60_000;

export interface Identity {
  readonly tenantId: string;
  readonly keyId: string;
  readonly scopes: ReadonlySet<Scope>;
}

/** A key as an operator sees it: never the secret. */
export interface ApiKeyInfo {
  readonly id: string;
  readonly name: string;
  readonly tenant: string;
  readonly scopes: readonly Scope[];
  readonly created_at: string;
  readonly expires_at: string | null;
  readonly revoked_at: string | null;
  readonly last_used_at: string | null;
}

type Row = typeof apiKeys.$inferSelect;

export class ApiKeys {
  readonly #db: Database;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #environmentHash: Uint8Array | undefined;
  readonly #rows: LRUCache<string, Row>;
  readonly #writes = new Set<Promise<void>>();
  #revocations = 0;
  readonly #touchedAt = new LRUCache<string, number>({ max: 10_000 });

  constructor(options: { db: Database; clock: Clock; log: Log; environmentKey: string | undefined }) {
    this.#db = options.db;
    this.#clock = options.clock;
    this.#log = options.log;
    this.#environmentHash =
      options.environmentKey === undefined ? undefined : hashApiKey(options.environmentKey);
    this.#rows = new LRUCache({
      max: 10_000,
      ttl: CACHE_MS,
      perf: { now: () => options.clock.now() },
      ttlResolution: 0,
    });
  }

  /**
   * Who holds this key.
   * @throws SwitchboardError `unauthorized`, with one text for every reason, so that it tells an attacker nothing.
   */
  async authenticate(key: string | undefined): Promise<Identity> {
    if (key !== undefined && this.#environmentHash && sameHash(hashApiKey(key), this.#environmentHash)) {
      return { tenantId: LOCAL_TENANT, keyId: ENVIRONMENT_KEY, scopes: new Set(SCOPES) };
    }
    const id = key === undefined ? undefined : idOfApiKey(key);
    const row = id === undefined ? undefined : await this.#row(id);
    if (key === undefined || !row || !sameHash(hashApiKey(key), row.hash) || !this.#isLive(row)) {
      throw new SwitchboardError(
        'unauthorized',
        'Send a valid API key in the header X-API-Key. `switchboard keys create` makes one.',
      );
    }
    this.#touch(row.id);
    return { tenantId: row.tenantId, keyId: row.id, scopes: new Set(row.scopes) };
  }

  /** A new key of tenant `local`. The answer is the only place where the key itself is ever seen. */
  async create(input: {
    name: string;
    scopes: readonly Scope[];
    expiresAt?: Date;
  }): Promise<ApiKeyInfo & { key: string }> {
    const { id, key, hash } = generateApiKey();
    const row = await this.#db.transaction(async tx => {
      await tx.insert(tenants).values({ id: LOCAL_TENANT }).onConflictDoNothing();
      const [inserted] = await tx
        .insert(apiKeys)
        .values({
          id,
          tenantId: LOCAL_TENANT,
          name: input.name,
          hash,
          scopes: [...input.scopes],
          expiresAt: input.expiresAt ?? null,
        })
        .returning();
      return inserted;
    });
    if (!row) throw new Error('INSERT … RETURNING gave no row');
    return { ...info(row), key };
  }

  /** The first start's key: undefined when tenant `local` already has had one. */
  async createFirst(): Promise<string | undefined> {
    const [any] = await this.#db.select({ id: apiKeys.id }).from(apiKeys).limit(1);
    if (any) return undefined;
    return (await this.create({ name: 'first start', scopes: SCOPES })).key;
  }

  async list(): Promise<ApiKeyInfo[]> {
    return (await this.#db.select().from(apiKeys).orderBy(desc(apiKeys.createdAt), apiKeys.id)).map(info);
  }

  /** Ends a key at once in this process. Revoking twice keeps the first time. @throws SwitchboardError `key_not_found`. */
  async revoke(id: string): Promise<ApiKeyInfo> {
    await this.#db
      .update(apiKeys)
      .set({ revokedAt: sql`now()` })
      .where(and(eq(apiKeys.id, id), isNull(apiKeys.revokedAt)));
    this.#revocations++;
    this.#rows.delete(id);
    const [row] = await this.#db.select().from(apiKeys).where(eq(apiKeys.id, id));
    if (!row) throw new SwitchboardError('key_not_found', `No API key has the id ${JSON.stringify(id)}.`);
    return info(row);
  }

  /** Waits for what is still being written. */
  async close(): Promise<void> {
    await Promise.all(this.#writes);
  }

  async #row(id: string): Promise<Row | undefined> {
    const cached = this.#rows.get(id);
    if (cached) return cached;
    const revocations = this.#revocations;
    const [row] = await this.#db.select().from(apiKeys).where(eq(apiKeys.id, id));
    // A row read before a revocation committed must not come back into the cache after it.
    if (row && revocations === this.#revocations) this.#rows.set(id, row);
    return row;
  }

  #isLive(row: Row): boolean {
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

const info = (row: Row): ApiKeyInfo => ({
  id: row.id,
  name: row.name,
  tenant: row.tenantId,
  scopes: row.scopes,
  created_at: row.createdAt.toISOString(),
  expires_at: row.expiresAt?.toISOString() ?? null,
  revoked_at: row.revokedAt?.toISOString() ?? null,
  last_used_at: row.lastUsedAt?.toISOString() ?? null,
});
