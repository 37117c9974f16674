import { SerialQueue } from '../../../platform/queues.ts';
import type { Database } from '../../../platform/database/database.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import { slices, type Clock, type Pause } from '../../../platform/time.ts';
import {
  IndexedServers,
  type HiddenServer,
  type IndexedDocuments,
  type ScoredServers,
} from './indexed-servers.ts';
import {
  documentsOf,
  isOrdinaryText,
  requestWords,
  termsInSlices,
  tokenize,
  type Described,
  textsOf,
} from '../documents.ts';
import { QueryVectors, wordsOf, type Embedder, type Passage } from '../embed/embedder.ts';
import { Spelling } from '../spelling.ts';
import { Evidence } from './evidence/evidence.ts';
import type { Asked, Candidate, ToolEvidence } from './search-index.ts';
import { TermStatistics } from './term-statistics.ts';
import { VectorCache } from './vector-cache.ts';
import { quantize } from './vectors.ts';

/** A server to be indexed. Its words are read when its turn comes: those of a whole catalogue would take tens of megabytes. */
export interface Indexable {
  readonly id: string;
  readonly documents: (pause: Pause) => Promise<IndexedDocuments>;
}

interface IndexChange {
  readonly removed: readonly string[];
  readonly upserted: readonly Indexable[];
  /** `one by one`: a query may see part of the change. `at once`: a query sees all of it or nothing. */
  readonly manner: 'one by one' | 'at once';
  /** Present if nothing of the old index is to remain: reads every server after the change. */
  readonly all?: (() => AsyncIterable<Indexable>) | undefined;
}

/** Holds the servers in memory and applies changes so that no query sees half a server. */
export class IndexedCatalogue {
  readonly #empty: () => IndexedServers;
  #current: IndexedServers;
  #epoch = 0;
  /** Applies changes one after another. */
  readonly #applying = new SerialQueue();
  /** Servers in the current index that are not visible yet. */
  #staged: readonly HiddenServer[] = [];

  constructor(empty: () => IndexedServers) {
    this.#empty = empty;
    this.#current = empty();
  }

  /** The servers visible to a query, for use without an await. */
  get current(): IndexedServers {
    return this.#current;
  }

  /** Incremented by every change that a query could see. */
  get epoch(): number {
    return this.#epoch;
  }

  /**
   * Resolves with the step that applies the change: atomically if the change requires it or affects every server, otherwise
   * server by server.
   * @param signal aborts the preparation, with its reason; if it aborts later, the change is not applied
   */
  async prepare(change: IndexChange, signal?: AbortSignal): Promise<() => Promise<void>> {
    const { removed, upserted, manner, all } = change;
    await this.#applying.run(() => this.#unstage(this.#staged));
    const epoch = this.#epoch;
    const pause = slices(signal);
    if (all) {
      const fresh = await this.#build(all(), pause);
      return () =>
        this.#applying.run(async () =>
          this.#swapIn(this.#epoch === epoch ? fresh : await this.#build(all(), slices())),
        );
    }
    if (this.#coversAll(change)) {
      const fresh = await this.#build(upserted, pause);
      return () =>
        this.#applying.run(async () =>
          this.#epoch === epoch ? this.#swapIn(fresh) : this.#applyEach(removed, upserted),
        );
    }
    if (manner === 'one by one') return () => this.#applying.run(() => this.#applyEach(removed, upserted));
    const staged = await this.#stage(upserted, pause);
    signal?.addEventListener('abort', () => void this.#applying.run(() => this.#unstage(staged)), {
      once: true,
    });
    return () =>
      this.#applying.run(async () => {
        const isStaged = this.#staged === staged;
        await this.#flip(removed, isStaged ? staged : await this.#stage(upserted, slices()));
      });
  }

  /** Resolves when no change is being applied. */
  settled(): Promise<void> {
    return this.#applying.settled();
  }

  /** Returns whether the change affects every indexed server. */
  #coversAll({ removed, upserted }: IndexChange): boolean {
    const touched = new Set([...removed, ...upserted.map(({ id }) => id)]);
    for (const id of this.#current.ids()) if (!touched.has(id)) return false;
    return true;
  }

  async #build(
    servers: Iterable<Indexable> | AsyncIterable<Indexable>,
    pause: Pause,
  ): Promise<IndexedServers> {
    const fresh = this.#empty();
    for await (const one of servers) {
      fresh.put(await one.documents(pause));
      await pause();
    }
    return fresh;
  }

  /** Replaces the servers in one step: no query sees part of the new catalogue. */
  #swapIn(fresh: IndexedServers): void {
    this.#current = fresh;
    this.#epoch++;
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

  /** Discards the staged servers of a change that is not applied. */
  async #unstage(staged: readonly HiddenServer[]): Promise<void> {
    if (this.#staged !== staged) return;
    this.#staged = [];
    await this.#clear(staged);
  }

  /** Shows the staged servers in one step, and removes the old ones afterwards. */
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

  /** Applies the change server by server, each in one step. */
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

/** The number of candidates by meaning, and by keyword. On the sets of bench/RESULTS.md, twice as many make no difference. */
export const CANDIDATES_BY_EACH = 100;

/** Returns the servers that are among the best so many by meaning or by keyword; more only if the last ones tie. */
export function bestOfEach({ semantic, keyword, candidate }: ScoredServers, count: number): Candidate[] {
  const bySemantic = cutoff(semantic, count);
  const byKeyword = cutoff(keyword, count);
  const best: Candidate[] = [];
  for (let slot = 0; slot < semantic.length; slot++) {
    if ((semantic[slot] ?? 0) >= bySemantic || (keyword[slot] ?? 0) >= byKeyword) best.push(candidate(slot));
  }
  return best;
}

/** Returns the lowest value of the best servers; above 0, which means no evidence. */
export function cutoff(values: ArrayLike<number>, count: number): number {
  return Math.max(nthLargest(values, count), Number.MIN_VALUE);
}

/**
 * Returns the nth largest value (1 is the largest) by quickselect (Hoare 1961); -Infinity if there are fewer. No value may be NaN.
 */
export function nthLargest(values: ArrayLike<number>, n: number): number {
  if (n > values.length) return -Infinity;
  const left = Float64Array.from(values);
  const wanted = values.length - n;
  let low = 0;
  let high = left.length - 1;
  while (low < high) {
    const [before, after] = partition(left, low, high);
    if (wanted <= before) high = before;
    else if (wanted >= after) low = after;
    else break;
  }
  return left[wanted] ?? -Infinity;
}

/** Moves smaller values before larger ones, around the middle value. Returns the end of the smaller and the start of the larger ones. */
function partition(values: Float64Array, low: number, high: number): [number, number] {
  const pivot = values[(low + high) >>> 1] ?? 0;
  let up = low;
  let down = high;
  while (up <= down) {
    while ((values[up] ?? 0) < pivot) up++;
    while ((values[down] ?? 0) > pivot) down--;
    if (up > down) break;
    const value = values[up] ?? 0;
    values[up++] = values[down] ?? 0;
    values[down--] = value;
  }
  return [down, up];
}

/** The dependencies of an index. */
export interface IndexContext {
  readonly embedder: Embedder;
  readonly db: Database;
  readonly log: Log;
  readonly clock: Clock;
  /** The file of shipped vectors, if there is one for this catalogue. */
  readonly shippedVectors?: string | undefined;
  /** Why `embedder` stands in for a better one. */
  readonly degraded?: string | undefined;
}

export const openCache = ({
  embedder,
  db,
  log,
  shippedVectors: shippedFile,
}: IndexContext): Promise<VectorCache> => VectorCache.open({ embedder, db, log, shippedFile });

/** The part of a search index that is independent of how candidates are found. */
export abstract class IndexWithEmbedder<Context extends IndexContext> {
  protected readonly context: Context;
  protected readonly queryVectors: QueryVectors;
  protected readonly cache: VectorCache;
  readonly #spelling: Spelling | undefined;

  constructor(context: Context, cache: VectorCache) {
    this.context = context;
    this.queryVectors = new QueryVectors(context);
    this.cache = cache;
    const { words } = context.embedder;
    this.#spelling = words && new Spelling(new Set([...words, ...requestWords]));
  }

  /** Returns the number of tools, examples and servers' own texts that have a term. */
  protected abstract frequencyOf(term: string): number;

  get vectorChanges(): number {
    return this.queryVectors.changes;
  }

  get embedderId(): string {
    return this.context.embedder.id;
  }

  /** Why the embedder is degraded; undefined if it is not. */
  protected get embedderDegraded(): string | undefined {
    return this.queryVectors.failure ?? this.context.degraded;
  }

  /** A query and its clauses are embedded in one pass, a clause that is one of the sentences only once. */
  ask(query: string): Asked {
    const { terms, sentences, clauses, language } = this.#textsOf(query);
    const passages = [...new Set<Passage>([...sentences, ...clauses.map(({ passage }) => passage)])];
    const all = this.queryVectors.of(passages);
    const vectorsOf = (wanted: readonly Passage[]) =>
      all.then(vectors => wanted.flatMap(passage => vectors[passages.indexOf(passage)] ?? []));
    return {
      text: query,
      terms,
      vectors: vectorsOf(sentences),
      clauses: clauses.map(clause => ({
        text: wordsOf(clause.passage),
        terms: clause.terms,
        vectors: vectorsOf([clause.passage]),
        clauses: [],
        language,
      })),
      language,
    };
  }

  #textsOf(query: string): ReturnType<typeof textsOf> {
    const frequencyOf = (word: string) => {
      const [term] = tokenize(word);
      return term === undefined ? 0 : this.frequencyOf(term);
    };
    return textsOf(query, text => this.#spelling?.correct(text, { isOrdinary: isOrdinaryText, frequencyOf }));
  }

  /**
   * Compares the tools of one server with a query. It embeds nothing, because listing a server's tools must not delay other callers. If
   * any tool has no vector yet, all are compared by keyword only: otherwise it would rank below worse tools with a vector.
   */
  async compareTools(query: string, server: Described): Promise<ToolEvidence> {
    const documents = documentsOf(server);
    const { terms: asked, sentences } = this.#textsOf(query);
    const [queries, vectors] = await Promise.all([
      this.queryVectors.of(sentences),
      this.cache.keptVectorsOf(documents.parts.map(({ prose }) => prose)),
    ]);
    const terms = await termsInSlices(documents, slices());
    const evidence = Evidence.of(terms, vectors, this.context.embedder.dimensions);
    const statistics = new TermStatistics();
    statistics.add(evidence.words);
    const semantic = evidence.cosines(evidence.isComplete ? queries.map(quantize) : []);
    const keyword = evidence.keywords(statistics.weigh(asked)).parts;
    const end = 1 + server.tools.length;
    return { semantic: semantic.subarray(1, end), keyword: keyword.subarray(1, end) };
  }
}
