import type { Clock } from '../../infra/clock.ts';
import type { Database } from '../../infra/database.ts';
import type { Log } from '../../infra/log.ts';
import { slices } from '../../infra/slices.ts';
import type { CatalogueChange, OnProgress } from '../catalogue/catalogue.ts';
import type { Server } from '../catalogue/entry.ts';
import { documentsOf } from './documents.ts';
import type { Embedder } from './embedder.ts';
import { IndexedServers, type IndexedDocuments } from './indexed-servers.ts';
import { nthLargest } from './nth-largest.ts';
import type { Candidate, SearchIndex } from './search-index.ts';
import { sentencesOf, tokenize } from './text.ts';
import { VectorCache } from './vector-cache.ts';

/** Candidates by meaning, and as many by keyword; more only where the last ones tie. */
const CANDIDATES_BY_EACH = 200;
const WARN_EVERY_MS = 60_000;
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
  readonly #cache: VectorCache;
  #current: IndexedServers;
  #epoch = 0;
  /** Applications of changes run one after another; `#pending` counts those not done. */
  #applying: Promise<void> = Promise.resolve();
  #pending = 0;
  #failure: string | undefined;
  #warnedAt = -Infinity;

  constructor(context: EmbeddedIndexContext, cache: VectorCache) {
    this.id = `embedded:${context.embedder.id}`;
    this.#context = context;
    this.#cache = cache;
    this.#current = new IndexedServers(context.embedder.dimensions);
  }

  get epoch(): number {
    return this.#epoch;
  }

  get size(): number {
    return this.#current.size;
  }

  get degraded(): string | undefined {
    const { embedder, degraded } = this.#context;
    return (embedder.isWatched ? undefined : this.#failure) ?? degraded;
  }

  async prepare(change: CatalogueChange, onProgress?: OnProgress): Promise<() => Promise<void>> {
    const documents = await this.#documentsOf(change.upserted, onProgress);
    const epoch = this.#epoch;
    const fresh = this.#coversAll(change) ? await this.#build(documents) : undefined;
    return () => {
      // Whoever asks next finds all of the new catalogue, nobody a part of it.
      if (fresh && this.#pending === 0 && this.#epoch === epoch) {
        this.#current = fresh;
        this.#epoch++;
        return Promise.resolve();
      }
      this.#pending++;
      const applied = this.#applying
        .then(() => this.#apply(change.removed, documents))
        .finally(() => this.#pending--);
      this.#applying = applied.catch(() => {});
      return applied;
    };
  }

  async candidates(query: string): Promise<Candidate[]> {
    const terms = [...new Set(tokenize(query))];
    const vectors = await this.#embed(sentencesOf(query));
    // From here on without a pause: a query sees every server before or after an update, never half of it.
    const { semantic, keyword, candidate } = this.#current.score(terms, vectors);
    const bySemantic = cutoff(semantic);
    const byKeyword = cutoff(keyword);
    const found: Candidate[] = [];
    for (let slot = 0; slot < semantic.length; slot++) {
      if ((semantic[slot] ?? 0) >= bySemantic || (keyword[slot] ?? 0) >= byKeyword)
        found.push(candidate(slot));
    }
    return found;
  }

  async close(): Promise<void> {
    await this.#applying;
  }

  /** None when the embedder fails: keywords then answer alone. */
  async #embed(texts: readonly string[]): Promise<Float32Array[]> {
    try {
      // One request a text: an embedder lets small requests overtake an import.
      const vectors = await Promise.all(texts.map(text => this.#context.embedder.embed([text], 'query')));
      this.#failure = undefined;
      return vectors.flat();
    } catch (error) {
      this.#failure = 'embedder failing: searching by keyword only';
      const now = this.#context.clock.now();
      if (now - this.#warnedAt >= WARN_EVERY_MS) {
        this.#warnedAt = now;
        this.#context.log.warn({ err: error }, 'query not embedded: searching by keyword only');
      }
      return [];
    }
  }

  /** Whether nothing that is indexed now would stay as it is. */
  #coversAll({ upserted, removed }: CatalogueChange): boolean {
    const touched = new Set([...removed, ...upserted.map(server => server.id)]);
    for (const id of this.#current.ids()) if (!touched.has(id)) return false;
    return true;
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

  async #build(documents: readonly IndexedDocuments[]): Promise<IndexedServers> {
    const pause = slices();
    const fresh = new IndexedServers(this.#context.embedder.dimensions);
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

/** The value from which on a server is among the best; at least above 0, which is no evidence. */
function cutoff(values: ArrayLike<number>): number {
  return Math.max(nthLargest(values, CANDIDATES_BY_EACH), Number.MIN_VALUE);
}
