import { isDeepStrictEqual } from 'node:util';
import { sql } from 'drizzle-orm';
import { rows, type Database } from '../../platform/database/database.ts';
import type { CatalogueChange, PrepareChange } from './catalogue.ts';
import type { Server } from './entry.ts';
import { readServers } from './read-servers.ts';

/**
 * What other processes may have written since one last looked. A row carries the number of the transaction that wrote it, and
 * numbers are given out at the beginning, so that a lower one may be seen later: one looks again from the lowest number that
 * was still under way the last time. Some rows are thus met twice, none is missed.
 */
export class Unseen {
  readonly #db: Database;
  /** Everything below has been seen. */
  #horizon: number;

  private constructor(db: Database, horizon: number) {
    this.#db = db;
    this.#horizon = horizon;
  }

  /** What is written from now on, and what is being written. */
  static async fromNow(db: Database): Promise<Unseen> {
    return new Unseen(db, (await snapshotOf(db)).lowest);
  }

  /**
   * Brings it into the servers known here, and with them into effect.
   * @throws whatever keeps the change from being prepared; it is met again then.
   */
  async takeOver(known: Map<string, Server>, prepare: PrepareChange): Promise<void> {
    const { lowest, next } = await snapshotOf(this.#db);
    // A database that was restored from another server counts from elsewhere, perhaps from lower than what its rows carry.
    const from = Math.min(this.#horizon, lowest);
    const written = await readServers(this.#db, { from, before: next });
    const servers = written.filter(server => !isDeepStrictEqual(server, known.get(server.id)));
    if (servers.length > 0) {
      const takeEffect = await prepare(foreignChange(servers, known));
      for (const server of servers) known.set(server.id, server);
      await takeEffect();
    }
    this.#horizon = lowest;
  }
}

/** The lowest number that is under way, and the one to be given out next. */
async function snapshotOf(db: Database): Promise<{ lowest: number; next: number }> {
  const [snapshot] = await rows<{ lowest: number; next: number }>(
    db,
    sql`select pg_snapshot_xmin(s)::text::bigint as lowest, pg_snapshot_xmax(s)::text::bigint as next
        from pg_current_snapshot() s`,
  );
  if (!snapshot) throw new Error('the database says nothing of its transactions');
  return snapshot;
}

/** From so many servers on it is an import. */
const MANY = 20;

/**
 * What these servers, as another process has written them, change among those known here. What looks like an import is to be
 * seen at once, as it is where it was made; for a single server that would be too dear.
 */
function foreignChange(servers: readonly Server[], known: ReadonlyMap<string, Server>): CatalogueChange {
  const upserted = servers.filter(server => server.active);
  const removed = servers.flatMap(({ id, active }) => (!active && known.get(id)?.active ? id : []));
  const isReplacement = upserted.length > 0 && removed.length > 0;
  if (!isReplacement && servers.length < MANY) return { upserted, removed };
  const after = new Map(known);
  for (const server of servers) after.set(server.id, server);
  return { upserted, removed, whole: [...after.values()].filter(({ active }) => active) };
}
