import { LRUCache } from 'lru-cache';
import { monotonicMs, type Clock } from '../time.ts';
import { SerialQueue } from '../queues.ts';
import type { Log } from '../telemetry/log.ts';
import { reasonOf, ThrottledLog } from '../telemetry/throttled-log.ts';
import { whyFailed } from './database.ts';

const FLUSH_INTERVAL_MS = 1_000;
const PURGE_INTERVAL_MS = 3_600_000;
export const BATCH_ROWS = 100;

interface WriteBehindParts<Row> {
  readonly clock: Clock;
  readonly log: Log;
  /** Names the rows in the log, such as `query log`. */
  readonly what: string;
  /** Rows with the same key are merged. */
  readonly keyOf: (row: Row) => string;
  /** Merges two rows of one key. Default: the later row replaces the earlier. */
  readonly merge?: (earlier: Row, later: Row) => Row;
  /** The maximum number of pending rows; the oldest are dropped. By default there is no limit. */
  readonly maxRows?: number;
  /** Writes at most 100 rows, all or none. */
  readonly writeBatch: (rows: readonly Row[]) => Promise<void>;
  readonly onWritten?: (rows: readonly Row[]) => void;
  /** Deletes old rows. */
  readonly purge: () => Promise<unknown>;
  /** Runs every second, before anything is written. */
  readonly onTick?: () => void;
}

/**
 * Keeps rows in memory and writes them once a second, in batches: a killed process loses at most the last
 * second. Failed rows are retried with the next ones. Old rows are deleted at startup and once an hour.
 */
export class WriteBehind<Row> {
  readonly #parts: WriteBehindParts<Row>;
  readonly #timer: NodeJS.Timeout;
  #buffer = new Map<string, Row>();
  readonly #writing = new SerialQueue();
  readonly #warnings: ThrottledLog;
  #isFlushQueued = false;
  #dropped = 0;
  #purgedAtMs = -Infinity;
  #purging: Promise<unknown> = Promise.resolve();

  constructor(parts: WriteBehindParts<Row>) {
    this.#parts = parts;
    this.#warnings = new ThrottledLog(parts.log, parts.clock);
    this.#timer = setInterval(() => this.#tick(), FLUSH_INTERVAL_MS).unref();
  }

  /** Returns the number of pending rows. */
  get size(): number {
    return this.#buffer.size;
  }

  /** Never throws and never waits. */
  put(row: Row): void {
    this.#add(row);
    this.#bound();
  }

  /** Puts rows back, unless there is a later row with the same key. */
  keep(rows: readonly Row[]): void {
    if (rows.length === 0) return;
    const later = this.#buffer;
    this.#buffer = new Map(rows.map(row => [this.#parts.keyOf(row), row]));
    for (const row of later.values()) this.#add(row);
    this.#bound();
  }

  /** Returns the pending row with that key. A row that is being written is found in neither place until `settled`. */
  find(key: string): Row | undefined {
    return this.#buffer.get(key);
  }

  /** Resolves when nothing is being written. */
  async settled(): Promise<void> {
    await this.#writing.settled();
  }

  /** Writes the pending rows. Never rejects. */
  flush(): Promise<void> {
    return this.#writing.run(() => this.#write());
  }

  /** Writes the pending rows, then runs the work while nothing is written. The work must not reject. */
  afterFlush(work: () => Promise<void>): Promise<void> {
    return this.#writing.run(async () => {
      await this.#write();
      await work();
    });
  }

  async close(): Promise<void> {
    this.stop();
    await this.flush();
    await this.#purging;
  }

  /** Stops the timers: nothing is written automatically any more. */
  stop(): void {
    clearInterval(this.#timer);
  }

  #tick(): void {
    const { clock, log, what, purge, onTick } = this.#parts;
    onTick?.();
    if (this.#buffer.size > 0 && !this.#isFlushQueued) {
      this.#isFlushQueued = true;
      void this.flush().finally(() => (this.#isFlushQueued = false));
    }
    const nowMs = monotonicMs(clock);
    if (nowMs - this.#purgedAtMs < PURGE_INTERVAL_MS) return;
    this.#purgedAtMs = nowMs;
    this.#purging = purge().catch((error: Error) => {
      // The error itself has the query, and its cause the database's words.
      log.warn({ reason: reasonOf(error.cause ?? error) }, `${what} not purged`);
    });
  }

  #add(row: Row): void {
    const { keyOf, merge } = this.#parts;
    const key = keyOf(row);
    const earlier = this.#buffer.get(key);
    if (earlier !== undefined && merge) this.#buffer.set(key, merge(earlier, row));
    else {
      // The newest come last, because the first are dropped.
      if (earlier !== undefined) this.#buffer.delete(key);
      this.#buffer.set(key, row);
    }
  }

  #bound(): void {
    const { log, what, maxRows = Infinity } = this.#parts;
    if (this.#buffer.size <= maxRows) return;
    for (const key of this.#buffer.keys()) {
      if (this.#buffer.size <= maxRows) return;
      this.#buffer.delete(key);
      if (this.#dropped++ === 0)
        log.warn(`${what} full: the database is not accepting rows, dropped the oldest`);
    }
  }

  async #write(): Promise<void> {
    const { what, writeBatch, onWritten } = this.#parts;
    const all = [...this.#buffer.values()];
    if (all.length === 0) return;
    this.#buffer = new Map();
    for (let at = 0; at < all.length; at += BATCH_ROWS) {
      try {
        await writeBatch(all.slice(at, at + BATCH_ROWS));
      } catch (error) {
        const left = all.slice(at);
        this.keep(left);
        const fields = { ...whyFailed(error), rows: left.length, dropped: this.#dropped };
        this.#warnings.warn(fields, `${what} not written: will try again`);
        return;
      }
    }
    this.#dropped = 0;
    this.#warnings.reset();
    onWritten?.(all);
  }
}

const EVERY_MS = 60_000;

interface LastUsedParts {
  readonly clock: Clock;
  readonly log: Log;
  /** For the log, such as `API key`. */
  readonly what: string;
  readonly write: (id: string, at: Date) => PromiseLike<unknown>;
}

/** Records the last use of rows, at most once a minute each and in the background. */
export class LastUsed {
  readonly #parts: LastUsedParts;
  readonly #touchedAt = new LRUCache<string, number>({ max: 10_000 });
  readonly #writes = new Set<Promise<void>>();

  constructor(parts: LastUsedParts) {
    this.#parts = parts;
  }

  /** Never throws and never waits. */
  touch(id: string): void {
    const now = this.#parts.clock.now();
    if (now - (this.#touchedAt.get(id) ?? -EVERY_MS) < EVERY_MS) return;
    this.#touchedAt.set(id, now);
    const write = this.#write(id, new Date(now)).finally(() => this.#writes.delete(write));
    this.#writes.add(write);
  }

  /** Waits for pending writes. */
  async close(): Promise<void> {
    await Promise.all(this.#writes);
  }

  async #write(id: string, at: Date): Promise<void> {
    const { log, what, write } = this.#parts;
    try {
      await write(id, at);
    } catch (error) {
      log.warn({ ...whyFailed(error), id }, `last use of ${what} not stored`);
    }
  }
}
