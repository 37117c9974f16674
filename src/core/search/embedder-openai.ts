import type { Database } from '../../infra/database.ts';
import type { Log } from '../../infra/log.ts';
import type { Metrics } from '../../infra/metrics.ts';
import type { Embedder, EmbeddingPurpose } from './embedder.ts';
import { BulkLane } from './openai/bulk-lane.ts';
import { EmbeddingsClient, type EmbeddingApiConfig } from './openai/client.ts';
import { EmbeddingFailure } from './openai/failure.ts';
import { Health } from './openai/health.ts';
import { EMBEDDING_LIMITS, type EmbeddingLimits } from './openai/limits.ts';
import { EmbeddingModels, PROBE_TEXT, type KnownModel } from './openai/models.ts';
import { QueryLane } from './openai/query-lane.ts';
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
  /** Called with the vector of the probe whenever a trial in the background finds the API working. */
  onWorking: (probe: Float32Array) => void = () => {};
  readonly #config: EmbeddingApiConfig;
  readonly #log: Log;
  readonly #usage: EmbeddingUsage;
  readonly #client: EmbeddingsClient;
  readonly #models: EmbeddingModels;
  readonly #health: Health;
  readonly #queries: QueryLane;
  readonly #bulk: BulkLane;
  readonly #limits: EmbeddingLimits;
  readonly #stopping = new AbortController();
  /** The model that answers, or answered last. */
  #model: KnownModel | undefined;
  /** How many trials in a row have found which other model. */
  #other = { id: '', trials: 0 };

  constructor({ config, db, log, metrics, limits: some }: EmbeddingApiParts) {
    const limits = { ...EMBEDDING_LIMITS, ...some };
    this.#config = config;
    this.#log = log;
    this.#limits = limits;
    this.#usage = new EmbeddingUsage(metrics, log);
    this.#client = new EmbeddingsClient(config, this.#usage);
    this.#models = new EmbeddingModels(db, config);
    const trial = () => this.#confirmedTrial();
    this.#health = new Health({ trial, onWorking: probe => this.onWorking(probe), limits, log });
    this.#queries = new QueryLane({ client: this.#client, health: this.#health, limits, metrics });
    const stopping = this.#stopping.signal;
    this.#bulk = new BulkLane({ client: this.#client, health: this.#health, limits, stopping });
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
  gives({ id }: Embedder): boolean {
    return this.#model?.id === id;
  }

  /** The embedder to start with; asks the API once and does not wait long for it. */
  async connect(): Promise<RemoteEmbedder> {
    const { model, baseUrl } = this.#config;
    try {
      const embedder = await this.embedderOf(await this.#trial());
      this.#log.info({ embedder: embedder.id, url: withoutQuery(baseUrl) }, 'the embedding API answers');
      return embedder;
    } catch (error) {
      if (!(error instanceof EmbeddingFailure)) throw error;
      this.#health.allFailed(error);
    }
    const last = await this.#models.last();
    if (last) return this.#embedder(last);
    this.#log.warn(
      { model, url: withoutQuery(baseUrl) },
      'the embedding model has never answered: no vectors yet',
    );
    return this.#embedder(undefined);
  }

  /** The embedder of the model that gave this vector to the probe. */
  async embedderOf(probe: Float32Array): Promise<RemoteEmbedder> {
    const known = await this.#models.identify(probe);
    return this.#embedder(known);
  }

  async close(): Promise<void> {
    this.#stopping.abort();
    await this.#client.close();
    await this.#health.close();
    this.#usage.flush();
  }

  /** @throws EmbeddingFailure */
  async #trial(): Promise<Float32Array> {
    const client = this.#client;
    const ask = () => client.embed([PROBE_TEXT], { lane: 'trial', limitMs: this.#limits.trialLimitMs });
    const [probe] = await ask().catch(async (error: EmbeddingFailure) => {
      if (error.kind !== 'input_refused' || client.encoding === undefined) throw error;
      client.encoding = undefined;
      return ask().catch((again: EmbeddingFailure) => {
        client.encoding = 'base64';
        throw again;
      });
    });
    if (!probe) throw new EmbeddingFailure('invalid_answer');
    return probe;
  }

  /** One odd answer is no reason to embed, and pay, everything anew. @throws EmbeddingFailure */
  async #confirmedTrial(): Promise<Float32Array> {
    const probe = await this.#trial();
    if (!this.#model) return probe;
    const { id } = await this.#models.identify(probe);
    if (id === this.#model.id) this.#other.trials = 0;
    else {
      this.#other = { id, trials: this.#other.id === id ? this.#other.trials + 1 : 1 };
      if (this.#other.trials < this.#limits.otherModelTrials)
        throw new EmbeddingFailure('other_model', { detail: `${id} in place of ${this.#model.id}` });
    }
    return probe;
  }

  #embedder(model: KnownModel | undefined): RemoteEmbedder {
    if (this.#model?.id !== model?.id) this.#queries.forget();
    this.#model = model;
    this.#client.dimensions = model?.dimensions;
    const missing = new Set<string>();
    const dimensions = Math.ceil((model?.dimensions ?? 1) / DIMENSION_STEP) * DIMENSION_STEP;

    const forQuery = async (texts: readonly string[]) => {
      if (!model || this.#model?.id !== model.id)
        throw new EmbeddingFailure('held_back', { detail: NOT_THIS_MODEL });
      return Promise.all(texts.map(async text => padded(await this.#queries.embed(text), dimensions)));
    };
    const forIndex = async (texts: readonly string[]) => {
      const vectors = model && (await this.#bulkVectors(texts));
      const areOurs = vectors !== undefined && this.#model?.id === model?.id;
      if (!areOurs) for (const text of texts) missing.add(text);
      return texts.map((_, at) =>
        padded((areOurs ? vectors[at] : undefined) ?? new Float32Array(), dimensions),
      );
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
