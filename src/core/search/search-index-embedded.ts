import { slices } from '../../infra/slices.ts';
import type { Clock } from '../../infra/clock.ts';
import type { Database } from '../../infra/database.ts';
import type { Log } from '../../infra/log.ts';
import type { CatalogueChange, OnProgress } from '../catalogue/catalogue.ts';
import type { Server } from '../catalogue/entry.ts';
import { bestOfEach } from './best-candidates.ts';
import { documentsOf } from './documents.ts';
import type { Embedder } from './embedder.ts';
import { IndexedCatalogue } from './indexed-catalogue.ts';
import { IndexedServers, type IndexedDocuments } from './indexed-servers.ts';
import { QueryVectors } from './query-vectors.ts';
import type { Findings, SearchIndex } from './search-index.ts';
import { sentencesOf, tokenize } from './text.ts';
import { VectorCache } from './vector-cache.ts';

interface EmbeddedIndexContext {
  readonly embedder: Embedder;
  readonly db: Database;
  readonly log: Log;
  readonly clock: Clock;
  /** The file of shipped vectors, if there is one for this catalogue. */
  readonly shippedVectors?: string | undefined;
  /** Why `embedder` stands in for a better one. */
  readonly degraded?: string | undefined;
}

/** BM25 and a scan over all vectors, in this process. The catalogue's 35,000 tools take a scan of a few milliseconds. */
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
  readonly id: string;
  readonly #context: EmbeddedIndexContext;
  readonly #queryVectors: QueryVectors;
  readonly #cache: VectorCache;
  readonly #servers: IndexedCatalogue;

  constructor(context: EmbeddedIndexContext, cache: VectorCache) {
    this.id = `embedded:${context.embedder.id}`;
    this.#context = context;
    this.#queryVectors = new QueryVectors(context);
    this.#cache = cache;
    this.#servers = new IndexedCatalogue(() => new IndexedServers(context.embedder.dimensions));
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
    return this.#queryVectors.failure ?? this.#context.degraded;
  }

  async prepare(
    { upserted, removed }: CatalogueChange,
    onProgress?: OnProgress,
  ): Promise<() => Promise<void>> {
    return this.#servers.prepare(removed, await this.#documentsOf(upserted, onProgress));
  }

  async find(query: string): Promise<Findings> {
    const terms = [...new Set(tokenize(query))];
    const vectors = await this.#queryVectors.of(sentencesOf(query));
    // From here on without a pause: a query sees every server before or after an update, never half of it.
    const { current } = this.#servers;
    return { candidates: bestOfEach(current.score(terms, current.cosines(vectors))), vectors };
  }

  close(): Promise<void> {
    return this.#servers.settled();
  }

  async #documentsOf(servers: readonly Server[], onProgress?: OnProgress): Promise<IndexedDocuments[]> {
    const pause = slices();
    const texts: string[] = [];
    const documents: IndexedDocuments[] = [];
    for (const server of servers) {
      const { whole, parts } = documentsOf(server);
      for (const part of parts) texts.push(part.prose);
      const tokenized: string[][] = [];
      for (const part of parts) {
        tokenized.push(tokenize(part.keywords));
        await pause();
      }
      documents.push({ id: server.id, whole: tokenize(whole), parts: tokenized, vectors: [] });
      await pause();
    }
    const vectors = await this.#cache.vectorsOf(texts, onProgress);
    let at = 0;
    for (const one of documents) {
      one.vectors = vectors.slice(at, at + one.parts.length);
      at += one.parts.length;
    }
    return documents;
  }
}
