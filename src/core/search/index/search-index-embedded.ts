import { pagesOf } from '../../../platform/pages.ts';
import { slices, type Pause } from '../../../platform/time.ts';
import type { CatalogueChange, OnProgress, WholeCatalogue } from '../../catalogue/catalogue.ts';
import type { Server } from '../../catalogue/entry.ts';
import {
  bestOfEach,
  IndexInMemory,
  openCache,
  type Indexable,
  type IndexContext,
} from './indexed-catalogue.ts';
import { documentsOf, tokenize, textsOf } from '../documents.ts';
import { IndexedServers, type IndexedDocuments } from './indexed-servers.ts';
import type { QuantizedVector } from './vectors.ts';
import type { Findings, SearchIndex } from './search-index.ts';
import type { VectorCache } from './vector-cache.ts';

/**
 * Creates the embedded index: BM25 and a scan over all vectors, in this process. Scanning the catalogue's 35,000 tools takes
 * a few milliseconds.
 */
export async function createEmbeddedIndex(context: IndexContext): Promise<SearchIndex> {
  return new EmbeddedIndex(context, await openCache(context));
}

class EmbeddedIndex extends IndexInMemory<IndexContext> implements SearchIndex {
  constructor(context: IndexContext, cache: VectorCache) {
    super(context, cache, () => new IndexedServers(context.embedder.dimensions));
  }

  get id(): string {
    return `embedded:${this.embedderId}`;
  }

  get degraded(): string | undefined {
    return this.embedderDegraded;
  }

  async prepare(
    { upserted, removed, whole }: CatalogueChange,
    onProgress?: OnProgress,
    signal?: AbortSignal,
  ): Promise<() => Promise<void>> {
    const manner: 'at once' | 'one by one' = whole ? 'at once' : 'one by one';
    // Everything is embedded before anything is staged.
    const indexables = await this.#indexablesOf(upserted, onProgress, signal);
    const isAnew = whole !== undefined && (whole.isAnew === true || partsOf(upserted) * 2 > whole.parts);
    const change = isAnew
      ? { removed, upserted: [], manner, all: () => this.#all(whole, signal) }
      : { removed, upserted: indexables, manner };
    return this.servers.prepare(change, signal);
  }

  async *#all({ servers }: WholeCatalogue, signal?: AbortSignal): AsyncGenerator<Indexable> {
    for await (const page of pagesOf(servers(), PAGE))
      yield* await this.#indexablesOf(page, undefined, signal);
  }

  async find(query: string): Promise<Findings> {
    const { terms, sentences } = textsOf(query);
    const vectors = await this.queryVectors.of(sentences);
    // No await from here on: a query sees every server before or after an update, never half of it.
    const { current } = this.servers;
    return { candidates: bestOfEach(current.score(terms, current.cosines(vectors))), vectors };
  }

  close(): Promise<void> {
    return this.servers.settled();
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
    const vectors = await this.cache.vectorsOf(texts, onProgress, signal);
    let at = 0;
    return servers.map(server => {
      const own = vectors.slice(at, (at += 1 + server.tools.length));
      return { id: server.id, documents: turn => indexedDocuments(server, own, turn) };
    });
  }
}

/** Servers whose vectors are read together. */
const PAGE = 500;

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
