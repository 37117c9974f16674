import { slices, type Pause } from '../../../platform/time.ts';
import type { CatalogueChange, OnProgress } from '../../catalogue/catalogue.ts';
import type { Server } from '../../catalogue/entry.ts';
import {
  bestOfEach,
  IndexedCatalogue,
  IndexWithEmbedder,
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

class EmbeddedIndex extends IndexWithEmbedder<IndexContext> implements SearchIndex {
  readonly #servers: IndexedCatalogue;

  constructor(context: IndexContext, cache: VectorCache) {
    super(context, cache);
    this.#servers = new IndexedCatalogue(() => new IndexedServers(context.embedder.dimensions));
  }

  get id(): string {
    return `embedded:${this.embedderId}`;
  }

  get epoch(): number {
    return this.#servers.epoch + this.queryVectors.changes;
  }

  get size(): number {
    return this.#servers.current.size;
  }

  get degraded(): string | undefined {
    return this.embedderDegraded;
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
    const { terms, sentences } = textsOf(query);
    const vectors = await this.queryVectors.of(sentences);
    // No await from here on: a query sees every server before or after an update, never half of it.
    const { current } = this.#servers;
    return { candidates: bestOfEach(current.score(terms, current.cosines(vectors))), vectors };
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
    const vectors = await this.cache.vectorsOf(texts, onProgress, signal);
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
