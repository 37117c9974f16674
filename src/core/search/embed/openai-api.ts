import { Breaker, type Entered } from '../../../platform/breaker.ts';
import { Repeat } from '../../../platform/time.ts';
import { readBody, retryAfterMs } from '../../../platform/outbound/fetch.ts';
import { sanitise } from '../../../platform/sanitize.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import type { EmbeddingLane, Metrics } from '../../metrics.ts';
import type { OpenAI } from 'openai';
import { z } from 'zod';

/** Limits on requests to the embedding API. Times in milliseconds. */
export const LIMITS = {
  /** How long a search waits for its query's vectors before it answers by keyword: a search takes a second at most. */
  queryWaitMs: 650,
  /** Time limit of a query's request. A vector that comes after `queryWaitMs` serves the next search with that query. */
  queryLimitMs: 5_000,
  /** Failed queries in a row after which the API is not asked for a while. */
  queryFailures: 3,
  /** Time limit of an import's request, attempts at it, requests at a time, and texts in each. */
  bulkLimitMs: 30_000,
  bulkAttempts: 4,
  bulkRequests: 4,
  bulkTexts: 64,
  /** The wait before an import's second attempt; it doubles with each further one. */
  firstBackOffMs: 500,
  maxBackOffMs: 8_000,
  /** A longer `Retry-After` is an outage for an import, not a wait. */
  maxRetryAfterMs: 60_000,
  /** Time limit of a trial, the request that finds out whether the API works. */
  trialLimitMs: 3_000,
  /** The wait before the first trial; it doubles with each one that fails. */
  firstTrialMs: 5_000,
  maxTrialMs: 60_000,
};
export type EmbeddingLimits = Readonly<typeof LIMITS>;

/** A larger answer is not read: parsing it would hold up the event loop. */
const MAX_ANSWER_BYTES = 32 * 1024 * 1024;
const MAX_DIMENSIONS = 16_384;
const LOG_USAGE_EVERY_MS = 60_000;

/** Says what the API does in `/readyz`, which is open to all: no address, and no text of the API's. */
const IN_WORDS = {
  timeout: 'does not answer in time',
  unreachable: 'cannot be reached',
  rate_limited: 'limits the rate of requests',
  quota: 'says that the quota is used up',
  unauthorized: 'refuses the key (check OPENAI_API_KEY)',
  not_found: 'has no such model or address (check EMBEDDING_MODEL and OPENAI_BASE_URL)',
  input_refused: 'refuses the texts',
  server_error: 'fails',
  unexpected_status: 'answers with an unexpected HTTP status',
  invalid_answer: 'answers something that is no usable list of vectors',
  held_back: 'is not asked for a moment, because it failed',
  closed: 'is no longer asked: Switchboard is stopping',
} as const;

/** The ways in which a request to the embedding API ends without usable vectors; a label of the metrics. */
type FailureKind = keyof typeof IN_WORDS;

/** Failures after which the next attempt may succeed. */
export const RETRYABLE: ReadonlySet<FailureKind> = new Set([
  'timeout',
  'unreachable',
  'rate_limited',
  'server_error',
  'invalid_answer',
]);

/** Reports a failed request to the embedding API. Its message has the API's own words, and never the API key. */
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

/** Names an API that speaks OpenAI's embeddings protocol. */
export interface EmbeddingApiConfig {
  /** Such as `https://api.openai.com/v1`. */
  readonly baseUrl: string;
  /** It must reach no log and no error. */
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
  /** Length that every vector must have; undefined where it is not known. */
  readonly dimensions: number | undefined;
}

/** Sends requests to the embedding API, each once, and counts them in the metrics and the log. */
export class EmbeddingApi {
  /** Base64 has a quarter of the bytes. A server that refuses it is asked for its own default, decimal numbers. */
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
      // Otherwise the package reads these from the environment by itself.
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

  /** Loads the client package, which only an installation with such an API needs. */
  static async load(parts: EmbeddingApiParts): Promise<EmbeddingApi> {
    return new EmbeddingApi(parts, await import('openai'));
  }

  /** Aborts on `close`. */
  get stopping(): AbortSignal {
    return this.#stopping.signal;
  }

  /** Ends what is under way, too. */
  async close(): Promise<void> {
    this.#stopping.abort();
    await this.#usageLog.stop();
    this.#logUsage();
  }

  /**
   * Returns vectors of unit length, one a text (at least one, as `sendable` gives them).
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
      // Not `embeddings.create`, which always asks for base64, and believes what comes.
      const answer: unknown = await this.#client.post('/embeddings', {
        body: { model: config.model, input: texts, ...encoding },
        timeout: limitMs,
        // A signal of its own for each request: the package leaves its listener there.
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

  /** Sorts what a request has failed with. */
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
    // A refusal of the key may quote a part of it.
    const said = kind === 'unauthorized' ? String(status) : this.#shown(error.message);
    const headers = error.headers instanceof Headers ? error.headers : new Headers();
    // OpenAI also says milliseconds.
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
 * Fetches an answer with its body, within bounds: the package's time limit ends with the headers. No redirect is followed,
 * because the key is for the base URL alone. Any body that is JSON passes for it, as some servers send another content type.
 */
async function fetchWhole(url: string | URL | Request, init?: RequestInit): Promise<Response> {
  const response = await fetch(url, { ...init, redirect: 'manual' });
  const tooLarge = () => new EmbeddingFailure('invalid_answer', `over ${MAX_ANSWER_BYTES} bytes`);
  const body = response.body ? await readBody(response.body, MAX_ANSWER_BYTES, tooLarge) : '';
  const headers = new Headers(response.headers);
  headers.set('content-type', 'application/json');
  return new Response(response.ok ? body : withError(String(body)), {
    // A response of these has no body, whereas here an answer is missing.
    status: [204, 205, 304].includes(response.status) ? 200 : response.status,
    headers,
  });
}

/** Puts the words of servers that have no `error` in the place where the package looks for them. */
function withError(text: string): string {
  try {
    const body: unknown = JSON.parse(text);
    if (typeof body === 'object' && body !== null && 'error' in body) return text;
  } catch {
    // A body that is not JSON is shown as it is.
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

/** The innermost cause says most: `connect ECONNREFUSED …` instead of `fetch failed`. */
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
 * Reads the answer to `POST /embeddings`. An embedding is a list of numbers, or base64 of little-endian 32-bit floats.
 * @param count how many texts were sent
 * @param dimensions what the model gives; undefined: any number, the same for all
 * @returns vectors of unit length in the order of the texts, and the number of tokens, 0 where the API does not say
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
    if (!vector) throw invalid('an "index" is missing, doubled or out of range');
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
  // A copy at an address that floats can have. The machines that this program runs on are little-endian, as the answer is.
  return new Float32Array(Uint8Array.from(bytes).buffer);
}

const invalid = (detail: string) => new EmbeddingFailure('invalid_answer', detail);

/** Knows how the API does at one of its uses: it may be too slow for queries and fast enough for imports. */
export class Health {
  readonly breaker: Breaker;
  /** The last failure that no success has followed. There is one whenever the breaker is open. */
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
    // A call that began before the breaker opened does not close it.
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
