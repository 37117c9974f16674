import type { Clock } from '../../../platform/clock.ts';
import type { Database } from '../../../platform/database/database.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import { slices } from '../../../platform/yield.ts';
import type { CatalogueChange, OnProgress } from '../../catalogue/catalogue.ts';
import type { Server } from '../../catalogue/entry.ts';
import { bestOfEach, CANDIDATES_BY_EACH } from './best-candidates.ts';
import { compareTools } from './tool-evidence.ts';
import { documentsOf, type Described } from '../documents.ts';
import type { Embedder } from '../embed/embedder.ts';
import { IndexedCatalogue, type Indexable } from './indexed-catalogue.ts';
import { IndexedServers, type IndexedDocuments, type VectorSource } from './indexed-servers.ts';
import { documentsFor, hashOf, type EngineContent } from './meilisearch/engine-document.ts';
import { Engine, type EngineAddress, type EngineQuery } from './meilisearch/engine.ts';
import { LiveIndex, type Planned } from './meilisearch/index-writer.ts';
import { PartVectors } from './meilisearch/part-vectors.ts';
import { Replica, type RetryTimes } from './meilisearch/index-sync.ts';
import { EMBEDDER } from './meilisearch/settings.ts';
import { quantize, type QuantizedVector } from './quantize.ts';
import { QueryVectors } from '../embed/query-vectors.ts';
import type { Findings, SearchIndex, ToolEvidence } from './search-index.ts';
import { sentencesOf, tokenize } from '../tokenize.ts';
import { VectorCache } from './vector-cache.ts';

/** The engine reads no more words of a query. */
const MAX_QUERY_TERMS = 10;
/** About 120,000 vectors of 384 dimensions. */
const VECTOR_BYTES = 64 * 1024 * 1024;
const RETRY: RetryTimes = { firstMs: 1_000, lastMs: 30_000, checkMs: 5 * 60_000, countMs: 5_000 };

export interface MeilisearchAddress extends EngineAddress {
  /** Of this installation's process, the same after a restart. */
  readonly owner: string;
}

interface MeilisearchIndexContext extends MeilisearchAddress {
  readonly embedder: Embedder;
  readonly db: Database;
  readonly log: Log;
  readonly clock: Clock;
  readonly shippedVectors?: string | undefined;
  /** Why `embedder` stands in for a better one. */
  readonly degraded?: string | undefined;
  readonly retry?: RetryTimes;
  /** Of vectors held in memory. */
  readonly vectorBytes?: number;
}

/**
 * Meilisearch finds the candidates, one list by meaning and one by keyword; their evidence is computed here, by the code of
 * the embedded index, so that both rank alike. All words are held in memory (keyword statistics need them), and of the
 * vectors those used last. While Meilisearch cannot be asked, the candidates are the best by keyword, and by meaning among
 * the servers whose vectors are in memory.
 */
export async function createMeilisearchIndex(context: MeilisearchIndexContext): Promise<MeilisearchIndex> {
  const { embedder, db, log, shippedVectors: shippedFile } = context;
  return new MeilisearchIndex(context, await VectorCache.open({ embedder, db, log, shippedFile }));
}

class MeilisearchIndex implements SearchIndex {
  readonly id: string;
  readonly #context: MeilisearchIndexContext;
  readonly #queryVectors: QueryVectors;
  readonly #cache: VectorCache;
  readonly #vectors: PartVectors;
  readonly #replica: Replica;
  readonly #servers = new IndexedCatalogue(() => new IndexedServers());
  #failure: string | undefined;

  constructor(context: MeilisearchIndexContext, cache: VectorCache) {
    const { embedder, log, clock, owner, retry = RETRY } = context;
    this.id = `meilisearch:${embedder.id}`;
    this.#context = context;
    this.#cache = cache;
    this.#queryVectors = new QueryVectors({ embedder, log, clock });
    const vectors = new PartVectors(cache, context.vectorBytes ?? VECTOR_BYTES);
    this.#vectors = vectors;
    const engine = new Engine(context);
    const live = new LiveIndex({ engine, embedder, vectors, owner, now: () => clock.now() });
    this.#replica = new Replica({ engine, live, log, retry });
  }

  get embedderId(): string {
    return this.#context.embedder.id;
  }

  get epoch(): number {
    return this.#servers.epoch;
  }

  get size(): number {
    return this.#servers.current.size;
  }

  get degraded(): string | undefined {
    return joined(this.engineDegraded, this.#queryVectors.failure ?? this.#context.degraded);
  }

  /** What of it is not the embedder's. */
  get engineDegraded(): string | undefined {
    return joined(this.#replica.trouble, this.#failure);
  }

  async prepare(
    { upserted, removed, whole }: CatalogueChange,
    onProgress?: OnProgress,
    signal?: AbortSignal,
  ): Promise<() => Promise<void>> {
    const pause = slices(signal);
    const planned: Planned[] = [];
    const documents: Indexable[] = [];
    const servers = whole ?? upserted;
    const vectors = await this.#vectors.made(servers.map(sourceOf), onProgress, signal);
    for (const [at, server] of servers.entries()) {
      const { terms, content } = read(server);
      const source = sourceOf(server);
      const stand = documentsFor(content, vectors[at] ?? []);
      planned.push({ server, source, content: () => read(server).content, ...stand });
      const ready: IndexedDocuments = { id: server.id, ...terms, vectors: source };
      documents.push({ id: server.id, documents: () => Promise.resolve(ready) });
      await pause();
    }
    const manner = whole ? 'anew' : 'one by one';
    const takeEffect = await this.#servers.prepare({ removed, upserted: documents, manner }, signal);
    const tellEngine = await this.#replica.prepare(planned, removed);
    return async () => {
      // First, as from now on a replaced catalogue is not what the engine holds.
      const told = tellEngine();
      await takeEffect();
      await told;
    };
  }

  async find(query: string): Promise<Findings> {
    const terms = [...new Set(tokenize(query))];
    const unquantized = await this.#queryVectors.of(sentencesOf(query));
    const vectors = unquantized.map(quantize);
    const asked = this.#servers.current;
    const found = await this.#replica.search(this.#queries(terms, vectors));
    const cosines = new Map<VectorSource, Float32Array>();
    for (;;) {
      // From here to the answer without a pause: a query sees every server before or after an update, never half of it.
      const { current } = this.#servers;
      // Of a catalogue that was replaced meanwhile, the engine's answer says nothing.
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

  compareTools(query: string, server: Described): Promise<readonly ToolEvidence[]> {
    const { dimensions } = this.#context.embedder;
    return compareTools(query, server, { dimensions, queryVectors: this.#queryVectors, cache: this.#cache });
  }

  async close(): Promise<void> {
    await this.#servers.settled();
    await this.#replica.close();
  }

  /** One list a sentence by meaning, one by keyword: the rarest terms, the engine giving up the others first. */
  #queries(terms: readonly string[], vectors: readonly QuantizedVector[]): EngineQuery[] {
    const { current } = this.#servers;
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

  /** Candidates without the engine: what can be had at once. */
  #substitutes(terms: readonly string[], vectors: readonly QuantizedVector[]): string[] {
    const { current } = this.#servers;
    const byKeyword = bestOfEach(current.score(terms, new Float32Array(0))).map(one => one.serverId);
    if (vectors.length === 0) return byKeyword;
    const inMemory = [...current.ids()].filter(id => {
      const source = current.sourceOf(id);
      return source && this.#vectors.has(source);
    });
    return [...byKeyword, ...inMemory];
  }

  /** Adds the cosines of each source; none where its vectors cannot be read. */
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
      if (this.#failure === undefined) this.#context.log.warn({ err: error }, VECTORS_UNREADABLE);
      this.#failure = VECTORS_UNREADABLE;
    }
    for (const [at, source] of sources.entries()) cosines.set(source, added[at] ?? new Float32Array(0));
  }
}

const VECTORS_UNREADABLE = 'stored vectors cannot be read: ranking by keyword only';

/** What the index in memory and what the engine take of a server. */
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

const sourceOf = (server: Server): VectorSource => ({
  key: hashOf(proseOf(server)),
  texts: () => proseOf(server),
});

function joined(...reasons: readonly (string | undefined)[]): string | undefined {
  const known = reasons.filter(reason => reason !== undefined);
  return known.length === 0 ? undefined : known.join('; ');
}
