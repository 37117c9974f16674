import { and, eq, gte, lt } from 'drizzle-orm';
import type { Clock } from '../../infra/clock.ts';
import type { Database } from '../../infra/database.ts';
import type { Log } from '../../infra/log.ts';
import { purgeWhere } from '../purge.ts';
import { queryLog as table } from '../schema.ts';

const FLUSH_INTERVAL_MS = 1_000;
const BATCH_ROWS = 100;
const MAX_BUFFERED_ROWS = 10_000;
const PURGE_INTERVAL_MS = 3_600_000;
const DAY_MS = 86_400_000;
/** How long a search, and what became of it, is kept and can be referred to. */
export const RETENTION_DAYS = 30;

/** The time before which nothing is kept. */
export const retainedSince = (clock: Clock, days = RETENTION_DAYS): Date =>
  new Date(clock.now() - days * DAY_MS);

/** Whether it looks like an id of ours: no other need be looked for. */
export const isQueryLogId = (text: string): boolean => /^qry_[0-9A-Za-z]{22}$/.test(text);

/** Without what Postgres cannot store, which must not keep the rows around it from being written. */
export const storable = (text: string): string => text.toWellFormed().replaceAll('\0', '\uFFFD');

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
    this.#buffer.push({ ...query, query: storable(query.query), createdAt: new Date(this.#clock.now()) });
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

  /** The servers that the answer of a search had; undefined where the tenant has made none of that id, or too long ago. */
  async answerOf(id: string, tenantId: string): Promise<readonly string[] | undefined> {
    if (!isQueryLogId(id)) return undefined;
    const since = retainedSince(this.#clock);
    const isIt = (row: LoggedQuery) => row.id === id && row.tenantId === tenantId;
    const buffered = this.#buffer.find(isIt);
    if (buffered) return buffered.serverIds;
    // Its row may be on its way; of a write that fails the rows are in the buffer again.
    await this.#flushing;
    const [stored] = await this.#db
      .select({ serverIds: table.serverIds })
      .from(table)
      .where(and(eq(table.id, id), eq(table.tenantId, tenantId), gte(table.createdAt, since)));
    return (stored ?? this.#buffer.find(isIt))?.serverIds;
  }

  /** Deletes rows older than that. Resolves to the number of rows deleted. */
  purge(olderThanDays = RETENTION_DAYS): Promise<number> {
    return purgeWhere(this.#db, table, lt(table.createdAt, retainedSince(this.#clock, olderThanDays)));
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
