import { inArray, lt } from 'drizzle-orm';
import type { Clock } from '../../infra/clock.ts';
import type { Database } from '../../infra/database.ts';
import type { Log } from '../../infra/log.ts';
import { queryLog as table } from '../schema.ts';

const FLUSH_INTERVAL_MS = 1_000;
const BATCH_ROWS = 100;
const MAX_BUFFERED_ROWS = 10_000;
const PURGE_BATCH_ROWS = 1_000;
const PURGE_INTERVAL_MS = 3_600_000;
const DAY_MS = 86_400_000;

export interface LoggedQuery {
  /** `qry_…` */
  readonly id: string;
  readonly tenantId: string;
  readonly keyId: string;
  readonly query: string;
  /** The answer, best first. */
  readonly serverIds: readonly string[];
  readonly latencyMs: number;
  readonly cacheHit: boolean;
}

/** A row per search, written in batches: a search never waits for the database, a kill loses at most the last second. */
export class QueryLog {
  readonly #db: Database;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #timer: NodeJS.Timeout;
  #buffer: (LoggedQuery & { createdAt: Date })[] = [];
  #flushing: Promise<void> = Promise.resolve();
  #dropped = 0;
  #purgedAt = -Infinity;
  #purging: Promise<void> = Promise.resolve();

  constructor({ db, clock, log }: { db: Database; clock: Clock; log: Log }) {
    this.#db = db;
    this.#clock = clock;
    this.#log = log;
    this.#timer = setInterval(() => {
      void this.flush();
      this.#purgeNowAndThen();
    }, FLUSH_INTERVAL_MS).unref();
  }

  /** Never throws and never waits. While the database is down the oldest rows give way. */
  record(query: LoggedQuery): void {
    // What Postgres cannot store must not keep the rows around it from being written.
    const text = query.query.toWellFormed().replaceAll('\0', '\uFFFD');
    this.#buffer.push({ ...query, query: text, createdAt: new Date(this.#clock.now()) });
    this.#bound();
    if (this.#buffer.length === BATCH_ROWS) void this.flush();
  }

  /** Writes what is buffered; rows of a failed write are kept for the next one. */
  flush(): Promise<void> {
    this.#flushing = this.#flushing.then(async () => {
      while (this.#buffer.length > 0) {
        const batch = this.#buffer.splice(0, BATCH_ROWS);
        try {
          await this.#db.insert(table).values(batch).onConflictDoNothing();
        } catch (error) {
          this.#buffer.unshift(...batch);
          this.#bound();
          this.#log.warn(
            { err: error, rows: this.#buffer.length, dropped: this.#dropped },
            'query log not written',
          );
          return;
        }
      }
      this.#dropped = 0;
    });
    return this.#flushing;
  }

  /** Deletes rows older than that, in batches. Resolves to the number of rows deleted. */
  async purge(olderThanDays = 30): Promise<number> {
    const horizon = new Date(this.#clock.now() - olderThanDays * DAY_MS);
    const old = this.#db
      .select({ id: table.id })
      .from(table)
      .where(lt(table.createdAt, horizon))
      .limit(PURGE_BATCH_ROWS);
    for (let total = 0; ;) {
      const deleted = await this.#db.delete(table).where(inArray(table.id, old)).returning({ id: table.id });
      total += deleted.length;
      if (deleted.length < PURGE_BATCH_ROWS) return total;
    }
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
    await this.flush();
    await this.#purging;
  }

  #purgeNowAndThen(): void {
    const now = this.#clock.now();
    if (now - this.#purgedAt < PURGE_INTERVAL_MS) return;
    this.#purgedAt = now;
    this.#purging = this.purge()
      .then(() => {})
      .catch((error: unknown) => this.#log.warn({ err: error }, 'query log not purged'));
  }

  #bound(): void {
    const excess = this.#buffer.length - MAX_BUFFERED_ROWS;
    if (excess <= 0) return;
    this.#buffer.splice(0, excess);
    if (this.#dropped === 0)
      this.#log.warn('query log full: the database does not take rows, the oldest are dropped');
    this.#dropped += excess;
  }
}
