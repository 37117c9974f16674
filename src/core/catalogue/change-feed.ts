import { sql } from 'drizzle-orm';
import { rows, whyFailed, type Database } from '../../platform/database/database.ts';
import { Listening } from '../../platform/database/listen.ts';
import { Repeat } from '../../platform/time.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { readWritten } from './store.ts';

/** The ids of servers that others have written, until `done` is called. */
interface News {
  readonly ids: readonly string[];
  readonly done: () => void;
}

/**
 * Finds what other processes have written since the last read. Each row has the number of the transaction that wrote it.
 * Numbers are assigned when transactions start, so a lower one may become visible later: each read starts at the lowest
 * number that was still open at the last read. Some rows are read twice, but none is missed.
 */
export class ChangeCursor {
  readonly #db: Database;
  /** Everything below was read. */
  #horizon: number;
  /** Transactions of this process. */
  readonly #own = new Set<number>();

  private constructor(db: Database, horizon: number) {
    this.#db = db;
    this.#horizon = horizon;
  }

  /** Returns a cursor that finds everything written from now on, including open transactions. */
  static async fromNow(db: Database): Promise<ChangeCursor> {
    return new ChangeCursor(db, (await snapshotOf(db)).lowest);
  }

  /** Leaves out the rows that the transaction writes. */
  skip(transaction: number): void {
    this.#own.add(transaction);
  }

  async read(): Promise<News> {
    const { lowest, next } = await snapshotOf(this.#db);
    // After a restore from another server, transaction numbers may be lower than those in the rows.
    const from = Math.min(this.#horizon, lowest);
    const written = await readWritten(this.#db, { from, before: next });
    const done = () => {
      this.#horizon = lowest;
      for (const transaction of this.#own) if (transaction < lowest) this.#own.delete(transaction);
    };
    return { ids: written.flatMap(({ id, revision }) => (this.#own.has(revision) ? [] : id)), done };
  }
}

/** Returns the number of the current transaction. */
export async function transactionOf(tx: Database): Promise<number> {
  const [row] = await rows<{ number: number }>(tx, sql`select pg_current_xact_id()::text::bigint as number`);
  if (!row) throw new Error('the database reported no transaction number');
  return row.number;
}

/** Reads the lowest open transaction number and the next one to be assigned. */
async function snapshotOf(db: Database): Promise<{ lowest: number; next: number }> {
  const [snapshot] = await rows<{ lowest: number; next: number }>(
    db,
    sql`select pg_snapshot_xmin(s)::text::bigint as lowest, pg_snapshot_xmax(s)::text::bigint as next
        from pg_current_snapshot() s`,
  );
  if (!snapshot) throw new Error('the database reported no transaction snapshot');
  return snapshot;
}

/** Notifications may be lost with their connection; a change is then noticed this much later. */
const LOOK_EVERY_MS = 5_000;
/** The channel named in the triggers on the tables `servers` and `server_health` (`drizzle/`). */
const CHANNEL = 'switchboard_catalogue';

/**
 * Calls `catchUp` whenever another process on the same Postgres announces a change, and every five seconds, until it is
 * disposed of.
 */
export function followChanges(
  catchUp: () => Promise<unknown>,
  url: string,
  log: Log,
  lookEveryMs = LOOK_EVERY_MS,
): AsyncDisposable {
  let isClosed = false;
  let hasFailed = false;
  const looking = new Repeat(lookEveryMs, async () => {
    try {
      await catchUp();
      hasFailed = false;
    } catch (error) {
      if (!hasFailed && !isClosed)
        log.warn(whyFailed(error), 'changes of other processes not read: retrying every few seconds');
      hasFailed = true;
    }
  }).start(lookEveryMs);
  const listening = new Listening({ url, channel: CHANNEL, log, onNotice: () => looking.kick() });
  return {
    async [Symbol.asyncDispose]() {
      isClosed = true;
      await listening[Symbol.asyncDispose]();
      await looking.stop();
    },
  };
}
