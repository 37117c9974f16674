import { setTimeout as delay } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';
import type { Database } from '../../../platform/database/database.ts';
import { readSetting, writeSetting } from '../../../platform/database/settings.ts';
import { raceDeadline } from '../../../platform/time.ts';
import { SerialQueue } from '../../../platform/queues.ts';
import { withoutSpan } from '../../../platform/telemetry/tracing.ts';
import { OutageLog } from '../../../platform/telemetry/throttled-log.ts';
import { wordsOf, type Embedder, type EmbeddingPurpose, type Passage } from './embedder.ts';
import {
  EmbeddingApi,
  EmbeddingFailure,
  Health,
  LIMITS,
  RETRYABLE,
  type EmbeddingApiParts,
  type EmbeddingLimits,
} from './openai-api.ts';

const TRIAL_TEXT = 'Does the embedding API respond?';
/** About 2,000 tokens of English, and at most about 8,000 of any script. In UTF-16 units. */
const MAX_TEXT_UNITS = 6_000;
/** Limits the total text of one request, so that it stays below a few hundred kilobytes. In UTF-16 units. */
const MAX_REQUEST_UNITS = 100_000;
/** A rejected text is not shortened further than this. In UTF-16 units. */
const SHORTEST_CUT = 250;
/** The vector store needs a multiple of this; zeros at the end do not change cosines. */
const DIMENSION_STEP = 16;
const QUERY_CACHE_BYTES = 16 * 1024 * 1024;

interface OpenAiParts extends EmbeddingApiParts {
  readonly db: Database;
  readonly limits?: Partial<EmbeddingLimits> | undefined;
}

/**
 * Embeds with an API. While the API fails, queries are refused and texts for the index get zero vectors; background trials detect
 * when it works again. The dimensions are learned from the API's first response, so `id` and `dimensions` may change while the
 * embedder is in use.
 * @example
 * await OpenAiEmbedder.connect({ config: { baseUrl, apiKey, model: 'text-embedding-3-small' }, db, log, metrics })
 */
export class OpenAiEmbedder implements Embedder {
  /** Called after each background trial that succeeds. */
  onWorking: () => void = () => {};
  readonly indexCalls: number;
  readonly #parts: OpenAiParts;
  readonly #limits: EmbeddingLimits;
  readonly #api: EmbeddingApi;
  /** Host and model: vectors of different models are never compared. */
  readonly #name: string;
  readonly #settingKey: string;
  #dimensions: number | undefined;
  /** Cached and pending vectors, by text. */
  readonly #queryVectors: LRUCache<string, Promise<Float32Array>>;
  readonly #queries: Health;
  readonly #imports: Health;
  #recovering: Promise<void> | undefined;
  readonly #outage: OutageLog;
  /** One entry for each concurrent import request. */
  readonly #importLanes: readonly SerialQueue[];
  #maxTexts: number;
  /** The end of the longest `Retry-After`, which applies to all import requests. */
  #pausedUntilMs = 0;
  #missed = 0;

  private constructor(parts: OpenAiParts, api: EmbeddingApi) {
    const { baseUrl, model } = parts.config;
    const limits = { ...LIMITS, ...parts.limits };
    this.#parts = parts;
    this.#limits = limits;
    this.#api = api;
    this.#name = `openai:${new URL(baseUrl).host}:${model}`;
    this.#settingKey = `embedding_dimensions:${this.#name}`;
    this.#queries = new Health(limits);
    this.#imports = new Health(limits);
    this.#outage = new OutageLog(parts.log, 'the embedding API works again');
    this.indexCalls = limits.bulkRequests;
    this.#importLanes = Array.from({ length: limits.bulkRequests }, () => new SerialQueue());
    this.#maxTexts = limits.bulkTexts;
    this.#queryVectors = new LRUCache({
      maxSize: QUERY_CACHE_BYTES,
      sizeCalculation: (_, text) => this.dimensions * 4 + text.length * 2 + 64,
    });
  }

  /** Connects with one short request. If the API is down, background trials continue. */
  static async connect(parts: OpenAiParts): Promise<OpenAiEmbedder> {
    const embedder = new OpenAiEmbedder(parts, await EmbeddingApi.load(parts));
    const known = Number(await readSetting(parts.db, embedder.#settingKey));
    if (known > 0) embedder.#dimensions = known;
    const { origin, pathname } = new URL(parts.config.baseUrl);
    if (await embedder.#try())
      parts.log.info({ embedder: embedder.id, url: origin + pathname }, 'connected to the embedding API');
    else embedder.#recover();
    // Nothing was embedded before.
    embedder.#missed = 0;
    return embedder;
  }

  get id(): string {
    return `${this.#name}:${this.#dimensions ?? 'unknown'}`;
  }

  get dimensions(): number {
    return Math.ceil((this.#dimensions ?? 1) / DIMENSION_STEP) * DIMENSION_STEP;
  }

  /** The current failure in a few words that are safe for the public; undefined while the API works. */
  get degraded(): string | undefined {
    const { failure } = this.#queries;
    if (failure) return `${failure.inWords}: searching by keyword only`;
    return this.#imports.failure && `${this.#imports.failure.inWords}: new texts get no vectors for now`;
  }

  /** False while no texts for the index are sent to the API, because it failed. */
  get isAsked(): boolean {
    return !this.#imports.breaker.isOpen;
  }

  /**
   * The number of texts for the index that got zero vectors so far. It also grows when a change of dimensions makes all vectors
   * useless.
   */
  get missed(): number {
    return this.#missed;
  }

  async embed(passages: readonly Passage[], purpose: EmbeddingPurpose): Promise<Float32Array[]> {
    const { dimensions } = this;
    const texts = passages.map(wordsOf);
    const vectors = await (purpose === 'query' ? this.#embedQuery(texts) : this.#embedTexts(texts));
    return texts.map((_, at) => padded(vectors[at], dimensions));
  }

  /** Clears the cached query vectors, because they belong to the previous model. */
  forgetQueries(): void {
    this.#queryVectors.clear();
  }

  async close(): Promise<void> {
    await this.#api.close();
    await this.#recovering;
  }

  /** @throws EmbeddingFailure within `queryWaitMs`. The request continues, because its cost is already incurred. */
  async #embedQuery(texts: readonly string[]): Promise<Float32Array[]> {
    const wanted = texts.map(text => sendable(text));
    const unknown = [...new Set(wanted)].filter(text => !this.#queryVectors.has(text));
    for (const text of wanted) this.#parts.metrics.queryVector(!unknown.includes(text));
    const call = { atMs: performance.now(), probes: false };
    if (unknown.length > 0) this.#askForQuery(unknown);
    try {
      const vectors = Promise.all(wanted.map(text => this.#queryVectors.get(text) ?? noVector()));
      const late = () => new EmbeddingFailure('timeout');
      const inTime = await raceDeadline(vectors, this.#limits.queryWaitMs, late);
      if (unknown.length > 0) this.#queries.succeeded(call);
      this.#logOutage();
      return inTime;
    } catch (error) {
      const failure = this.#api.failureOf(error);
      // A single rejected query says nothing about others.
      if (!['input_refused', 'held_back', 'closed'].includes(failure.kind)) {
        this.#queries.failed(call, failure);
        this.#recover();
      }
      throw failure;
    }
  }

  #askForQuery(texts: readonly string[]): void {
    this.#queries.check();
    const send = () => this.#request(texts, 'query', this.#limits.queryLimitMs);
    const answer = send().catch((error: EmbeddingFailure) => {
      // Usually the server has closed an idle connection.
      if (error.kind === 'unreachable') return send();
      throw error;
    });
    for (const [at, text] of texts.entries()) {
      const vector = answer.then(vectors => vectors[at] ?? noVector());
      vector.catch(() => {
        // A later request may have replaced it.
        if (this.#queryVectors.peek(text) === vector) this.#queryVectors.delete(text);
      });
      this.#queryVectors.set(text, vector);
    }
  }

  /** Returns one vector per text: undefined if the API rejects the text, and none at all if the API fails. */
  async #embedTexts(texts: readonly string[]): Promise<(Float32Array | undefined)[]> {
    const wanted = this.#dimensions;
    const sent = texts.map(text => sendable(text));
    let refusing: Promise<boolean> | undefined;
    const refusesAll = () => (refusing ??= this.#refusesTrial());
    try {
      const batches = batchesOf(sent, this.#maxTexts).map(batch => this.#embedBatch(batch, refusesAll));
      const vectors = (await Promise.all(batches)).flat();
      // Vectors with other dimensions than the caller expects are useless to it.
      if (wanted !== this.#dimensions) throw new EmbeddingFailure('held_back');
      const refused = vectors.filter(vector => vector === undefined).length;
      if (refused > 0)
        this.#parts.log.warn({ refused }, 'embedding API rejected texts: they are found by keyword only');
      return vectors;
    } catch (error) {
      if (this.#api.failureOf(error).kind === 'closed') throw error;
      this.#missed += texts.length;
      return [];
    }
  }

  /**
   * Halves a rejected request until it is known which text the API rejects, or how many texts it accepts at a time.
   * @param refusesAll returns whether the API rejects every text
   */
  async #embedBatch(
    texts: readonly string[],
    refusesAll: () => Promise<boolean>,
  ): Promise<(Float32Array | undefined)[]> {
    try {
      return await this.#withRetries(texts);
    } catch (error) {
      if (!(error instanceof EmbeddingFailure) || error.kind !== 'input_refused') throw error;
      if (await refusesAll()) throw this.#tripped(error);
      const [only = ''] = texts;
      const half = Math.ceil((texts.length === 1 ? only.length : texts.length) / 2);
      // Some models accept only a few hundred tokens, and some servers reject longer texts.
      if (texts.length === 1)
        return half < SHORTEST_CUT ? [undefined] : this.#embedBatch([sendable(only, half)], refusesAll);
      const first = await this.#embedBatch(texts.slice(0, half), refusesAll);
      const vectors = [...first, ...(await this.#embedBatch(texts.slice(half), refusesAll))];
      if (!vectors.includes(undefined)) this.#maxTexts = Math.min(this.#maxTexts, half);
      return vectors;
    }
  }

  /** Returns whether the API rejects even the trial's text. Other failures are inconclusive. */
  async #refusesTrial(): Promise<boolean> {
    try {
      await this.#requestOfTrial();
      return false;
    } catch (error) {
      return this.#api.failureOf(error).kind === 'input_refused';
    }
  }

  async #withRetries(texts: readonly string[]): Promise<Float32Array[]> {
    const { bulkAttempts, bulkLimitMs, firstBackOffMs, maxBackOffMs, maxRetryAfterMs } = this.#limits;
    for (let attempt = 1; ; attempt++) {
      try {
        const lane = this.#importLanes.reduce((least, one) => (one.size < least.size ? one : least));
        return await lane.run(async () => {
          await this.#pause();
          return this.#request(texts, 'bulk', bulkLimitMs);
        });
      } catch (error) {
        const failure = this.#api.failureOf(error);
        const { kind, retryAfterMs: wishMs = 0 } = failure;
        if (kind === 'input_refused' || kind === 'held_back' || kind === 'closed') throw failure;
        if (!RETRYABLE.has(kind) || attempt >= bulkAttempts || wishMs > maxRetryAfterMs)
          throw this.#tripped(failure);
        this.#pausedUntilMs = Math.max(this.#pausedUntilMs, performance.now() + wishMs);
        // Jitter between half and all of the back-off, so that requests that failed together do not retry together.
        const backOffMs = Math.min(firstBackOffMs * 2 ** (attempt - 1), maxBackOffMs);
        await this.#sleep(backOffMs * (0.5 + Math.random() / 2));
      }
    }
  }

  async #pause(): Promise<void> {
    // The pause may grow in the meantime.
    while (this.#pausedUntilMs > performance.now())
      await this.#sleep(this.#pausedUntilMs - performance.now());
  }

  /** Stops sending import texts. Returns the error that the texts fail with. */
  #tripped(failure: EmbeddingFailure): EmbeddingFailure {
    this.#imports.trip(failure);
    this.#recover();
    return new EmbeddingFailure('held_back', failure.message);
  }

  #logOutage(): void {
    const { degraded } = this;
    if (degraded === undefined) return this.#outage.succeeded();
    // Occasional slow queries would fill the log.
    if (this.#queries.breaker.isOpen || this.#imports.breaker.isOpen)
      this.#outage.failed(degraded, { err: this.#queries.failure ?? this.#imports.failure });
  }

  /** Tries in the background, at growing intervals, until the API works, so that no search has to be the test. */
  #recover(): void {
    this.#logOutage();
    this.#recovering ??= withoutSpan(() => this.#untilWell()).finally(() => {
      this.#recovering = undefined;
      // A request may have failed since the last check.
      if (this.#isRecoveryDue) this.#recover();
    });
  }

  get #isRecoveryDue(): boolean {
    return this.degraded !== undefined && !this.#api.stopping.aborted;
  }

  async #untilWell(): Promise<void> {
    const waitMs = () => {
      const nowMs = performance.now();
      return Math.max(this.#queries.breaker.waitMs(nowMs), this.#imports.breaker.waitMs(nowMs));
    };
    while (this.#isRecoveryDue) {
      await this.#sleep(waitMs() || this.#limits.firstTrialMs).catch(() => {});
      // A breaker may have opened in the meantime.
      if (waitMs() === 0 && (await this.#try())) this.onWorking();
    }
  }

  /** Sends a trial. Returns whether the API responded. */
  async #try(): Promise<boolean> {
    const atMs = performance.now();
    const query = this.#queries.breaker.enter(atMs);
    const bulk = this.#imports.breaker.enter(atMs);
    try {
      const [vector] = await this.#requestOfTrial();
      const isQuick = performance.now() - atMs <= this.#limits.queryWaitMs;
      if (vector) await this.#adopt(vector.length);
      this.#imports.succeeded(bulk);
      if (isQuick) this.#queries.succeeded(query);
      // If no query has failed yet, the server may just be loading its model.
      else if (this.#queries.failure) this.#queries.failed(query, new EmbeddingFailure('timeout'));
      return true;
    } catch (error) {
      const failure = this.#api.failureOf(error);
      if (failure.kind === 'closed') return false;
      this.#queries.failed(query, failure);
      this.#queries.trip(failure);
      this.#imports.failed(bulk, failure);
      this.#imports.trip(failure);
      return false;
    } finally {
      this.#queries.breaker.leave(query);
      this.#imports.breaker.leave(bulk);
      this.#logOutage();
    }
  }

  async #requestOfTrial(): Promise<Float32Array[]> {
    // A trial must show the model's current dimensions.
    const options = { lane: 'trial', limitMs: this.#limits.trialLimitMs, dimensions: undefined } as const;
    const send = () => this.#api.embed([TRIAL_TEXT], options);
    try {
      return await send();
    } catch (error) {
      const isRefused = this.#api.failureOf(error).kind === 'input_refused';
      if (!isRefused || this.#api.encoding === undefined) throw error;
    }
    try {
      this.#api.encoding = undefined;
      return await send();
    } catch (error) {
      this.#api.encoding = 'base64';
      throw error;
    }
  }

  /** Adopts the dimensions of a response. Different dimensions mean a different model, so older vectors become useless. */
  async #adopt(dimensions: number): Promise<void> {
    if (dimensions === this.#dimensions) return;
    this.#dimensions = dimensions;
    this.#queryVectors.clear();
    this.#missed++;
    await writeSetting(this.#parts.db, this.#settingKey, String(dimensions)).catch((error: unknown) =>
      this.#parts.log.warn({ err: error }, 'failed to store the dimensions of the embedding model'),
    );
  }

  async #request(texts: readonly string[], lane: 'query' | 'bulk', limitMs: number): Promise<Float32Array[]> {
    (lane === 'query' ? this.#queries : this.#imports).check();
    return this.#api.embed(texts, { lane, limitMs, dimensions: this.#dimensions });
  }

  async #sleep(ms: number): Promise<void> {
    await delay(Math.ceil(ms), undefined, { signal: this.#api.stopping, ref: false }).catch(() => {
      throw new EmbeddingFailure('closed');
    });
  }
}

const noVector = () => Promise.reject(new EmbeddingFailure('invalid_answer'));

/**
 * Returns the text as it is sent: truncated to the model's limit, never within a character, and never empty, because APIs reject
 * empty texts.
 */
export function sendable(text: string, maxUnits = MAX_TEXT_UNITS): string {
  if (text.trim() === '') return '-';
  return text.length <= maxUnits ? text : text.slice(0, maxUnits).toWellFormed();
}

/** Returns batches of at most `maxTexts` texts and 100,000 UTF-16 units. */
function batchesOf(texts: readonly string[], maxTexts: number): string[][] {
  const batches: string[][] = [];
  let units = 0;
  for (const text of texts) {
    const last = batches.at(-1);
    units += text.length;
    if (last && last.length < maxTexts && units <= MAX_REQUEST_UNITS) last.push(text);
    else {
      batches.push([text]);
      units = text.length;
    }
  }
  return batches;
}

function padded(vector: Float32Array | undefined, dimensions: number): Float32Array {
  if (vector?.length === dimensions) return vector;
  const longer = new Float32Array(dimensions);
  if (vector) longer.set(vector);
  return longer;
}
