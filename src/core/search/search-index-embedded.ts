import { setImmediate } from 'node:timers/promises';
import type { Clock } from '../../infra/clock.ts';
import type { Database } from '../../infra/database.ts';
import type { Log } from '../../infra/log.ts';
import type { CatalogueChange } from '../catalogue/catalogue.ts';
import type { Server } from '../catalogue/entry.ts';
import { documentsOf } from './documents.ts';
import type { Embedder } from './embedder.ts';
import { IndexedServers, type IndexedDocuments } from './indexed-servers.ts';
import type { Candidate, SearchIndex } from './search-index.ts';
import { sentencesOf, tokenize } from './text.ts';
import { VectorCache } from './vector-cache.ts';

/** Candidates by meaning, and as many by keyword; more only where the last ones tie. */
const CANDIDATES_BY_EACH = 200;
/** The event loop is given a turn after this much work on an update. */
const SLICE_MS = 8;
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
    return this.#failure ?? this.#context.degraded;
  }

  async prepare(change: CatalogueChange): Promise<() => Promise<void>> {
    const documents = await this.#documentsOf(change.upserted);
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
    const scored = this.#current.score(terms, this.#current.cosines(vectors));
    const bySemantic = cutoff(scored.map(({ semantic }) => semantic));
    const byKeyword = cutoff(scored.map(({ keyword }) => keyword));
    return scored
      .filter(({ semantic, keyword }) => semantic >= bySemantic || keyword >= byKeyword)
      .map(({ candidate }) => candidate());
  }

  async close(): Promise<void> {
    await this.#applying;
  }

  /** None when the embedder fails: keywords then answer alone. */
  async #embed(texts: readonly string[]): Promise<Float32Array[]> {
    try {
      // One request a text: an embedder lets small requests overtake an import.
      const vectors = await Promise.all(texts.map(text => this.#context.embedder.embed([text])));
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

  async #documentsOf(servers: readonly Server[]): Promise<IndexedDocuments[]> {
    const pause = slices();
    const texts: string[] = [];
    const documents: IndexedDocuments[] = [];
    for (const server of servers) {
      const { whole, parts } = documentsOf(server);
      for (const part of parts) texts.push(part.prose);
      const tokenized = parts.map(part => tokenize(part.keywords));
      documents.push({ id: server.id, whole: tokenize(whole), parts: tokenized, vectors: [] });
      await pause();
    }
    const vectors = await this.#cache.vectorsOf(texts);
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
function cutoff(values: readonly number[]): number {
  const sorted = Float64Array.from(values).sort();
  return Math.max(sorted[sorted.length - CANDIDATES_BY_EACH] ?? 0, Number.MIN_VALUE);
}

/** Call between pieces of work: gives the event loop a turn whenever `SLICE_MS` have passed since the last one. */
function slices(): () => Promise<void> | undefined {
  let startedAt = performance.now();
  return () => {
    if (performance.now() - startedAt < SLICE_MS) return undefined;
    return setImmediate().then(() => {
      startedAt = performance.now();
    });
  };
}
