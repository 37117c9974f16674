import { isDeepStrictEqual } from 'node:util';
import { sql } from 'drizzle-orm';
import { rows, whyFailed, type Database } from '../../platform/database/database.ts';
import { Listening } from '../../platform/database/listen.ts';
import { Repeat } from '../../platform/time.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { CatalogueChange, PrepareChange } from './changes.ts';
import type { Server } from './entry.ts';
import { readServers } from './store.ts';

/**
 * Finds what other processes have written since the last read. Each row has the number of the transaction that wrote it.
 * Numbers are assigned when transactions start, so a lower one may become visible later: each read starts at the lowest
 * number that was still open at the last read. Some rows are read twice, but none is missed.
 */
export class ChangeCursor {
  readonly #db: Database;
  /** Everything below was read. */
  #horizon: number;

  private constructor(db: Database, horizon: number) {
    this.#db = db;
    this.#horizon = horizon;
  }

  /** Returns a cursor that finds everything written from now on, including open transactions. */
  static async fromNow(db: Database): Promise<ChangeCursor> {
    return new ChangeCursor(db, (await snapshotOf(db)).lowest);
  }

  /**
   * Loads others' changes into `known` and applies them.
   * @throws the error of preparing the change, which is then read again the next time
   */
  async catchUp(known: Map<string, Server>, prepare: PrepareChange): Promise<void> {
    const { lowest, next } = await snapshotOf(this.#db);
    // After a restore from another server, transaction numbers may be lower than those in the rows.
    const from = Math.min(this.#horizon, lowest);
    const written = await readServers(this.#db, { from, before: next });
    const servers = written.filter(server => !isDeepStrictEqual(server, known.get(server.id)));
    const searched = servers.filter(server => isVisible(server, known.get(server.id)));
    const takeEffect = searched.length === 0 ? undefined : await prepare(changeOf(searched, known));
    for (const server of servers) known.set(server.id, server);
    await takeEffect?.();
    this.#horizon = lowest;
  }
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

/** Returns true if the two differ in more than what was learned of access, which is not in the index. */
const isVisible = (
  { learned: _now, ...server }: Server,
  { learned: _before, ...known }: Partial<Server> = {},
) => !isDeepStrictEqual(server, known);

/** Changes of this many servers are treated as an import. */
const MANY_SERVERS = 20;

/**
 * Returns the change for these servers. An import becomes visible at once, as in the process that made it; for a few servers
 * that would cost too much.
 */
function changeOf(servers: readonly Server[], known: ReadonlyMap<string, Server>): CatalogueChange {
  const upserted = servers.filter(server => server.active);
  const removed = servers.flatMap(({ id, active }) => (!active && known.get(id)?.active ? id : []));
  const isReplacement = upserted.length > 0 && removed.length > 0;
  if (!isReplacement && servers.length < MANY_SERVERS) return { upserted, removed };
  const after = new Map(known);
  for (const server of servers) after.set(server.id, server);
  return { upserted, removed, whole: [...after.values()].filter(({ active }) => active) };
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
