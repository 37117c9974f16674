import { eq } from 'drizzle-orm';
import { LRUCache } from 'lru-cache';
import type { Clock } from '../../platform/clock.ts';
import type { Database } from '../../platform/database/database.ts';
import { SingleFlight } from '../../platform/single-flight.ts';
import { apiKeys } from './schema.ts';

export type KeyRow = typeof apiKeys.$inferSelect;

/** How long a process may go on with what it read and another process may have changed (DESIGN §7). */
const CACHE_MS = 2_000;

/** The rows of API keys, kept for a moment so that not every request asks the database. */
export class KeyRows {
  readonly #db: Database;
  readonly #clock: Clock;
  readonly #rows: LRUCache<string, KeyRow>;
  #ids: { readonly atMs: number; readonly ids: ReadonlySet<string> } | undefined;
  readonly #readingIds = new SingleFlight<ReadonlySet<string>>();
  #changes = 0;

  constructor(db: Database, clock: Clock) {
    this.#db = db;
    this.#clock = clock;
    this.#rows = new LRUCache({
      max: 10_000,
      ttl: CACHE_MS,
      perf: { now: () => clock.now() },
      ttlResolution: 0,
    });
  }

  /**
   * `isGuarded` tells of an address that has tried too many wrong keys: its next ones cost no query each, but all of them
   * together one every two seconds, for the ids that exist; and a good key is found all the same. Keys are made by
   * operators: there are thousands of them, not millions.
   */
  async find(id: string, isGuarded: () => Promise<boolean>): Promise<KeyRow | undefined> {
    const cached = this.#rows.get(id);
    if (cached) return cached;
    if ((await isGuarded()) && !(await this.#knownIds()).has(id)) return undefined;
    const changes = this.#changes;
    const [row] = await this.#db.select().from(apiKeys).where(eq(apiKeys.id, id));
    // A row read before a revocation committed must not come back into the cache after it.
    if (row && changes === this.#changes) this.#rows.set(id, row);
    return row;
  }

  /** What was read of this key, or of all of them, is out of date. */
  changed(id: string): void {
    this.#changes++;
    this.#ids = undefined;
    this.#rows.delete(id);
  }

  async #knownIds(): Promise<ReadonlySet<string>> {
    if (this.#ids && Math.abs(this.#clock.now() - this.#ids.atMs) < CACHE_MS) return this.#ids.ids;
    const changes = this.#changes;
    // Not joined by who comes after a change: the key that was just made would be missing.
    return this.#readingIds.run(String(changes), async () => {
      const atMs = this.#clock.now();
      const rows = await this.#db.select({ id: apiKeys.id }).from(apiKeys);
      const ids = new Set(rows.map(row => row.id));
      if (changes === this.#changes) this.#ids = { atMs, ids };
      return ids;
    });
  }
}

/** A quota is that of a whole line of rotations: nobody else may lengthen the line, or change it, until the transaction's end. */
export async function lockLine(tx: Database, { id, countedAs }: KeyRow): Promise<void> {
  // Its first key before any other, so that nobody waits for whoever waits for them.
  for (const one of [countedAs ?? id, id])
    await tx.select({ id: apiKeys.id }).from(apiKeys).where(eq(apiKeys.id, one)).for('update');
}
