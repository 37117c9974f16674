import { slices, type Pause } from '../../../platform/yield.ts';
import { IndexedServers, type HiddenServer, type IndexedDocuments } from './indexed-servers.ts';

/** A server to be indexed. Its words are found when it is its turn: those of a whole catalogue would take tens of megabytes. */
export interface Indexable {
  readonly id: string;
  readonly documents: (pause: Pause) => Promise<IndexedDocuments>;
}

interface IndexChange {
  readonly removed: readonly string[];
  readonly upserted: readonly Indexable[];
  /**
   * `one by one`: a query may see some of the change; `at once`: all of it or nothing; `anew`: likewise, and `upserted` are all
   * that there will be, so that nothing of the old index stays.
   */
  readonly manner: 'one by one' | 'at once' | 'anew';
}

/** The servers in memory, and how a change reaches them without a query seeing half a server of it. */
export class IndexedCatalogue {
  readonly #empty: () => IndexedServers;
  #current: IndexedServers;
  #epoch = 0;
  /** Applications of changes run one after another; `#pending` counts those not done. */
  #applying: Promise<void> = Promise.resolve();
  #pending = 0;
  /** In the current index, not yet shown. */
  #staged: readonly HiddenServer[] = [];

  constructor(empty: () => IndexedServers) {
    this.#empty = empty;
    this.#current = empty();
  }

  /** What a query is to read, without a pause. */
  get current(): IndexedServers {
    return this.#current;
  }

  /** Grows with every change that a query could see. */
  get epoch(): number {
    return this.#epoch;
  }

  /**
   * Resolves with the step that puts the change into effect: at once where it says so or touches every server, else server by
   * server.
   * @param signal ends the preparation, with its reason; when it aborts after that, the change will not take effect
   */
  async prepare(change: IndexChange, signal?: AbortSignal): Promise<() => Promise<void>> {
    const { removed, upserted, manner } = change;
    await this.#inTurn(() => this.#unstage(this.#staged));
    const epoch = this.#epoch;
    const pause = slices(signal);
    if (manner === 'anew' || this.#coversAll(change)) {
      const fresh = await this.#build(upserted, pause);
      const replace = () =>
        this.#epoch === epoch ? this.#swapIn(fresh) : this.#applyEach(removed, upserted);
      return () => this.#inTurn(replace);
    }
    if (manner === 'one by one') return () => this.#inTurn(() => this.#applyEach(removed, upserted));
    const staged = await this.#stage(upserted, pause);
    signal?.addEventListener('abort', () => void this.#inTurn(() => this.#unstage(staged)), { once: true });
    return () =>
      this.#inTurn(async () => {
        const isStaged = this.#staged === staged;
        await this.#flip(removed, isStaged ? staged : await this.#stage(upserted, slices()));
      });
  }

  /** Resolves when no change is being applied. */
  async settled(): Promise<void> {
    await this.#applying;
  }

  /** At once where nothing is being applied. */
  #inTurn(apply: () => Promise<void>): Promise<void> {
    const applied = this.#pending++ === 0 ? apply() : this.#applying.then(apply);
    const ended = applied.finally(() => this.#pending--);
    this.#applying = ended.catch(() => {});
    return ended;
  }

  /** Whether nothing that is indexed now would stay as it is. */
  #coversAll({ removed, upserted }: IndexChange): boolean {
    const touched = new Set([...removed, ...upserted.map(({ id }) => id)]);
    for (const id of this.#current.ids()) if (!touched.has(id)) return false;
    return true;
  }

  async #build(servers: readonly Indexable[], pause: Pause): Promise<IndexedServers> {
    const fresh = this.#empty();
    for (const one of servers) {
      fresh.put(await one.documents(pause));
      await pause();
    }
    return fresh;
  }

  /** Whoever asks next finds all of the new catalogue, nobody a part of it. */
  #swapIn(fresh: IndexedServers): Promise<void> {
    this.#current = fresh;
    this.#epoch++;
    return Promise.resolve();
  }

  async #stage(servers: readonly Indexable[], pause: Pause): Promise<readonly HiddenServer[]> {
    const staged: HiddenServer[] = [];
    this.#staged = staged;
    try {
      for (const one of servers) {
        staged.push(this.#current.stage(await one.documents(pause)));
        this.#epoch++;
        await pause();
      }
    } catch (error) {
      await this.#unstage(staged);
      throw error;
    }
    return staged;
  }

  /** Forgets what was staged for a change that does not come into effect. */
  async #unstage(staged: readonly HiddenServer[]): Promise<void> {
    if (this.#staged !== staged) return;
    this.#staged = [];
    await this.#clear(staged);
  }

  /** Like `#swapIn`; what is gone is cleared away afterwards. */
  async #flip(removed: readonly string[], staged: readonly HiddenServer[]): Promise<void> {
    this.#staged = [];
    const old = [...removed, ...staged.map(({ id }) => id)].map(id => this.#current.hide(id));
    for (const one of staged) this.#current.show(one);
    this.#epoch++;
    await this.#clear(old.filter(server => server !== undefined));
  }

  async #clear(hidden: readonly HiddenServer[]): Promise<void> {
    const pause = slices();
    for (const server of hidden) {
      this.#current.clear(server);
      // Its words no longer count.
      this.#epoch++;
      await pause();
    }
  }

  /** Server by server, each in one go. */
  async #applyEach(removed: readonly string[], servers: readonly Indexable[]): Promise<void> {
    const pause = slices();
    for (const id of removed) {
      this.#current.remove(id);
      this.#epoch++;
      await pause();
    }
    for (const one of servers) {
      this.#current.put(await one.documents(pause));
      this.#epoch++;
      await pause();
    }
  }
}
