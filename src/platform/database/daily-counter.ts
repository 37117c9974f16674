import { lt, sql, type SQL } from 'drizzle-orm';
import type { PgColumn, PgTable } from 'drizzle-orm/pg-core';
import type { Clock } from '../time.ts';
import type { Log } from '../telemetry/log.ts';
import { excluded } from './columns.ts';
import type { Database } from './database.ts';
import { purgeWhere } from './delete-in-batches.ts';
import { WriteBehind } from './write-behind.ts';

export const DAY_MS = 86_400_000;

let today = { number: Number.NaN, text: '' };

/** Returns the date of a time, `2026-11-21` (UTC). The last one is kept: to write a date takes longer than to count. */
export function dayOf(timeMs: number): string {
  const number = Math.floor(timeMs / DAY_MS);
  if (today.number !== number) today = { number, text: new Date(number * DAY_MS).toISOString().slice(0, 10) };
  return today.text;
}

interface CounterParts<Row> {
  readonly db: Database;
  readonly clock: Clock;
  readonly log: Log;
  /** For the log, such as `use of keys`. */
  readonly what: string;
  readonly table: PgTable & { readonly day: PgColumn };
  /** Rows of older days are deleted. */
  readonly keptDays: number;
  /** Names what is counted, without the day. */
  readonly keyOf: (row: Row) => string;
  readonly sum: (earlier: Row, later: Row) => Row;
  /** Adds rows to those of the database; all of them or none. */
  readonly write: (rows: Row[]) => PromiseLike<unknown>;
  readonly onWritten?: (rows: readonly Row[]) => void;
  readonly onTick?: () => void;
}

/**
 * Counts by key and day (UTC), in memory first. Counts are written within a second (`WriteBehind`), so a kill loses at most the
 * last second of them. Processes on one database add to each other's rows.
 */
export class DailyCounter<Row extends { readonly day: string }> {
  readonly #parts: CounterParts<Row>;
  readonly #pending: WriteBehind<Row>;

  constructor(parts: CounterParts<Row>) {
    this.#parts = parts;
    const { clock, log, what, keyOf, sum, write, onWritten, onTick } = parts;
    const rowKey = (row: Row) => `${row.day} ${keyOf(row)}`;
    this.#pending = new WriteBehind<Row>({
      clock,
      log,
      what,
      keyOf: rowKey,
      merge: sum,
      writeBatch: async rows => {
        // In one order everywhere: processes that write the same rows in different orders would lock each other out.
        await write(rows.toSorted((a, b) => (rowKey(a) < rowKey(b) ? -1 : 1)));
      },
      purge: () => this.purge(),
      ...(onWritten && { onWritten }),
      ...(onTick && { onTick }),
    });
  }

  /** Never throws and never waits. */
  add(row: Row): void {
    this.#pending.put(row);
  }

  /** Returns the counts of a key on a day that are still to be written; complete only within `read`. */
  unwritten(day: string, key: string): Row | undefined {
    return this.#pending.find(`${day} ${key}`);
  }

  /** Writes what has been counted; what could not be written is kept for the next time. Never rejects. */
  flush(): Promise<void> {
    return this.#pending.flush();
  }

  /** Writes what has been counted, then reads while nothing is being written: a count is either stored or `unwritten` then. */
  async read<T>(work: () => Promise<T>): Promise<T> {
    let reading: Promise<T> | undefined;
    await this.#pending.afterFlush(async () => {
      reading = work();
      await reading.catch(() => {});
    });
    if (!reading) throw new Error('nothing was read');
    return reading;
  }

  /** Deletes rows that are past their time. Resolves to their number. */
  purge(): Promise<number> {
    const { db, clock, table, keptDays } = this.#parts;
    return purgeWhere(db, table, lt(table.day, dayOf(clock.now() - keptDays * DAY_MS)));
  }

  close(): Promise<void> {
    return this.#pending.close();
  }

  /** Writes and deletes nothing by itself any more. */
  stop(): void {
    this.#pending.stop();
  }
}

/** For an upsert of counts: each column with the row's own count added. */
export const addedUp = (columns: readonly PgColumn[]): Record<string, SQL> =>
  Object.fromEntries(columns.map(column => [column.name, sql`${column} + ${excluded(column.name)}`]));
