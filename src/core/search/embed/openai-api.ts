import { Breaker, type Entered } from '../../../platform/breaker.ts';
import { Repeat } from '../../../platform/time.ts';
import { readBody, retryAfterMs } from '../../../platform/outbound/fetch.ts';
import { sanitise } from '../../../platform/sanitize.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import type { EmbeddingLane, Metrics } from '../../metrics.ts';
import type { OpenAI } from 'openai';
import { z } from 'zod';

/** Limits for requests to the embedding API. Times in milliseconds. */
export const LIMITS = {
  /** How long a search waits for its query's vectors before it falls back to keywords: a search takes at most a second. */
  queryWaitMs: 650,
  /** The timeout of a query's request. A vector that arrives after `queryWaitMs` serves the next search with that query. */
  queryLimitMs: 5_000,
  /** The number of failed queries in a row after which the API is paused. */
  queryFailures: 3,
  /** For an import's requests: the timeout, the number of attempts, the concurrency, and the texts per request. */
  bulkLimitMs: 30_000,
  bulkAttempts: 4,
  bulkRequests: 4,
  bulkTexts: 64,
  /** The wait before an import's second attempt; it doubles each time. */
  firstBackOffMs: 500,
  maxBackOffMs: 8_000,
  /** A longer `Retry-After` counts as an outage for an import. */
  maxRetryAfterMs: 60_000,
  /** The timeout of a trial, the request that detects whether the API works. */
  trialLimitMs: 3_000,
  /** The wait before the first trial; it doubles with each failure. */
  firstTrialMs: 5_000,
  maxTrialMs: 60_000,
};
export type EmbeddingLimits = Readonly<typeof LIMITS>;

/** Larger responses are not read, because parsing them would block the event loop. */
const MAX_ANSWER_BYTES = 32 * 1024 * 1024;
const MAX_DIMENSIONS = 16_384;
const LOG_USAGE_EVERY_MS = 60_000;

/** Texts for `/readyz`, which is public: without the address and without any text from the API. */
const IN_WORDS = {
  timeout: 'did not respond in time',
  unreachable: 'cannot be reached',
  rate_limited: 'returned a rate limit error',
  quota: 'reported that the quota is used up',
  unauthorized: 'rejected the key (check OPENAI_API_KEY)',
  not_found: 'does not know the model or the address (check EMBEDDING_MODEL and OPENAI_BASE_URL)',
  input_refused: 'refuses the texts',
  server_error: 'fails',
  unexpected_status: 'returned an unexpected HTTP status',
  invalid_answer: 'returned no valid list of vectors',
  held_back: 'is paused for a moment because it failed',
  closed: 'is no longer used: Switchboard is stopping',
} as const;

/** The ways in which a request to the embedding API fails; a label of the metrics. */
type FailureKind = keyof typeof IN_WORDS;

/** Failures after which the next attempt may succeed. */
export const RETRYABLE: ReadonlySet<FailureKind> = new Set([
  'timeout',
  'unreachable',
  'rate_limited',
  'server_error',
  'invalid_answer',
]);

/** A failed request to the embedding API. Its message quotes the API, but never contains the key. */
export class EmbeddingFailure extends Error {
  override readonly name = 'EmbeddingFailure';
  readonly kind: FailureKind;
  /** Milliseconds for which the API asks not to be called. */
  readonly retryAfterMs: number | undefined;

  constructor(kind: FailureKind, detail = '', retryAfter?: number) {
    super(`the embedding API ${IN_WORDS[kind]}${detail === '' ? '' : `: ${detail}`}`);
    this.kind = kind;
    this.retryAfterMs = retryAfter;
  }

  get inWords(): string {
    return `the embedding API ${IN_WORDS[this.kind]}`;
  }
}

/** An API with OpenAI's embeddings protocol. */
export interface EmbeddingApiConfig {
  /** Such as `https://api.openai.com/v1`. */
  readonly baseUrl: string;
  /** Must never reach a log or an error. */
  readonly apiKey: string | undefined;
  readonly model: string;
}

export interface EmbeddingApiParts {
  readonly config: EmbeddingApiConfig;
  readonly log: Log;
  readonly metrics: Metrics;
}

interface RequestOptions {
  readonly lane: EmbeddingLane;
  readonly limitMs: number;
  /** The required length of every vector; undefined if it is not known. */
  readonly dimensions: number | undefined;
}

/** Sends requests to the embedding API, without retries, and counts them in the metrics and the log. */
export class EmbeddingApi {
  /** Base64 is a quarter of the size. A server that refuses it is asked for its default, decimal numbers. */
  encoding: 'base64' | undefined = 'base64';
  readonly #parts: EmbeddingApiParts;
  readonly #sdk: typeof import('openai');
  readonly #client: OpenAI;
  readonly #stopping = new AbortController();
  #usage = { requests: 0, failed: 0, texts: 0, tokens: 0 };
  readonly #usageLog: Repeat;

  private constructor(parts: EmbeddingApiParts, sdk: typeof import('openai')) {
    const { baseUrl, apiKey } = parts.config;
    this.#parts = parts;
    this.#sdk = sdk;
    this.#client = new sdk.OpenAI({
      baseURL: baseUrl,
      apiKey: apiKey ?? 'none',
      ...(apiKey === undefined ? { defaultHeaders: { Authorization: null } } : {}),
      // Otherwise the package would read these from the environment.
      adminAPIKey: null,
      organization: null,
      project: null,
      webhookSecret: null,
      logLevel: 'off',
      maxRetries: 0,
      fetch: fetchWhole,
    });
    this.#usageLog = new Repeat(LOG_USAGE_EVERY_MS, () => this.#logUsage()).start(LOG_USAGE_EVERY_MS);
  }

  /** Loads the client package, which is only needed with such an API. */
  static async load(parts: EmbeddingApiParts): Promise<EmbeddingApi> {
    return new EmbeddingApi(parts, await import('openai'));
  }

  /** Aborts on `close`. */
  get stopping(): AbortSignal {
    return this.#stopping.signal;
  }

  /** Also cancels running requests. */
  async close(): Promise<void> {
    this.#stopping.abort();
    await this.#usageLog.stop();
    this.#logUsage();
  }

  /**
   * Returns unit vectors, one per text (at least one, as `sendable` returns them).
   * @throws EmbeddingFailure
   */
  async embed(
    texts: readonly string[],
    { lane, limitMs, dimensions }: RequestOptions,
  ): Promise<Float32Array[]> {
    const { metrics, config } = this.#parts;
    const startedMs = performance.now();
    const end = (outcome: 'ok' | FailureKind) =>
      metrics.embeddingRequested({ lane, outcome, tookMs: performance.now() - startedMs });
    this.#usage.requests++;
    try {
      const encoding = this.encoding === undefined ? {} : { encoding_format: this.encoding };
      // Not `embeddings.create`, which always requests base64 and does not validate the response.
      const answer: unknown = await this.#client.post('/embeddings', {
        body: { model: config.model, input: texts, ...encoding },
        timeout: limitMs,
        // A separate signal for each request, because the package never removes its listener.
        signal: AbortSignal.any([this.#stopping.signal]),
      });
      const { vectors, tokens } = readAnswer(answer, texts.length, dimensions);
      end('ok');
      metrics.embedded({ lane, texts: texts.length, tokens });
      this.#usage.texts += texts.length;
      this.#usage.tokens += tokens;
      return vectors;
    } catch (error) {
      const failure = this.failureOf(error);
      end(failure.kind);
      this.#usage.failed++;
      throw failure;
    }
  }

  /** Classifies the error of a request. */
  failureOf(error: unknown): EmbeddingFailure {
    if (this.#stopping.signal.aborted) return new EmbeddingFailure('closed');
    const root = rootOf(error);
    if (root instanceof EmbeddingFailure) return root;
    if (error instanceof this.#sdk.APIConnectionTimeoutError) return new EmbeddingFailure('timeout');
    if (error instanceof this.#sdk.APIError && error.status !== undefined) return this.#refusal(error);
    if (error instanceof SyntaxError) return new EmbeddingFailure('invalid_answer', 'it is not JSON');
    return new EmbeddingFailure('unreachable', this.#shown(root.message));
  }

  #refusal(error: { status: unknown; code: unknown; headers: unknown; message: string }): EmbeddingFailure {
    const status = Number(error.status);
    const kind = status === 429 && error.code === 'insufficient_quota' ? 'quota' : kindOf(status);
    // The message for an invalid key may quote part of it.
    const said = kind === 'unauthorized' ? String(status) : this.#shown(error.message);
    const headers = error.headers instanceof Headers ? error.headers : new Headers();
    // OpenAI also sends milliseconds.
    const preciseMs = Number(headers.get('retry-after-ms') ?? Number.NaN);
    const wishMs = preciseMs >= 0 ? preciseMs : retryAfterMs(headers.get('retry-after'), Date.now());
    return new EmbeddingFailure(kind, `HTTP ${said}`, wishMs);
  }

  #shown(text: string): string {
    const { apiKey } = this.#parts.config;
    return sanitise(apiKey === undefined ? text : text.replaceAll(apiKey, '[redacted]'));
  }

  #logUsage(): void {
    if (this.#usage.requests > 0) this.#parts.log.info(this.#usage, 'embedding API used');
    this.#usage = { requests: 0, failed: 0, texts: 0, tokens: 0 };
  }
}

/**
 * Fetches a response with its body, within limits: the package's timeout ends with the headers. Redirects are not followed, because
 * the key is only for the base URL. Any JSON body is accepted, because some servers send a different content type.
 */
async function fetchWhole(url: string | URL | Request, init?: RequestInit): Promise<Response> {
  const response = await fetch(url, { ...init, redirect: 'manual' });
  const tooLarge = () => new EmbeddingFailure('invalid_answer', `over ${MAX_ANSWER_BYTES} bytes`);
  const body = response.body ? await readBody(response.body, MAX_ANSWER_BYTES, tooLarge) : '';
  const headers = new Headers(response.headers);
  headers.set('content-type', 'application/json');
  return new Response(response.ok ? body : withError(String(body)), {
    // These statuses have no body, but a response body is required here.
    status: [204, 205, 304].includes(response.status) ? 200 : response.status,
    headers,
  });
}

/** Moves the messages of servers without `error` to where the package looks for them. */
function withError(text: string): string {
  try {
    const body: unknown = JSON.parse(text);
    if (typeof body === 'object' && body !== null && 'error' in body) return text;
  } catch {
    // A body that is not JSON is shown unchanged.
  }
  return JSON.stringify({ error: { message: text } });
}

function kindOf(status: number): FailureKind {
  if (status === 401 || status === 403) return 'unauthorized';
  if (status === 404) return 'not_found';
  if (status === 400 || status === 413 || status === 422) return 'input_refused';
  if (status === 429) return 'rate_limited';
  return status >= 500 || status === 408 || status === 409 ? 'server_error' : 'unexpected_status';
}

/** Returns the innermost cause, which is the most specific: `connect ECONNREFUSED …` instead of `fetch failed`. */
function rootOf(error: unknown): Error {
  if (!(error instanceof Error)) return new Error(String(error));
  return error.cause instanceof Error ? rootOf(error.cause) : error;
}

const answerSchema = z.object({
  data: z.array(
    z.object({
      index: z.int().nonnegative().optional(),
      embedding: z.union([z.string(), z.array(z.number())]),
    }),
  ),
  usage: z
    .object({
      total_tokens: z.number().nonnegative().optional(),
      prompt_tokens: z.number().nonnegative().optional(),
    })
    .nullish()
    .catch(undefined),
});

/**
 * Parses the response of `POST /embeddings`. An embedding is a list of numbers, or base64 of little-endian 32-bit floats.
 * @param count the number of texts sent
 * @param dimensions the expected length; undefined: any length, the same for all
 * @returns unit vectors in the order of the texts, and the number of tokens, 0 if the API does not report it
 * @throws EmbeddingFailure `invalid_answer`
 */
export function readAnswer(
  body: unknown,
  count: number,
  dimensions: number | undefined,
): { vectors: Float32Array[]; tokens: number } {
  const parsed = answerSchema.safeParse(body);
  if (!parsed.success) {
    const { path, message } = parsed.error.issues[0] ?? { path: [], message: 'unknown' };
    throw invalid(`${path.join('.')}: ${message}`);
  }
  const { data, usage } = parsed.data;
  if (data.length !== count) throw invalid(`${data.length} vectors for ${count} texts`);
  const vectors = new Map(data.map(({ index, embedding }, at) => [index ?? at, unitVector(embedding)]));
  const length = dimensions ?? vectors.get(0)?.length;
  const ordered = Array.from({ length: count }, (_, at) => {
    const vector = vectors.get(at);
    if (!vector) throw invalid('an "index" is missing, duplicated or out of range');
    if (vector.length !== length) throw invalid(`a vector of ${vector.length} dimensions, not ${length}`);
    return vector;
  });
  return { vectors: ordered, tokens: usage?.total_tokens ?? usage?.prompt_tokens ?? 0 };
}

function unitVector(embedding: string | readonly number[]): Float32Array {
  const vector = typeof embedding === 'string' ? decodeFloats(embedding) : Float32Array.from(embedding);
  if (vector.length === 0 || vector.length > MAX_DIMENSIONS)
    throw invalid(`a vector of ${vector.length} dimensions`);
  const length = Math.sqrt(vector.reduce((sum, component) => sum + component * component, 0));
  if (!Number.isFinite(length)) throw invalid('a component is not finite');
  if (length === 0) throw invalid('a vector of zeros');
  return vector.map(component => component / length);
}

function decodeFloats(base64: string): Float32Array {
  const bytes = Buffer.from(base64, 'base64');
  if (bytes.length % 4 !== 0) throw invalid('an "embedding" is broken base64');
  // Copied to an aligned address. All supported machines are little-endian, like the response.
  return new Float32Array(Uint8Array.from(bytes).buffer);
}

const invalid = (detail: string) => new EmbeddingFailure('invalid_answer', detail);

/** Tracks the API's state for one use: it may be too slow for queries and fast enough for imports. */
export class Health {
  readonly breaker: Breaker;
  /** The last failure that no success has followed. Always set while the breaker is open. */
  failure: EmbeddingFailure | undefined;

  constructor(limits: EmbeddingLimits) {
    this.breaker = new Breaker({
      failuresInARow: limits.queryFailures,
      firstOpenMs: limits.firstTrialMs,
      maxOpenMs: limits.maxTrialMs,
      maxProbeMs: limits.trialLimitMs,
    });
  }

  succeeded(call: Entered): void {
    this.breaker.succeeded(call, performance.now());
    // A call that started before the breaker opened does not close it.
    if (!this.breaker.isOpen) this.failure = undefined;
  }

  failed(call: Entered, failure: EmbeddingFailure): void {
    this.failure = failure;
    this.breaker.failed(call, performance.now(), failure.message, failure.retryAfterMs);
  }

  trip(failure: EmbeddingFailure): void {
    this.failure = failure;
    this.breaker.trip(performance.now(), failure.message, failure.retryAfterMs);
  }

  /** @throws EmbeddingFailure `held_back` while the breaker is open */
  check(): void {
    if (this.breaker.isOpen) throw new EmbeddingFailure('held_back', this.breaker.lastFailure);
  }
}
