import { slices } from '../../infra/slices.ts';
import { IndexedServers, type IndexedDocuments } from './indexed-servers.ts';

/** The servers in memory, and how a change reaches them without a query seeing half a server of it. */
export class IndexedCatalogue {
  readonly #empty: () => IndexedServers;
  #current: IndexedServers;
  #epoch = 0;
  /** Applications of changes run one after another; `#pending` counts those not done. */
  #applying: Promise<void> = Promise.resolve();
  #pending = 0;

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

  /** Resolves with the step that puts the change into effect: at once where it touches every server, else server by server. */
  async prepare(
    removed: readonly string[],
    documents: readonly IndexedDocuments[],
  ): Promise<() => Promise<void>> {
    const epoch = this.#epoch;
    const fresh = this.#coversAll(removed, documents) ? await this.#build(documents) : undefined;
    return () => {
      // Whoever asks next finds all of the new catalogue, nobody a part of it.
      if (fresh && this.#pending === 0 && this.#epoch === epoch) {
        this.#current = fresh;
        this.#epoch++;
        return Promise.resolve();
      }
      this.#pending++;
      const applied = this.#applying
        .then(() => this.#apply(removed, documents))
        .finally(() => this.#pending--);
      this.#applying = applied.catch(() => {});
      return applied;
    };
  }

  /** Resolves when no change is being applied. */
  async settled(): Promise<void> {
    await this.#applying;
  }

  /** Whether nothing that is indexed now would stay as it is. */
  #coversAll(removed: readonly string[], documents: readonly IndexedDocuments[]): boolean {
    const touched = new Set([...removed, ...documents.map(({ id }) => id)]);
    for (const id of this.#current.ids()) if (!touched.has(id)) return false;
    return true;
  }

  async #build(documents: readonly IndexedDocuments[]): Promise<IndexedServers> {
    const pause = slices();
    const fresh = this.#empty();
    for (const one of documents) {
      fresh.put(one);
      await pause();
    }
    return fresh;
  }

  /** Server by server, each in one go. */
  async #apply(removed: readonly string[], documents: readonly IndexedDocuments[]): Promise<void> {
    const pause = slices();
    for (const id of removed) {
      this.#current.remove(id);
      this.#epoch++;
      await pause();
    }
    for (const one of documents) {
      this.#current.put(one);
      this.#epoch++;
      await pause();
    }
  }
}
