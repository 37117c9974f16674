import { SwitchboardError } from '../../../errors.ts';
import { pagesOf } from '../../../platform/pages.ts';
import { slices, type Pause } from '../../../platform/time.ts';
import type { CatalogueChange, OnProgress, WholeCatalogue } from '../../catalogue/catalogue.ts';
import type { Server } from '../../catalogue/entry.ts';
import {
  bestOfEach,
  CANDIDATES_BY_EACH,
  IndexedCatalogue,
  IndexWithEmbedder,
  openCache,
  type Indexable,
  type IndexContext,
} from './indexed-catalogue.ts';
import { documentsOf, termsInSlices, textCount } from '../documents.ts';
import { IndexedServers, type IndexedDocuments } from './indexed-servers.ts';
import type { QuantizedVector } from './vectors.ts';
import type { Asked, Findings, SearchIndex } from './search-index.ts';
import type { VectorCache } from './vector-cache.ts';

/** Servers, tools and examples together, for which the process takes about 1.5 GB (`npm run bench:scale`). */
const MAX_TEXTS = 400_000;

interface EmbeddedIndexContext extends IndexContext {
  /** The maximum number of servers, tools and examples together. */
  readonly maxTexts?: number;
}

/**
 * Creates the embedded index: BM25 and a scan over all vectors, in this process. Scanning the 40,000 texts of the
 * shipped catalogue takes a few milliseconds.
 */
export async function createEmbeddedIndex(context: EmbeddedIndexContext): Promise<SearchIndex> {
  return new EmbeddedIndex(context, await openCache(context));
}

class EmbeddedIndex extends IndexWithEmbedder<EmbeddedIndexContext> implements SearchIndex {
  readonly #servers: IndexedCatalogue;

  constructor(context: EmbeddedIndexContext, cache: VectorCache) {
    super(context, cache);
    this.#servers = new IndexedCatalogue(() => new IndexedServers(context.embedder.dimensions));
  }

  get id(): string {
    return `embedded:${this.embedderId}`;
  }

  get epoch(): number {
    return this.#servers.epoch;
  }

  get size(): number {
    return this.#servers.current.size;
  }

  get degraded(): string | undefined {
    return this.embedderDegraded;
  }

  protected frequencyOf(term: string): number {
    return this.#servers.current.frequencyOf(term);
  }

  async prepare(
    { upserted, removed, whole }: CatalogueChange,
    onProgress?: OnProgress,
    signal?: AbortSignal,
  ): Promise<() => Promise<void>> {
    const manner: 'at once' | 'one by one' = whole ? 'at once' : 'one by one';
    this.#refuseTooMany(whole?.parts ?? this.#textsAfter(upserted, removed));
    // Everything is embedded before anything is staged.
    const indexables = await this.#indexablesOf(upserted, onProgress, signal);
    const isAnew = whole !== undefined && (whole.isAnew === true || partsOf(upserted) * 2 > whole.parts);
    const change = isAnew
      ? { removed, upserted: [], manner, all: () => this.#all(whole, signal) }
      : { removed, upserted: indexables, manner };
    return this.#servers.prepare(change, signal);
  }

  #textsAfter(upserted: readonly Server[], removed: readonly string[]): number {
    const { current } = this.#servers;
    const gone = [...upserted.map(({ id }) => id), ...removed].reduce(
      (sum, id) => sum + current.textsOf(id),
      0,
    );
    return current.texts - gone + partsOf(upserted);
  }

  /** @throws SwitchboardError `invalid_request` */
  #refuseTooMany(texts: number): void {
    const { maxTexts = MAX_TEXTS } = this.context;
    if (texts <= maxTexts) return;
    throw new SwitchboardError(
      'invalid_request',
      `With the embedded search index, a catalogue may have at most ${maxTexts} servers, tools and examples together. This one would have ${texts}. Set MEILISEARCH_URL (docs/operations/meilisearch.md), or use fewer servers.`,
    );
  }

  async *#all({ servers }: WholeCatalogue, signal?: AbortSignal): AsyncGenerator<Indexable> {
    for await (const page of pagesOf(servers(), PAGE_TEXTS, textCount))
      yield* await this.#indexablesOf(page, undefined, signal);
  }

  async find({ terms, vectors: embedded }: Asked, count = CANDIDATES_BY_EACH): Promise<Findings> {
    const vectors = await embedded;
    // No await from here on: a query sees every server before or after an update, never half of it.
    const { current } = this.#servers;
    const candidates = bestOfEach(current.score(terms, current.cosines(vectors)), count);
    return { candidates, vectors };
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
      const own = vectors.slice(at, (at += textCount(server)));
      return { id: server.id, documents: turn => indexedDocuments(server, own, turn) };
    });
  }
}

/** Texts whose vectors are read together. */
const PAGE_TEXTS = 3_000;

/** Counts the documents of the servers. */
const partsOf = (servers: readonly Server[]): number =>
  servers.reduce((sum, server) => sum + textCount(server), 0);

async function indexedDocuments(
  server: Server,
  vectors: readonly QuantizedVector[],
  pause: Pause,
): Promise<IndexedDocuments> {
  const terms = await termsInSlices(documentsOf(server), pause);
  return { id: server.id, tools: server.tools.length, ...terms, vectors };
}
