import type { Database } from '../../platform/database/database.ts';
import type { Health } from '../catalogue/health.ts';
import type { Server } from '../catalogue/entry.ts';
import { readHealth, writeHealth, type LocatedHealth } from './health-rows.ts';

/** A row carries the time at which its transaction began, and may be seen that much later. */
const OVERLAP_MS = 60_000;

/** What probing knows of all servers, in memory over the database, and what other processes write to it. */
export class HealthBoard {
  readonly #db: Database;
  readonly #known = new Map<string, LocatedHealth>();
  #newest: Date | undefined;
  #epoch = 0;

  private constructor(db: Database) {
    this.#db = db;
  }

  static async load(db: Database): Promise<HealthBoard> {
    const board = new HealthBoard(db);
    await board.reload();
    return board;
  }

  /** Undefined: it has not been visited at its present address. */
  of({ id, remoteUrl }: Pick<Server, 'id' | 'remoteUrl'>): Health | undefined {
    const known = this.#known.get(id);
    return known?.remoteUrl === remoteUrl ? known.health : undefined;
  }

  /** Another number as soon as a server is dead that was not, or the other way round. */
  get epoch(): number {
    return this.#epoch;
  }

  /** Resolves to those that were written (see `writeHealth`). */
  async write(found: readonly LocatedHealth[]): Promise<readonly LocatedHealth[]> {
    const written = await writeHealth(this.#db, found);
    for (const one of written) this.#set(one);
    return written;
  }

  /** What an import has done in the database where it made a server active again: its visits count from the beginning. */
  beginAnew(serverId: string): void {
    const known = this.#known.get(serverId);
    if (!known) return;
    const { deadSinceMs: _forgotten, ...health } = known.health;
    this.#set({ ...known, health: { ...health, failures: 0 } });
  }

  /** Brings in what has been written elsewhere. */
  catchUp(): Promise<void> {
    return this.#read(this.#newest && new Date(this.#newest.getTime() - OVERLAP_MS));
  }

  /** The same, and what a transaction has written that took very long, as well. */
  reload(): Promise<void> {
    return this.#read(undefined);
  }

  async #read(since: Date | undefined): Promise<void> {
    const { known, newest = this.#newest } = await readHealth(this.#db, since);
    for (const one of known) this.#set(one);
    this.#newest = newest;
  }

  #set(one: LocatedHealth): void {
    const isDead = (located: LocatedHealth | undefined) => located?.health.deadSinceMs !== undefined;
    if (isDead(one) !== isDead(this.#known.get(one.serverId))) this.#epoch++;
    this.#known.set(one.serverId, one);
  }
}
