import { monotonicMs, type Clock } from '../clock.ts';
import { whyFailed } from './database.ts';
import type { Log } from '../telemetry/log.ts';

const FLUSH_INTERVAL_MS = 1_000;
const PURGE_INTERVAL_MS = 3_600_000;
/** While the database takes nothing, that is said so often. */
const SAY_EVERY_MS = 60_000;
export const BATCH_ROWS = 100;

interface WriteBehindParts<Row> {
  readonly clock: Clock;
  readonly log: Log;
  /** For the log, such as `query log`. */
  readonly what: string;
  /** Rows of one key are one. */
  readonly keyOf: (row: Row) => string;
  /** Default: the later in the place of the earlier. */
  readonly merge?: (earlier: Row, later: Row) => Row;
  /** Beyond it the oldest give way, while the database takes none. Default: there are never many. */
  readonly maxRows?: number;
  /** Writes at most 100 rows, all or none. */
  readonly writeBatch: (rows: readonly Row[]) => Promise<void>;
  readonly onWritten?: (rows: readonly Row[]) => void;
  /** Deletes what is past its time. */
  readonly purge: () => Promise<unknown>;
  /** Each second, before anything else. */
  readonly onTick?: () => void;
}

/**
 * Rows that nobody waits for: kept in memory and written once a second, in batches, so that a kill loses at most the last second.
 * What the database does not take is kept for the next time. Once an hour, and at the start, what is past its time is deleted.
 */
export class WriteBehind<Row> {
  readonly #parts: WriteBehindParts<Row>;
  readonly #timer: NodeJS.Timeout;
  #buffer = new Map<string, Row>();
  #writing: Promise<void> = Promise.resolve();
  #isFlushQueued = false;
  /** Since all was written last. */
  #dropped = 0;
  #purgedAtMs = -Infinity;
  /** When it was last said that rows are not taken; undefined: they are. */
  #saidAtMs: number | undefined;
  #purging: Promise<unknown> = Promise.resolve();

  constructor(parts: WriteBehindParts<Row>) {
    this.#parts = parts;
    this.#timer = setInterval(() => this.#tick(), FLUSH_INTERVAL_MS).unref();
  }

  /** Rows still to be written. */
  get size(): number {
    return this.#buffer.size;
  }

  /** Never throws and never waits. */
  put(row: Row): void {
    this.#add(row);
    this.#bound();
  }

  /** For the next time, unless there is a later row of its key by now. */
  keep(rows: readonly Row[]): void {
    if (rows.length === 0) return;
    const later = this.#buffer;
    this.#buffer = new Map(rows.map(row => [this.#parts.keyOf(row), row]));
    for (const row of later.values()) this.#add(row);
    this.#bound();
  }

  /** The row of that key that is still to be written; one that is being written is in neither place until `settled`. */
  find(key: string): Row | undefined {
    return this.#buffer.get(key);
  }

  /** Resolves when nothing is being written. */
  async settled(): Promise<void> {
    await this.#writing;
  }

  /** Writes what is there. Never rejects. */
  flush(): Promise<void> {
    return this.#inTurn(() => this.#write());
  }

  /** Writes what is there, then works while nothing is written. The work must not reject. */
  afterFlush(work: () => Promise<void>): Promise<void> {
    return this.#inTurn(async () => {
      await this.#write();
      await work();
    });
  }

  async close(): Promise<void> {
    this.stop();
    await this.flush();
    await this.#purging;
  }

  /** Writes nothing by itself any more. */
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
    this.#purging = purge().catch((error: unknown) => log.warn({ err: error }, `${what} not purged`));
  }

  #inTurn(work: () => Promise<void>): Promise<void> {
    this.#writing = this.#writing.then(work);
    return this.#writing;
  }

  #add(row: Row): void {
    const { keyOf, merge } = this.#parts;
    const key = keyOf(row);
    const earlier = this.#buffer.get(key);
    if (earlier !== undefined && merge) this.#buffer.set(key, merge(earlier, row));
    else {
      // The newest last: the first ones give way.
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
        log.warn(`${what} full: the database does not take rows, the oldest are dropped`);
    }
  }

  async #write(): Promise<void> {
    const { writeBatch, onWritten } = this.#parts;
    const all = [...this.#buffer.values()];
    if (all.length === 0) return;
    this.#buffer = new Map();
    for (let at = 0; at < all.length; at += BATCH_ROWS) {
      try {
        await writeBatch(all.slice(at, at + BATCH_ROWS));
      } catch (error) {
        const left = all.slice(at);
        this.keep(left);
        this.#sayFailed(error, left.length);
        return;
      }
    }
    this.#dropped = 0;
    this.#saidAtMs = undefined;
    onWritten?.(all);
  }

  #sayFailed(error: unknown, rows: number): void {
    const { clock, log, what } = this.#parts;
    const nowMs = monotonicMs(clock);
    if (this.#saidAtMs !== undefined && nowMs - this.#saidAtMs < SAY_EVERY_MS) return;
    this.#saidAtMs = nowMs;
    log.warn({ ...whyFailed(error), rows, dropped: this.#dropped }, `${what} not written, will try again`);
  }
}
