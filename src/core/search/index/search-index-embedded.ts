import { slices, type Clock, type Pause } from '../../../platform/time.ts';
import type { Database } from '../../../platform/database/database.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import type { CatalogueChange, OnProgress } from '../../catalogue/catalogue.ts';
import type { Server } from '../../catalogue/entry.ts';
import { bestOfEach, compareTools, IndexedCatalogue, type Indexable } from './indexed-catalogue.ts';
import { documentsOf, sentencesOf, tokenize, type Described } from '../documents.ts';
import { QueryVectors, type Embedder } from '../embed/embedder.ts';
import { IndexedServers, type IndexedDocuments } from './indexed-servers.ts';
import type { QuantizedVector } from './vectors.ts';
import type { Findings, SearchIndex, ToolEvidence } from './search-index.ts';
import { VectorCache } from './vector-cache.ts';

interface EmbeddedIndexContext {
  readonly embedder: Embedder;
  readonly db: Database;
  readonly log: Log;
  readonly clock: Clock;
  /** The file of shipped vectors, if this catalogue has one. */
  readonly shippedVectors?: string | undefined;
  /** Why `embedder` replaces a better one. */
  readonly degraded?: string | undefined;
}

/**
 * Creates the embedded index: BM25 and a scan over all vectors, in this process. Scanning the catalogue's 35,000 tools takes
 * a few milliseconds.
 */
export async function createEmbeddedIndex(context: EmbeddedIndexContext): Promise<SearchIndex> {
  const vectors = await VectorCache.open({
    embedder: context.embedder,
    db: context.db,
    log: context.log,
    shippedFile: context.shippedVectors,
  });
  return new EmbeddedIndex(context, vectors);
}

class EmbeddedIndex implements SearchIndex {
  readonly #context: EmbeddedIndexContext;
  readonly #queryVectors: QueryVectors;
  readonly #cache: VectorCache;
  readonly #servers: IndexedCatalogue;

  constructor(context: EmbeddedIndexContext, cache: VectorCache) {
    this.#context = context;
    this.#queryVectors = new QueryVectors(context);
    this.#cache = cache;
    this.#servers = new IndexedCatalogue(() => new IndexedServers(context.embedder.dimensions));
  }

  get id(): string {
    return `embedded:${this.embedderId}`;
  }

  get embedderId(): string {
    return this.#context.embedder.id;
  }

  get epoch(): number {
    return this.#servers.epoch + this.#queryVectors.changes;
  }

  get size(): number {
    return this.#servers.current.size;
  }

  get degraded(): string | undefined {
    return this.#queryVectors.failure ?? this.#context.degraded;
  }

  async prepare(
    { upserted, removed, whole }: CatalogueChange,
    onProgress?: OnProgress,
    signal?: AbortSignal,
  ): Promise<() => Promise<void>> {
    const isAnew = whole !== undefined && partsOf(upserted) * 2 > partsOf(whole);
    const manner = whole ? (isAnew ? 'anew' : 'at once') : 'one by one';
    const servers = isAnew ? whole : upserted;
    const indexables = await this.#indexablesOf(servers, onProgress, signal);
    return this.#servers.prepare({ removed, upserted: indexables, manner }, signal);
  }

  async find(query: string): Promise<Findings> {
    const terms = [...new Set(tokenize(query))];
    const vectors = await this.#queryVectors.of(sentencesOf(query));
    // No await from here on: a query sees every server before or after an update, never half of it.
    const { current } = this.#servers;
    return { candidates: bestOfEach(current.score(terms, current.cosines(vectors))), vectors };
  }

  compareTools(query: string, server: Described): Promise<readonly ToolEvidence[]> {
    const { dimensions } = this.#context.embedder;
    return compareTools(query, server, { dimensions, queryVectors: this.#queryVectors, cache: this.#cache });
  }

  close(): Promise<void> {
    return this.#servers.settled();
  }

  async #indexablesOf(
    servers: readonly Server[],
    onProgress?: OnProgress,
    signal?: AbortSignal,
  ): Promise<Indexable[]> {
    const pause = slices(signal);
    const texts: string[] = [];
    for (const server of servers) {
      for (const { prose } of documentsOf(server).parts) texts.push(prose);
      await pause();
    }
    const vectors = await this.#cache.vectorsOf(texts, onProgress, signal);
    let at = 0;
    return servers.map(server => {
      const own = vectors.slice(at, (at += 1 + server.tools.length));
      return { id: server.id, documents: turn => indexedDocuments(server, own, turn) };
    });
  }
}

/** Counts the documents of the servers: one for each server and one for each tool. */
const partsOf = (servers: readonly Server[]): number =>
  servers.reduce((sum, { tools }) => sum + 1 + tools.length, 0);

async function indexedDocuments(
  server: Server,
  vectors: readonly QuantizedVector[],
  pause: Pause,
): Promise<IndexedDocuments> {
  const { whole, parts } = documentsOf(server);
  const tokenized: string[][] = [];
  for (const { keywords } of parts) {
    tokenized.push(tokenize(keywords));
    await pause();
  }
  return { id: server.id, whole: tokenize(whole), parts: tokenized, vectors };
}
