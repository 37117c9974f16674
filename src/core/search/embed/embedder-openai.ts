import type { Database } from '../../../platform/database/database.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import type { Metrics } from '../../metrics.ts';
import type { Embedder, EmbeddingPurpose } from './embedder.ts';
import { BulkLane } from './openai/batch-embedder.ts';
import { EmbeddingsClient, type EmbeddingApiConfig } from './openai/client.ts';
import { EmbeddingFailure } from './openai/failure.ts';
import { Health } from './openai/health.ts';
import { EMBEDDING_LIMITS, type EmbeddingLimits } from './openai/limits.ts';
import { EmbeddingModels } from './openai/models.ts';
import { OneModel } from './openai/one-model.ts';
import { QueryLane } from './openai/query-embedder.ts';
import { EmbeddingUsage } from './openai/usage.ts';

/** The vector store wants a multiple of it; zeros at the end leave cosines as they are. */
const DIMENSION_STEP = 16;
const UNKNOWN = 'openai:unknown';
const NOT_THIS_MODEL = 'its model is not the one that the index was made with';

interface EmbeddingApiParts {
  readonly config: EmbeddingApiConfig;
  readonly db: Database;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly limits?: Partial<EmbeddingLimits> | undefined;
}

/** An embedder that goes on while its API fails: with vectors of zeros, and a list of the texts that have them. */
export interface RemoteEmbedder extends Embedder {
  readonly missing: Set<string>;
}

/**
 * An embedding API and the model behind it, which need not be known nor even answer yet: `connect` gives the embedder of the
 * model that answers, or that answered last, or one that gives no vectors; `onWorking` tells when to ask again.
 */
export class EmbeddingApi {
  /** Called whenever a trial in the background finds the API working. */
  onWorking: () => void = () => {};
  readonly #config: EmbeddingApiConfig;
  readonly #log: Log;
  readonly #usage: EmbeddingUsage;
  readonly #client: EmbeddingsClient;
  readonly #models: EmbeddingModels;
  readonly #model: OneModel;
  readonly #health: Health;
  readonly #queries: QueryLane;
  readonly #bulk: BulkLane;
  readonly #limits: EmbeddingLimits;
  readonly #stopping = new AbortController();

  constructor({ config, db, log, metrics, limits: some }: EmbeddingApiParts) {
    const limits = { ...EMBEDDING_LIMITS, ...some };
    this.#config = config;
    this.#log = log;
    this.#limits = limits;
    this.#usage = new EmbeddingUsage(metrics, log);
    this.#client = new EmbeddingsClient(config, this.#usage);
    this.#models = new EmbeddingModels(db, config);
    const model = new OneModel({ client: this.#client, models: this.#models, limits, log });
    this.#model = model;
    const health = new Health({ trial: () => model.trial(), onWorking: () => this.onWorking(), limits, log });
    this.#health = health;
    this.#queries = new QueryLane({ model, health, limits, metrics });
    this.#bulk = new BulkLane({ model, health, limits, stopping: this.#stopping.signal });
  }

  /** See `Health`. */
  get degraded(): string | undefined {
    return this.#health.degraded;
  }

  /** See `Health`. */
  get changes(): number {
    return this.#health.changes;
  }

  /** Whether texts of imports are sent. */
  get takesTexts(): boolean {
    return this.#health.bulkHeldBack === undefined;
  }

  /** Whether vectors of this embedder can be compared with those that the API gives now. */
  gives({ id }: Pick<Embedder, 'id'>): boolean {
    return this.#model.current?.id === id;
  }

  /** The embedder to start with; asks the API once and does not wait long for it. */
  async connect(): Promise<RemoteEmbedder> {
    const { model, baseUrl } = this.#config;
    try {
      await this.#model.trial();
      const embedder = this.embedder();
      this.#log.info({ embedder: embedder.id, url: withoutQuery(baseUrl) }, 'the embedding API answers');
      return embedder;
    } catch (error) {
      if (!(error instanceof EmbeddingFailure)) throw error;
      this.#health.allFailed(error);
    }
    const last = await this.#models.last();
    if (last) this.#model.use(last);
    else
      this.#log.warn(
        { model, url: withoutQuery(baseUrl) },
        'the embedding model has never answered: no vectors yet',
      );
    return this.embedder();
  }

  async close(): Promise<void> {
    this.#stopping.abort();
    await this.#client.close();
    await this.#health.close();
    this.#usage.flush();
  }

  /** Of the model in use: the one that answers, or answered last; one without vectors while none is known. */
  embedder(): RemoteEmbedder {
    const model = this.#model.current;
    const missing = new Set<string>();
    const dimensions = Math.ceil((model?.dimensions ?? 1) / DIMENSION_STEP) * DIMENSION_STEP;

    const forQuery = async (texts: readonly string[]) => {
      if (!model || !this.gives(model)) throw new EmbeddingFailure('held_back', { detail: NOT_THIS_MODEL });
      return Promise.all(texts.map(async text => padded(await this.#queries.embed(text), dimensions)));
    };
    const forIndex = async (texts: readonly string[]) => {
      const { epoch } = this.#model;
      const vectors = model && this.gives(model) ? await this.#bulkVectors(texts) : undefined;
      const ours = this.#model.epoch === epoch ? vectors : undefined;
      if (!ours) for (const text of texts) missing.add(text);
      return texts.map((_, at) => padded(ours?.[at] ?? new Float32Array(), dimensions));
    };
    return {
      id: model?.id ?? UNKNOWN,
      dimensions,
      isWatched: true,
      indexCalls: this.#limits.bulkRequests,
      missing,
      embed: (texts: readonly string[], purpose: EmbeddingPurpose) =>
        purpose === 'query' ? forQuery(texts) : forIndex(texts),
      // Shared with the embedder that takes its place: the API is closed by itself.
      close: () => Promise.resolve(),
    };
  }

  /** Undefined while the API fails. @throws EmbeddingFailure when it is closed */
  async #bulkVectors(texts: readonly string[]): Promise<(Float32Array | undefined)[] | undefined> {
    try {
      const vectors = await this.#bulk.embed(texts);
      const refused = vectors.filter(vector => vector === undefined).length;
      if (refused > 0)
        this.#log.warn({ refused }, 'the embedding API refuses texts: they are found by keyword only');
      return vectors;
    } catch (error) {
      if (error instanceof EmbeddingFailure && error.kind !== 'closed') return undefined;
      throw error;
    }
  }
}

function padded(vector: Float32Array, dimensions: number): Float32Array {
  if (vector.length === dimensions) return vector;
  const longer = new Float32Array(dimensions);
  longer.set(vector);
  return longer;
}

/** A query may hold a secret. */
function withoutQuery(baseUrl: string): string {
  const { origin, pathname } = new URL(baseUrl);
  return origin + pathname;
}
