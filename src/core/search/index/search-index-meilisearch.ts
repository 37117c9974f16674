import { LRUCache } from 'lru-cache';
import { slices } from '../../../platform/time.ts';
import type { CatalogueChange, OnProgress } from '../../catalogue/catalogue.ts';
import type { Server } from '../../catalogue/entry.ts';
import { documentsOf, tokenize, textsOf } from '../documents.ts';
import {
  bestOfEach,
  CANDIDATES_BY_EACH,
  IndexInMemory,
  openCache,
  type Indexable,
  type IndexContext,
} from './indexed-catalogue.ts';
import { IndexedServers, type IndexedDocuments, type VectorSource } from './indexed-servers.ts';
import { EMBEDDER, Engine, type EngineAddress, type EngineQuery } from './meilisearch-engine.ts';
import {
  hashOf,
  MeilisearchSync,
  plan,
  type EngineContent,
  type Planned,
  type RetryTimes,
} from './meilisearch-sync.ts';
import type { Findings, SearchIndex } from './search-index.ts';
import type { VectorCache } from './vector-cache.ts';
import { dot, quantize, type QuantizedVector } from './vectors.ts';

/** The engine reads at most this many words of a query. */
const MAX_QUERY_TERMS = 10;
/** Room for about 120,000 vectors of 384 dimensions. */
const VECTOR_BYTES = 64 * 1024 * 1024;
const RETRY: RetryTimes = { firstMs: 1_000, lastMs: 30_000 };
/** Memory overhead of an array. */
const OVERHEAD_BYTES = 160;

export type MeilisearchAddress = EngineAddress;

interface MeilisearchIndexContext extends MeilisearchAddress, IndexContext {
  readonly retry?: RetryTimes;
  /** Memory for vectors. */
  readonly vectorBytes?: number;
}

/**
 * Creates an index for which Meilisearch finds the candidates, one list by meaning and one by keyword. The code of the
 * embedded index computes their evidence, so both rank alike. All words are kept in memory, because keyword statistics need
 * them, as are recently used vectors. While Meilisearch is unavailable, the candidates are the best by keyword, and by
 * meaning among the servers whose vectors are in memory.
 */
export async function createMeilisearchIndex(context: MeilisearchIndexContext): Promise<MeilisearchIndex> {
  return new MeilisearchIndex(context, await openCache(context));
}

class MeilisearchIndex extends IndexInMemory<MeilisearchIndexContext> implements SearchIndex {
  readonly #vectors: PartVectors;
  readonly #sync: MeilisearchSync;
  #failure: string | undefined;

  constructor(context: MeilisearchIndexContext, cache: VectorCache) {
    super(context, cache, () => new IndexedServers());
    const { embedder, log, retry = RETRY } = context;
    const vectors = new PartVectors(cache, context.vectorBytes ?? VECTOR_BYTES);
    this.#vectors = vectors;
    const engine = new Engine(context);
    const vectorsOf = (sources: readonly VectorSource[]) => vectors.of(sources);
    this.#sync = new MeilisearchSync({ engine, embedder, vectorsOf, log, retry });
  }

  get id(): string {
    return `meilisearch:${this.embedderId}`;
  }

  get degraded(): string | undefined {
    return joined(this.engineDegraded, this.embedderDegraded);
  }

  /** The current problem, except for the embedder's. */
  get engineDegraded(): string | undefined {
    return joined(this.#sync.trouble, this.#failure);
  }

  async prepare(
    { upserted, removed, whole }: CatalogueChange,
    onProgress?: OnProgress,
    signal?: AbortSignal,
  ): Promise<() => Promise<void>> {
    const pause = slices(signal);
    const planned: Planned[] = [];
    const documents: Indexable[] = [];
    const servers: Server[] = whole ? [] : [...upserted];
    for await (const server of whole?.servers() ?? []) servers.push(server);
    // Everything is indexed again: the vectors in memory may have been deleted.
    if (whole?.isAnew) this.#vectors.clear();
    const sources = servers.map(server => this.#sourceOf(server));
    const vectors = await this.#vectors.made(sources, onProgress, signal);
    for (const [at, server] of servers.entries()) {
      const { id } = server;
      const { terms, content } = read(server);
      const source = sources[at] ?? this.#sourceOf(server);
      const reread = () => read(server).content;
      planned.push({ ...plan(content, vectors[at] ?? []), source, content: reread });
      const ready: IndexedDocuments = { id, ...terms, vectors: source };
      documents.push({ id, documents: () => Promise.resolve(ready) });
      await pause();
    }
    const all = async function* all() {
      yield* documents;
      await Promise.resolve();
    };
    const change = { removed, upserted: documents, manner: 'one by one' as const };
    const takeEffect = await this.servers.prepare(whole ? { ...change, all } : change, signal);
    const tellEngine = await this.#sync.prepare(planned, removed);
    return async () => {
      const told = tellEngine();
      await takeEffect();
      await told;
    };
  }

  async find(query: string): Promise<Findings> {
    const { terms, sentences } = textsOf(query);
    const unquantized = await this.queryVectors.of(sentences);
    const vectors = unquantized.map(quantize);
    const asked = this.servers.current;
    const found = await this.#sync.search(this.#queries(terms, vectors));
    const cosines = new Map<VectorSource, Float32Array>();
    for (;;) {
      // No await from here on: a query sees every server before or after an update, never half of it.
      const { current } = this.servers;
      // The engine's response is useless if the catalogue was replaced in the meantime.
      const ids = new Set(found && current === asked ? found.flat() : this.#substitutes(terms, vectors));
      const sources = Array.from(ids, id => current.sourceOf(id)).filter(source => source !== undefined);
      const missing = sources.filter(source => !cosines.has(source));
      if (missing.length === 0 || vectors.length === 0) {
        const candidates = bestOfEach(current.score(terms, current.byRow(cosines), ids));
        return { candidates, vectors: unquantized };
      }
      await this.#addCosines(missing, vectors, cosines);
    }
  }

  async close(): Promise<void> {
    await this.servers.settled();
    await this.#sync.close();
  }

  /** Returns one query by meaning per sentence, and one by keyword. The rarest terms come first, because the engine drops the last ones. */
  #queries(terms: readonly string[], vectors: readonly QuantizedVector[]): EngineQuery[] {
    const { current } = this.servers;
    const known = terms.map(term => ({ term, frequency: current.frequencyOf(term) }));
    const rarest = known.filter(({ frequency }) => frequency > 0).sort((a, b) => a.frequency - b.frequency);
    const q = rarest.slice(0, MAX_QUERY_TERMS).map(({ term }) => term);
    const list = { limit: CANDIDATES_BY_EACH, attributesToRetrieve: ['server'] };
    return [
      ...vectors.map(({ values }) => ({
        ...list,
        vector: [...values],
        hybrid: { embedder: EMBEDDER, semanticRatio: 1 },
      })),
      ...(q.length === 0 ? [] : [{ ...list, q: q.join(' '), matchingStrategy: 'last' as const }]),
    ];
  }

  /** Returns the candidates that can be found without the engine. */
  #substitutes(terms: readonly string[], vectors: readonly QuantizedVector[]): string[] {
    const { current } = this.servers;
    const byKeyword = bestOfEach(current.score(terms, new Float32Array(0))).map(one => one.serverId);
    if (vectors.length === 0) return byKeyword;
    const inMemory = [...current.ids()].filter(id => {
      const source = current.sourceOf(id);
      return source && this.#vectors.has(source);
    });
    return [...byKeyword, ...inMemory];
  }

  /** Adds the cosines of each source; none if its vectors cannot be read. */
  async #addCosines(
    sources: readonly VectorSource[],
    queries: readonly QuantizedVector[],
    cosines: Map<VectorSource, Float32Array>,
  ): Promise<void> {
    let added: readonly Float32Array[] = [];
    try {
      added = await this.#vectors.bestCosines(sources, queries);
      this.#failure = undefined;
    } catch (error) {
      if (this.#failure === undefined) this.context.log.warn({ err: error }, VECTORS_UNREADABLE);
      this.#failure = VECTORS_UNREADABLE;
    }
    for (const [at, source] of sources.entries()) cosines.set(source, added[at] ?? new Float32Array(0));
  }

  /** The embedder is part of the key, because vectors of another one differ. */
  #sourceOf(server: Server): VectorSource {
    const key = hashOf([this.embedderId, ...proseOf(server)]);
    return { key, texts: () => proseOf(server) };
  }
}

const VECTORS_UNREADABLE = 'stored vectors not readable: ranking by keyword only';

/** Returns the content of a server for the index in memory and for the engine. */
function read(server: Server): {
  readonly terms: Pick<IndexedDocuments, 'whole' | 'parts'>;
  readonly content: EngineContent;
} {
  const { whole, parts } = documentsOf(server);
  const terms = { whole: tokenize(whole), parts: parts.map(({ keywords }) => tokenize(keywords)) };
  const names = [server.name, ...server.tools.map(({ name }) => name)].flatMap(tokenize);
  const words = [...terms.whole, ...terms.parts.flat()];
  return { terms, content: { serverId: server.id, names, words, prose: proseOf(server) } };
}

const proseOf = (server: Server): string[] => documentsOf(server).parts.map(({ prose }) => prose);

function joined(...reasons: readonly (string | undefined)[]): string | undefined {
  const known = reasons.filter(reason => reason !== undefined);
  return known.length === 0 ? undefined : known.join('; ');
}

/** Returns the cosine; -1 if the query's vector has other dimensions. */
const comparable = (query: QuantizedVector, vector: QuantizedVector): number =>
  query.values.length === vector.values.length ? dot(query, vector) : -1;

type Vectors = readonly QuantizedVector[];

/** Reads the vectors of servers' parts: recently used ones from memory, all others from the database. */
class PartVectors {
  readonly #cache: VectorCache;
  readonly #recent: LRUCache<string, Vectors>;

  constructor(cache: VectorCache, maxBytes: number) {
    this.#cache = cache;
    this.#recent = new LRUCache({
      maxSize: maxBytes,
      sizeCalculation: vectors =>
        vectors.reduce((sum, { values }) => sum + values.length + OVERHEAD_BYTES, OVERHEAD_BYTES),
    });
  }

  /** True where the vectors are in memory. */
  has({ key }: VectorSource): boolean {
    return this.#recent.has(key);
  }

  clear(): void {
    this.#recent.clear();
  }

  /** Returns the vectors of each server's texts from memory or the database; zeros for missing ones. */
  of(sources: readonly VectorSource[]): Promise<Vectors[]> {
    const isKnown = ({ key }: VectorSource) => this.#recent.has(key);
    return this.#read(sources, isKnown, texts => this.#cache.keptVectorsOf(texts));
  }

  /** Returns the vectors of each server's texts. Missing ones are computed and stored first. */
  made(sources: readonly VectorSource[], onProgress?: OnProgress, signal?: AbortSignal): Promise<Vectors[]> {
    const isKnown = ({ key }: VectorSource) =>
      this.#recent.get(key)?.every(({ scale }) => scale > 0) ?? false;
    return this.#read(sources, isKnown, texts => this.#cache.vectorsOf(texts, onProgress, signal));
  }

  /** Returns for each server, by part, the best cosine with any of the queries. Yields to the event loop. */
  async bestCosines(
    sources: readonly VectorSource[],
    queries: readonly QuantizedVector[],
  ): Promise<Float32Array[]> {
    const pause = slices();
    const cosines: Float32Array[] = [];
    for (const vectors of await this.of(sources)) {
      const best = (vector: QuantizedVector) =>
        queries.reduce((highest, query) => Math.max(highest, comparable(query, vector)), -1);
      cosines.push(Float32Array.from(vectors, best));
      await pause();
    }
    return cosines;
  }

  async #read(
    sources: readonly VectorSource[],
    isKnown: (source: VectorSource) => boolean,
    vectorsOf: (texts: readonly string[]) => Promise<Vectors>,
  ): Promise<Vectors[]> {
    const missing = sources.filter(source => !isKnown(source));
    const texts = missing.map(source => source.texts());
    const vectors = missing.length === 0 ? [] : await vectorsOf(texts.flat());
    const byKey = new Map<string, Vectors>();
    let at = 0;
    for (const [position, { key }] of missing.entries()) {
      const count = texts[position]?.length ?? 0;
      // Copied, so that one server's vectors do not keep others' in memory.
      const own = vectors
        .slice(at, at + count)
        .map(({ values, scale }) => ({ values: values.slice(), scale }));
      at += count;
      byKey.set(key, own);
      this.#recent.set(key, own);
    }
    return sources.map(({ key }) => byKey.get(key) ?? this.#recent.get(key) ?? []);
  }
}
