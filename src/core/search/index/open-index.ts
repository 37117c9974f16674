import { eq } from 'drizzle-orm';
import { SwitchboardError } from '../../../errors.ts';
import { pagesOf } from '../../../platform/pages.ts';
import { Repeat, type Clock } from '../../../platform/time.ts';
import type { Database } from '../../../platform/database/database.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import { asSentence } from '../../../platform/sanitize.ts';
import type { Metrics } from '../../metrics.ts';
import type { Catalogue, OnProgress } from '../../catalogue/catalogue.ts';
import { documentsOf, textCount } from '../documents.ts';
import { createMiniLmEmbedder, WeightsUnavailable } from '../embed/minilm/embedder.ts';
import { createNgramEmbedder } from '../embed/ngrams.ts';
import type { Embedder } from '../embed/embedder.ts';
import type { EmbeddingApiConfig, EmbeddingLimits } from '../embed/openai-api.ts';
import { OpenAiEmbedder } from '../embed/openai.ts';
import { embeddings, searchDocuments } from '../schema.ts';
import { createEmbeddedIndex } from './search-index-embedded.ts';
import { createMeilisearchIndex, type MeilisearchAddress } from './search-index-meilisearch.ts';
import type { SearchIndex } from './search-index.ts';
import { VectorCache, VectorPruning } from './vector-cache.ts';

interface OpenIndexOptions {
  readonly db: Database;
  readonly log: Log;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly catalogue: Catalogue;
  readonly shippedVectors: string;
  /** Absent: the embedded index. */
  readonly meilisearch: MeilisearchAddress | undefined;
  /** The local embedder, which is closed with the index, or the API of one. */
  readonly embedding: Promise<LocalEmbedder> | EmbeddingApiConfig;
  readonly embeddingLimits?: Partial<EmbeddingLimits> | undefined;
}

export interface LocalEmbedder {
  readonly embedder: Embedder;
  /** Why it stands in for a better one. */
  readonly degraded?: string | undefined;
}

export interface OpenIndex {
  readonly index: SearchIndex;
  /** The current problem, in a few words; undefined if there is none. */
  readonly degraded: () => string | undefined;
  /**
   * Deletes the stored vectors of the current embedder, embeds all texts again and rebuilds the index. Searches use the old
   * vectors until then.
   * @throws SwitchboardError `unavailable`, before anything is deleted, if the embedder does not work
   */
  readonly reindex: (onProgress?: OnProgress, signal?: AbortSignal) => Promise<{ readonly servers: number }>;
  close(): Promise<void>;
}

/** The pause before a retry after an error of something other than the API, such as the database. */
const RETRY_MS = 30_000;
/** Texts that are embedded at a time. */
const TEXTS_OF_A_PAGE = 1_000;
const INCOMPLETE = 'some texts have no vectors yet: they are found by keyword only';

/** Opens the search index of this process with its embedder, still empty. The metrics report degraded parts. */
export async function openSearchIndex(options: OpenIndexOptions): Promise<OpenIndex> {
  const { db, log, metrics, catalogue, meilisearch, embedding } = options;
  await using opened = new AsyncDisposableStack();
  const { embedder, degraded: instead }: LocalEmbedder =
    embedding instanceof Promise
      ? await embedding
      : {
          embedder: await OpenAiEmbedder.connect({
            config: embedding,
            db,
            log,
            metrics,
            limits: options.embeddingLimits,
          }),
        };
  // Before the caller waits for changes of the catalogue, which would otherwise embed all their texts first.
  opened.defer(() => embedder.close());
  const shippedVectors = embedder instanceof OpenAiEmbedder ? undefined : options.shippedVectors;
  const readServers = async (ids: readonly string[]) => [...(await catalogue.read(ids)).values()];
  const context = { ...options, embedder, shippedVectors, degraded: instead, readServers };
  const engine = meilisearch && (await createMeilisearchIndex({ ...meilisearch, ...context }));
  const index = engine ?? (await createEmbeddedIndex(context));
  opened.defer(() => index.close());

  const embedAll = async (onProgress?: OnProgress, signal?: AbortSignal) => {
    const cache = await VectorCache.open({ embedder, db, log, shippedFile: shippedVectors });
    const of = catalogue.parts;
    let before = 0;
    for await (const page of pagesOf(catalogue.servers(), TEXTS_OF_A_PAGE, textCount)) {
      const texts = page.flatMap(server => documentsOf(server).parts.map(({ prose }) => prose));
      const progressOf = ({ done }: Parameters<OnProgress>[0]) => onProgress?.({ done: before + done, of });
      await cache.vectorsOf(texts, progressOf, signal);
      before += texts.length;
    }
  };
  const refill = () => catalogue.reindex(change => index.prepare(change));
  const completion =
    embedder instanceof OpenAiEmbedder ? new Completion({ api: embedder, embedAll, refill, log }) : undefined;
  if (completion) opened.defer(() => completion.close());
  const pruning = new VectorPruning({ db, log, index, catalogue });
  opened.defer(() => pruning.close());

  metrics.watchDegraded('embedder', () => index.degraded !== engine?.engineDegraded);
  metrics.watchDegraded('index', () => engine?.engineDegraded !== undefined || completion?.isDue === true);
  const running = opened.move();
  return {
    index,
    degraded() {
      const all = [index.degraded, completion?.isDue === true ? INCOMPLETE : undefined].filter(
        one => one !== undefined,
      );
      return all.length === 0 ? undefined : all.join('; ');
    },
    async reindex(onProgress, signal) {
      if (embedder instanceof OpenAiEmbedder) embedder.forgetQueries();
      await embedder.embed(['Does the embedder work?'], 'query').catch(notReindexed);
      await db.delete(embeddings).where(eq(embeddings.embedder, embedder.id));
      // Their vectors are read again; searches use the old ones until then.
      await db
        .update(searchDocuments)
        .set({ isComplete: false })
        .where(eq(searchDocuments.embedder, embedder.id));
      await embedAll(onProgress, signal);
      await refill();
      return { servers: index.size };
    },
    close: () => running.disposeAsync(),
  };
}

function notReindexed(cause: unknown): never {
  const reason = cause instanceof Error ? cause.message : String(cause);
  const message = `Nothing was changed, because the embedding model does not work: ${asSentence(reason)}`;
  throw new SwitchboardError('unavailable', message, { cause });
}

/** Opens the model that runs in this process, or what stands in for it. It needs no database. */
export async function openLocalEmbedder(log: Log): Promise<LocalEmbedder> {
  try {
    return { embedder: await createMiniLmEmbedder() };
  } catch (error) {
    if (!(error instanceof WeightsUnavailable)) throw error;
    const degraded = 'embedding model missing: searching by words and character n-grams';
    log.warn({ err: error }, degraded);
    return { embedder: createNgramEmbedder(), degraded };
  }
}

interface CompletionParts {
  readonly api: OpenAiEmbedder;
  /** Embeds all texts without a vector into the database, so that no catalogue change has to wait for the API. */
  readonly embedAll: () => Promise<void>;
  /** Rebuilds the index from the database. */
  readonly refill: () => Promise<void>;
  readonly log: Log;
}

/** Adds missing vectors as soon as a failed embedding API works again. */
class Completion {
  readonly #parts: CompletionParts;
  #done = 0;
  #isClosing = false;
  readonly #repeat = new Repeat(RETRY_MS, () => this.#complete());

  constructor(parts: CompletionParts) {
    this.#parts = parts;
    parts.api.onWorking = () => this.#repeat.kick();
    this.#repeat.start(RETRY_MS);
  }

  /** True while texts in the index lack their vectors. */
  get isDue(): boolean {
    return this.#parts.api.missed > this.#done;
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    await this.#parts.api.close();
    await this.#repeat.stop();
  }

  async #complete(): Promise<void> {
    const { api, embedAll, refill, log } = this.#parts;
    const { missed } = api;
    if (!this.isDue || !api.isAsked) return;
    try {
      await embedAll();
      // The API has failed again: retried once it works.
      if (api.missed > missed) return;
      await refill();
      this.#done = missed;
      log.info({ embedder: api.id }, 'completed the search index');
    } catch (error) {
      if (!this.#isClosing) log.error({ err: error }, 'failed to complete the search index: will try again');
    }
  }
}
