import { and, eq, gte, lt } from 'drizzle-orm';
import type { Clock } from '../../platform/time.ts';
import type { Database } from '../../platform/database/database.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { storable } from '../../platform/sanitize.ts';
import { purgeWhere } from '../../platform/database/delete-in-batches.ts';
import { queryLog as table } from './schema.ts';
import { BATCH_ROWS, WriteBehind } from '../../platform/database/write-behind.ts';

const MAX_BUFFERED_ROWS = 10_000;
const DAY_MS = 86_400_000;
/** The number of days for which a search and its outcomes are kept and can be referred to. */
export const RETENTION_DAYS = 30;

/** Returns the time before which everything is deleted. */
export const retainedSince = (clock: Clock, days = RETENTION_DAYS): Date =>
  new Date(clock.now() - days * DAY_MS);

/** Returns whether the text has the format of a query log id, so that others need no lookup. */
export const isQueryLogId = (text: string): boolean => /^qry_[0-9A-Za-z]{22}$/.test(text);

export interface LoggedQuery {
  /** `qry_…` */
  readonly id: string;
  readonly tenantId: string;
  readonly keyId: string;
  readonly query: string;
  /** The result, best first. */
  readonly serverIds: readonly string[];
  readonly latencyMs: number;
  readonly cacheHit: boolean;
}

type Row = LoggedQuery & { readonly createdAt: Date };

/** Writes a row per search, without making the search wait for the database. */
export class QueryLog {
  readonly #db: Database;
  readonly #clock: Clock;
  readonly #rows: WriteBehind<Row>;

  constructor({ db, clock, log }: { db: Database; clock: Clock; log: Log }) {
    this.#db = db;
    this.#clock = clock;
    this.#rows = new WriteBehind<Row>({
      clock,
      log,
      what: 'query log',
      keyOf: ({ id }) => id,
      maxRows: MAX_BUFFERED_ROWS,
      writeBatch: async rows =>
        void (await db
          .insert(table)
          .values([...rows])
          .onConflictDoNothing()),
      purge: () => this.purge(),
    });
  }

  /** Never throws and never waits. While the database is down, the oldest rows are dropped. */
  record(query: LoggedQuery): void {
    this.#rows.put({ ...query, query: storable(query.query), createdAt: new Date(this.#clock.now()) });
    if (this.#rows.size === BATCH_ROWS) void this.flush();
  }

  /** Writes the buffered rows; failed writes are retried with the next ones. */
  flush(): Promise<void> {
    return this.#rows.flush();
  }

  /** Returns the servers that a search returned; undefined if the tenant made no such search, or too long ago. */
  async answerOf(id: string, tenantId: string): Promise<readonly string[] | undefined> {
    if (!isQueryLogId(id)) return undefined;
    const since = retainedSince(this.#clock);
    const buffered = () => {
      const row = this.#rows.find(id);
      return row?.tenantId === tenantId ? row.serverIds : undefined;
    };
    const found = buffered();
    if (found) return found;
    // Its row may be being written; if that fails, it is in the buffer again.
    await this.#rows.settled();
    const [stored] = await this.#db
      .select({ serverIds: table.serverIds })
      .from(table)
      .where(and(eq(table.id, id), eq(table.tenantId, tenantId), gte(table.createdAt, since)));
    return stored?.serverIds ?? buffered();
  }

  /** Deletes older rows. Resolves to their number. */
  purge(olderThanDays = RETENTION_DAYS): Promise<number> {
    return purgeWhere(this.#db, table, lt(table.createdAt, retainedSince(this.#clock, olderThanDays)));
  }

  close(): Promise<void> {
    return this.#rows.close();
  }
}
