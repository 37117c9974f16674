import type { Clock } from '../../../platform/clock.ts';
import type { Database } from '../../../platform/database/database.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import type { Metrics } from '../../metrics.ts';
import type { Catalogue } from '../../catalogue/catalogue.ts';
import { createMiniLmEmbedder, WeightsUnavailable } from '../embed/embedder-minilm.ts';
import { createNgramEmbedder } from '../embed/embedder-ngrams.ts';
import { EmbeddingApi } from '../embed/embedder-openai.ts';
import type { Embedder } from '../embed/embedder.ts';
import type { EmbeddingApiConfig } from '../embed/openai/client.ts';
import type { EmbeddingLimits } from '../embed/openai/limits.ts';
import { createEmbeddedIndex } from './search-index-embedded.ts';
import { createMeilisearchIndex, type MeilisearchAddress } from './search-index-meilisearch.ts';
import { RecoveringIndex } from './search-index-recovering.ts';
import type { SearchIndex } from './search-index.ts';

interface OpenIndexOptions {
  readonly db: Database;
  readonly log: Log;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly catalogue: Catalogue;
  readonly shippedVectors: string;
  /** Absent: the embedded index. */
  readonly meilisearch: MeilisearchAddress | undefined;
  /** Absent: the local model embeds. */
  readonly embeddingApi: EmbeddingApiConfig | undefined;
  readonly embeddingLimits?: Partial<EmbeddingLimits> | undefined;
  /** In place of either. */
  readonly embedder?: (() => Promise<Embedder>) | undefined;
}

export interface OpenIndex {
  readonly index: SearchIndex;
  close(): Promise<void>;
}

/** The search index of this process with its embedder, still empty; what works worse than it should is in the metrics. */
export function openSearchIndex(options: OpenIndexOptions): Promise<OpenIndex> {
  const { embeddingApi, embedder } = options;
  return embeddingApi && !embedder ? openRemote(options, embeddingApi) : openLocal(options);
}

async function openRemote(options: OpenIndexOptions, config: EmbeddingApiConfig): Promise<OpenIndex> {
  const { db, log, clock, metrics, catalogue, meilisearch } = options;
  const api = new EmbeddingApi({ config, db, log, metrics, limits: options.embeddingLimits });
  const index = await RecoveringIndex.open({
    api,
    createIndex: embedder =>
      meilisearch
        ? createMeilisearchIndex({ ...meilisearch, embedder, db, log, clock })
        : createEmbeddedIndex({ embedder, db, log, clock }),
    active: () => catalogue.active(),
    reindex: prepare => catalogue.reindex(prepare),
    db,
    log,
  }).catch(async (error: unknown) => {
    await api.close();
    throw error;
  });
  metrics.watchDegraded('embedder', () => api.degraded !== undefined);
  metrics.watchDegraded('index', () => index.indexDegraded !== undefined);
  return { index, close: () => index.close() };
}

async function openLocal(options: OpenIndexOptions): Promise<OpenIndex> {
  const { db, log, clock, metrics, shippedVectors, meilisearch } = options;
  const { embedder, degraded } = options.embedder
    ? { embedder: await options.embedder(), degraded: undefined }
    : await localEmbedder(log);
  const context = { db, embedder, log, clock, shippedVectors, degraded };
  const engine = meilisearch && (await createMeilisearchIndex({ ...meilisearch, ...context }));
  const index = engine ?? (await createEmbeddedIndex(context));
  metrics.watchDegraded('embedder', () => index.degraded !== engine?.engineDegraded);
  metrics.watchDegraded('index', () => engine?.engineDegraded !== undefined);
  const close = async () => {
    await index.close();
    await embedder.close();
  };
  return { index, close };
}

async function localEmbedder(log: Log): Promise<{ embedder: Embedder; degraded: string | undefined }> {
  try {
    return { embedder: await createMiniLmEmbedder(), degraded: undefined };
  } catch (error) {
    if (!(error instanceof WeightsUnavailable)) throw error;
    const degraded = 'embedding model missing: searching by words and character n-grams';
    log.warn({ err: error }, degraded);
    return { embedder: createNgramEmbedder(), degraded };
  }
}
