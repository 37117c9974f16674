import type { Catalogue } from '../catalogue/catalogue.ts';
import type { Server } from '../catalogue/entry.ts';
import type { Database } from '../../platform/database/database.ts';
import { readTried, writeTried } from './probing-state.ts';

/** Visits are noted so many at a time. */
const BATCH = 20;

/**
 * Servers whose last visit left nothing on the board: it said nothing, or failed in a round that is under way, was cut short or is
 * doubted. They come last in the next round, so that one which is cut short again and again still gets to everybody.
 */
export class Tried {
  readonly #db: Database;
  readonly #ids: Set<string>;
  #unwritten = 0;

  private constructor(db: Database, ids: readonly string[]) {
    this.#db = db;
    this.#ids = new Set(ids);
  }

  static async load(db: Database, catalogue: Pick<Catalogue, 'get'>): Promise<Tried> {
    const ids = await readTried(db);
    return new Tried(
      db,
      ids.filter(id => catalogue.get(id)),
    );
  }

  /** Those that were visited last come last, those that never were first. */
  inOrder(servers: readonly Server[], checkedAtMs: (server: Server) => number | undefined): Server[] {
    const places = new Map([...this.#ids].map((id, at) => [id, at]));
    const ranked = servers.map(server => ({
      server,
      place: places.get(server.id) ?? -1,
      atMs: checkedAtMs(server) ?? -Infinity,
    }));
    return ranked
      .sort((a, b) => a.place - b.place || (a.atMs === b.atMs ? 0 : a.atMs - b.atMs))
      .map(({ server }) => server);
  }

  get isToBeWritten(): boolean {
    return this.#unwritten >= BATCH;
  }

  add({ id }: Server): void {
    this.#ids.delete(id);
    this.#ids.add(id);
    this.#unwritten++;
  }

  /** It is on the board now. */
  forget({ id }: Server): void {
    if (this.#ids.delete(id)) this.#unwritten++;
  }

  async write(): Promise<void> {
    if (this.#unwritten === 0) return;
    this.#unwritten = 0;
    await writeTried(this.#db, [...this.#ids]);
  }
}
