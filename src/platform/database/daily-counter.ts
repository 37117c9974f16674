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

/**
 * Returns the date of a time, such as `2026-11-21` (UTC). Caches the last result, because formatting a date
 * is slower than counting.
 */
export function dayOf(timeMs: number): string {
  const number = Math.floor(timeMs / DAY_MS);
  if (today.number !== number) today = { number, text: new Date(number * DAY_MS).toISOString().slice(0, 10) };
  return today.text;
}

interface CounterParts<Row> {
  readonly db: Database;
  readonly clock: Clock;
  readonly log: Log;
  /** For the log, such as `key usage`. */
  readonly what: string;
  readonly table: PgTable & { readonly day: PgColumn };
  /** Rows of older days are deleted. */
  readonly keptDays: number;
  /** Identifies a counter, without the day. */
  readonly keyOf: (row: Row) => string;
  readonly sum: (earlier: Row, later: Row) => Row;
  /** Adds rows to those in the database, all or none. */
  readonly write: (rows: Row[]) => PromiseLike<unknown>;
  readonly onWritten?: (rows: readonly Row[]) => void;
  readonly onTick?: () => void;
}

/**
 * Counts by key and day (UTC), first in memory. Counts are written within a second (`WriteBehind`), so a
 * killed process loses at most the last second. Processes on one database add to each other's rows.
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
        // Processes that write the same rows in different orders would deadlock, so the order is fixed.
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

  /** Returns the counts of a key on a day that are not yet written; complete only within `read`. */
  unwritten(day: string, key: string): Row | undefined {
    return this.#pending.find(`${day} ${key}`);
  }

  /** Writes the pending counts; failed writes are retried with the next ones. Never rejects. */
  flush(): Promise<void> {
    return this.#pending.flush();
  }

  /** Writes the pending counts, then reads while nothing is being written: a count is either stored or `unwritten` then. */
  async read<T>(work: () => Promise<T>): Promise<T> {
    let reading: Promise<T> | undefined;
    await this.#pending.afterFlush(async () => {
      reading = work();
      await reading.catch(() => {});
    });
    if (!reading) throw new Error('nothing was read');
    return reading;
  }

  /** Deletes expired rows. Resolves to their number. */
  purge(): Promise<number> {
    const { db, clock, table, keptDays } = this.#parts;
    return purgeWhere(db, table, lt(table.day, dayOf(clock.now() - keptDays * DAY_MS)));
  }

  close(): Promise<void> {
    return this.#pending.close();
  }

  /** Stops the timers: nothing is written or deleted automatically any more. */
  stop(): void {
    this.#pending.stop();
  }
}

/**
 * Counts of one day that are added up before they are handed on, such as to a counter: handing on each by itself would be a
 * measurable part of a proxied call.
 */
export class FreshCounts<Counts> {
  readonly #handOn: (counts: Counts, day: number) => void;
  readonly #counts = new Map<string, Counts>();
  #day = Number.NaN;

  /** @param handOn receives the counts of each key and their day; must not throw */
  constructor(handOn: (counts: Counts, day: number) => void) {
    this.#handOn = handOn;
  }

  /**
   * Returns the counts of a key on a day, to be added to at once. Hands those of another day on.
   * @param day in days since the epoch
   */
  of(key: string, day: number, create: () => Counts): Counts {
    if (day !== this.#day) {
      this.handOn();
      this.#day = day;
    }
    let counts = this.#counts.get(key);
    if (counts === undefined) this.#counts.set(key, (counts = create()));
    return counts;
  }

  /** Hands on what was counted since the last time. */
  handOn(): void {
    if (this.#counts.size === 0) return;
    for (const counts of this.#counts.values()) this.#handOn(counts, this.#day);
    this.#counts.clear();
  }
}

/** For an upsert of counts: adds the row's own count to each column. */
export const addedUp = (columns: readonly PgColumn[]): Record<string, SQL> =>
  Object.fromEntries(columns.map(column => [column.name, sql`${column} + ${excluded(column.name)}`]));
