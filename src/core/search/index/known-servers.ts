import { pagesOf } from '../../../platform/pages.ts';
import type { OnProgress } from '../../catalogue/catalogue.ts';
import type { Server } from '../../catalogue/entry.ts';
import { textCount } from '../documents.ts';
import type { Stored } from './evidence/evidence.ts';
import { TermStatistics, type Words } from './term-statistics.ts';

/** Returns the words of stored rows; a row that does not exist has none. */
type ReadWords = (hashes: readonly string[]) => Promise<ReadonlyMap<string, Words>>;

/** A server with its new evidence; undefined if it is removed. */
interface NewServer {
  readonly id: string;
  readonly stored: Stored | undefined;
}

/** The servers of an index: the key of each one's evidence, and the keyword statistics of all. */
export class KnownServers {
  readonly #servers = new Map<string, Stored>();
  readonly #statistics = new TermStatistics();
  #epoch = 0;
  #replacements = 0;

  /** By id. */
  get servers(): ReadonlyMap<string, Stored> {
    return this.#servers;
  }

  get statistics(): TermStatistics {
    return this.#statistics;
  }

  /** Incremented by every change. */
  get epoch(): number {
    return this.#epoch;
  }

  /** Incremented by every change that is about the catalogue as a whole: candidates from before it are useless. */
  get replacements(): number {
    return this.#replacements;
  }

  /** Applies a change in one step: adding up numbers takes a few milliseconds even for the whole catalogue. */
  apply({ servers, difference }: ServersChange, isWhole: boolean): void {
    const isOfAll =
      servers.size >= this.#servers.size && [...this.#servers.keys()].every(id => servers.has(id));
    for (const [id, { before, after }] of servers) {
      if (this.#servers.get(id) !== before) throw new Error('changes must be applied in their order');
      if (after) this.#servers.set(id, after);
      else this.#servers.delete(id);
    }
    this.#statistics.merge(difference);
    if (isWhole || isOfAll) this.#replacements++;
    this.#epoch++;
  }
}

/** A change that is being prepared: it keeps what is to be kept of servers, and the difference in the keyword statistics. */
export class ServersChange {
  readonly #known: ReadonlyMap<string, Stored>;
  readonly #readWords: ReadWords;
  readonly servers = new Map<
    string,
    { readonly before: Stored | undefined; readonly after: Stored | undefined }
  >();
  readonly difference = new TermStatistics();

  constructor(known: ReadonlyMap<string, Stored>, readWords: ReadWords) {
    this.#known = known;
    this.#readWords = readWords;
  }

  /** Adds some servers. Resolves to the number of replaced ones whose words cannot be taken away, because they are not stored. */
  async add(page: readonly NewServer[]): Promise<number> {
    const differing = page.flatMap(({ id, stored }) => {
      const old = this.#after(id);
      if (old || stored) this.servers.set(id, { before: this.#known.get(id), after: stored });
      return old?.hash === stored?.hash ? [] : [{ old: old?.hash, now: stored?.hash }];
    });
    const hashes = differing.flatMap(({ old, now }) => [old, now]).filter(hash => hash !== undefined);
    const words = await this.#readWords([...new Set(hashes)]);
    let lost = 0;
    for (const { old, now } of differing) {
      const [removed, added] = [words.get(old ?? ''), words.get(now ?? '')];
      if (removed) this.difference.subtract(removed);
      else if (old !== undefined) lost++;
      if (added) this.difference.add(added);
    }
    return lost;
  }

  /** Returns the known servers that the change has not named yet. */
  untouched(): string[] {
    return [...this.#known.keys()].filter(id => !this.servers.has(id));
  }

  /** Returns what is known of a server after the change as far as it is prepared. */
  #after(id: string): Stored | undefined {
    const changed = this.servers.get(id);
    return changed ? changed.after : this.#known.get(id);
  }
}

/** Texts that are prepared at a time, unless one server has more. */
const PAGE_TEXTS = 1_000;

type Servers = Iterable<Server> | AsyncIterable<Server>;

export const pagesOfServers = (servers: Servers): AsyncGenerator<Server[]> =>
  pagesOf(servers, PAGE_TEXTS, textCount);

/** Adds up the progress of pages. The texts of later pages, as far as their number is known, count as not embedded yet. */
export class Progress {
  readonly #onProgress: OnProgress | undefined;
  #later = 0;
  #done = 0;

  constructor(servers: Servers, onProgress: OnProgress | undefined) {
    this.#onProgress = onProgress;
    if (Array.isArray(servers))
      for (const server of servers as readonly Server[]) this.#later += textCount(server);
  }

  ofPage(page: readonly Server[]): OnProgress {
    for (const server of page) this.#later -= textCount(server);
    const before = this.#done;
    const later = Math.max(0, this.#later);
    return ({ done, of }) => {
      this.#done = before + done;
      this.#onProgress?.({ done: this.#done, of: before + of + later });
    };
  }
}
