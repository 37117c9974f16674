import { Pool, type Dispatcher } from 'undici';
import type { EmbeddingLane } from '../../../metrics.ts';
import { sanitise } from '../../../../platform/sanitize.ts';
import { readAnswer, type EmbeddingAnswer } from './answer.ts';
import { EmbeddingFailure, type FailureKind } from './failure.ts';
import type { EmbeddingUsage } from './usage.ts';

/** A vector of 16,384 dimensions as decimal numbers of 24 characters. What is longer is not read: to parse it would hold everything up. */
const MAX_VECTOR_BYTES = 400 * 1024;
const MAX_ANSWER_BYTES = 32 * 1024 * 1024;
const MAX_ERROR_BYTES = 64 * 1024;
const CONNECT_TIMEOUT_MS = 5_000;
/** An import must not take a search's connections, nor the other way round. */
const CONNECTIONS: Readonly<Record<EmbeddingLane, number>> = { query: 16, bulk: 8, trial: 1 };

/** Where vectors come from: any server that speaks OpenAI's embeddings API. */
export interface EmbeddingApiConfig {
  /** Such as `https://api.openai.com/v1`. */
  readonly baseUrl: string;
  /** It must reach no log and no error. */
  readonly apiKey: string | undefined;
  readonly model: string;
}

export interface RequestOptions {
  readonly lane: EmbeddingLane;
  readonly limitMs: number;
}

/** Sends requests to the embedding API, each once, and counts them. It follows no redirect: the key stays with the base URL. */
export class EmbeddingsClient {
  /** What every vector must have; undefined: not known yet. */
  dimensions: number | undefined;
  /** Base64 has a quarter of the bytes; a server that refuses it is asked for its own default, decimal numbers. */
  encoding: 'base64' | undefined = 'base64';
  readonly #config: EmbeddingApiConfig;
  readonly #usage: EmbeddingUsage;
  readonly #path: string;
  readonly #pools: Readonly<Record<EmbeddingLane, Pool>>;
  #closed = false;

  constructor(config: EmbeddingApiConfig, usage: EmbeddingUsage) {
    this.#config = config;
    this.#usage = usage;
    const url = new URL(config.baseUrl);
    this.#path = `${url.pathname.replace(/\/+$/, '')}/embeddings${url.search}`;
    const pool = (lane: EmbeddingLane) =>
      new Pool(url.origin, {
        connections: CONNECTIONS[lane],
        connect: { timeout: CONNECT_TIMEOUT_MS },
        headersTimeout: 0,
        bodyTimeout: 0,
      });
    this.#pools = { query: pool('query'), bulk: pool('bulk'), trial: pool('trial') };
  }

  /**
   * Vectors of unit length, one a text, in the order of the texts (at least one, as `sendable` gives them).
   * @throws EmbeddingFailure
   */
  async embed(texts: readonly string[], { lane, limitMs }: RequestOptions): Promise<EmbeddingAnswer> {
    const startedAt = performance.now();
    const end = (outcome: 'ok' | FailureKind, tokens = 0) =>
      this.#usage.requested({
        lane,
        outcome,
        tookMs: performance.now() - startedAt,
        texts: texts.length,
        tokens,
      });
    try {
      const body = await this.#exchange(texts, this.#pools[lane], limitMs);
      // A trial is to show what the model gives now.
      const dimensions = lane === 'trial' ? undefined : this.dimensions;
      const answer = readAnswer(body, texts.length, dimensions);
      end('ok', answer.tokens);
      return answer;
    } catch (error) {
      const failure = error instanceof EmbeddingFailure ? error : this.#networkFailure(error);
      end(failure.kind);
      throw failure;
    }
  }

  /** Ends what is under way, too. */
  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all(Object.values(this.#pools).map(pool => pool.destroy()));
  }

  async #exchange(texts: readonly string[], pool: Pool, limitMs: number): Promise<unknown> {
    const { apiKey, model } = this.#config;
    const encoding = this.encoding === undefined ? {} : { encoding_format: this.encoding };
    const response = await pool.request({
      method: 'POST',
      path: this.#path,
      headers: {
        'content-type': 'application/json',
        accept: 'application/json',
        ...(apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` }),
      },
      body: JSON.stringify({ model, input: texts, ...encoding }),
      signal: AbortSignal.timeout(limitMs),
    });
    const isOk = response.statusCode === 200;
    const mostBytes = Math.min(MAX_ANSWER_BYTES, MAX_ERROR_BYTES + texts.length * MAX_VECTOR_BYTES);
    const text = await readBody(response, isOk ? mostBytes : MAX_ERROR_BYTES);
    if (!isOk) throw this.#refusal(response, text);
    try {
      return JSON.parse(text);
    } catch {
      throw new EmbeddingFailure('invalid_answer', { detail: 'it is not JSON' });
    }
  }

  #refusal({ statusCode, headers }: Dispatcher.ResponseData, text: string): EmbeddingFailure {
    const { code, message } = errorOf(text);
    const kind = statusCode === 429 && code === 'insufficient_quota' ? 'quota' : kindOf(statusCode);
    // A refusal of the key may quote a part of it.
    const said = kind === 'unauthorized' ? '' : this.#withoutKey(message);
    return new EmbeddingFailure(kind, {
      status: statusCode,
      detail: `HTTP ${statusCode}${said === '' ? '' : `, ${sanitise(said)}`}`,
      retryAfterMs: retryAfterOf(headers),
    });
  }

  #withoutKey(text: string): string {
    const { apiKey } = this.#config;
    return apiKey === undefined ? text : text.replaceAll(apiKey, '[redacted]');
  }

  #networkFailure(error: unknown): EmbeddingFailure {
    if (this.#closed) return new EmbeddingFailure('closed');
    const { name, message, code } = error as NodeJS.ErrnoException;
    const isTimeout = name === 'TimeoutError' || code === 'UND_ERR_CONNECT_TIMEOUT';
    return new EmbeddingFailure(isTimeout ? 'timeout' : 'unreachable', {
      detail: sanitise(this.#withoutKey(message)),
      cause: error,
    });
  }
}

async function readBody({ body }: Dispatcher.ResponseData, maxBytes: number): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of body as AsyncIterable<Uint8Array>) {
    bytes += chunk.length;
    if (bytes > maxBytes) throw new EmbeddingFailure('invalid_answer', { detail: `over ${maxBytes} bytes` });
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}

function kindOf(status: number): FailureKind {
  if (status === 401 || status === 403) return 'unauthorized';
  if (status === 404) return 'not_found';
  if (status === 400 || status === 413 || status === 422) return 'input_refused';
  if (status === 429) return 'rate_limited';
  return status >= 500 || status === 408 || status === 409 ? 'server_error' : 'unexpected_status';
}

/** `{error: {code, message}}` as OpenAI has it; others put the message elsewhere, or send no JSON. */
function errorOf(text: string): { code: unknown; message: string } {
  let error: unknown;
  try {
    error = (JSON.parse(text) as { error?: unknown } | null)?.error;
  } catch {
    return { code: undefined, message: text };
  }
  if (typeof error !== 'object' || error === null) return { code: undefined, message: text };
  const { code, message } = error as Record<string, unknown>;
  return { code, message: typeof message === 'string' ? message : '' };
}

/** RFC 9110 §10.2.3: seconds or a date; OpenAI also says milliseconds. */
function retryAfterOf(headers: Dispatcher.ResponseData['headers']): number | undefined {
  const milliseconds = Number(headers['retry-after-ms'] ?? Number.NaN);
  if (milliseconds >= 0) return milliseconds;
  const value = String(headers['retry-after'] ?? '');
  if (/^\d+(\.\d+)?$/.test(value)) return Number(value) * 1000;
  const untilMs = Date.parse(value) - Date.now();
  return Number.isNaN(untilMs) ? undefined : Math.max(0, untilMs);
}
