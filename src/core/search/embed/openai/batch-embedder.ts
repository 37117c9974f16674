import { setTimeout as delay } from 'node:timers/promises';
import { batchesOf, sendable } from './batches.ts';
import { EmbeddingFailure } from './failure.ts';
import type { Health } from './health.ts';
import type { EmbeddingLimits } from './limits.ts';
import type { OneModel } from './one-model.ts';

/** A text is not cut shorter than this (UTF-16 units) to make the API take it. */
const SHORTEST_CUT = 250;

interface BulkLaneParts {
  readonly model: OneModel;
  readonly health: Health;
  readonly limits: EmbeddingLimits;
  /** Aborted when the program stops: ends waits. */
  readonly stopping: AbortSignal;
}

/**
 * Vectors of an import's texts: in batches, a few requests at a time, tried again with growing pauses. A server's wish to be
 * left alone for a while (`Retry-After`) holds for all requests.
 */
export class BulkLane {
  readonly #parts: BulkLaneParts;
  /** Of a request, the probe among them. */
  #maxTexts: number;
  #free: number;
  readonly #waiting: (() => void)[] = [];
  #pausedUntil = 0;

  constructor(parts: BulkLaneParts) {
    this.#parts = parts;
    this.#maxTexts = parts.limits.bulkTexts;
    this.#free = parts.limits.bulkRequests;
  }

  /**
   * One vector a text; undefined for a text that the API refuses by itself.
   * @throws EmbeddingFailure when the API fails for good, or has failed lately
   */
  async embed(texts: readonly string[]): Promise<(Float32Array | undefined)[]> {
    const sent = texts.map(text => sendable(text));
    const vectors: (Float32Array | undefined)[] = Array.from({ length: texts.length });
    await Promise.all(
      batchesOf(sent, Math.max(1, this.#maxTexts - 1)).map(async positions => {
        const answered = await this.#batch(positions.map(position => sent[position] ?? ''));
        for (const [at, vector] of answered.entries()) vectors[positions[at] ?? 0] = vector;
      }),
    );
    return vectors;
  }

  /** A request that is refused is halved until it is known which text the API refuses, or how many it takes at a time. */
  async #batch(texts: readonly string[]): Promise<(Float32Array | undefined)[]> {
    try {
      return await this.#withRetries(texts);
    } catch (error) {
      if (!(error instanceof EmbeddingFailure && error.kind === 'input_refused')) throw error;
      const [only] = texts;
      if (texts.length === 1 && only !== undefined) return [await this.#cutShorter(only)];
      const half = Math.max(2, Math.ceil(texts.length / 2));
      const vectors: (Float32Array | undefined)[] = [];
      // The probe goes along with each part.
      for (let at = 0; at < texts.length; at += half - 1)
        vectors.push(...(await this.#batch(texts.slice(at, at + half - 1))));
      if (!vectors.includes(undefined)) this.#maxTexts = Math.min(this.#maxTexts, half);
      // It is not the texts, then.
      if (vectors.every(vector => vector === undefined)) {
        this.#parts.health.bulkFailed(error);
        throw new EmbeddingFailure('held_back', { detail: error.message, cause: error });
      }
      return vectors;
    }
  }

  /** Some models take only a few hundred tokens, and some servers refuse what is longer. */
  async #cutShorter(text: string): Promise<Float32Array | undefined> {
    const half = sendable(text, Math.floor(text.length / 2));
    if (half.length < SHORTEST_CUT) return undefined;
    const [vector] = await this.#batch([half]);
    return vector;
  }

  async #withRetries(texts: readonly string[]): Promise<Float32Array[]> {
    const { model, health, limits, stopping } = this.#parts;
    for (let attempt = 1; ; attempt++) {
      try {
        const request = { lane: 'bulk', limitMs: limits.bulkLimitMs, isVerified: true } as const;
        return await this.#inTurn(() => model.embed(texts, request));
      } catch (error) {
        const failure = error as EmbeddingFailure;
        const waitMs = this.#waitAfter(failure, attempt);
        if (waitMs === undefined) {
          if (!['input_refused', 'held_back', 'closed'].includes(failure.kind)) health.bulkFailed(failure);
          throw failure;
        }
        if (failure.retryAfterMs !== undefined)
          this.#pausedUntil = Math.max(this.#pausedUntil, performance.now() + waitMs);
        await sleep(waitMs, stopping);
      }
    }
  }

  /** Between half of the back-off and all of it, so that requests which failed together do not come back together. */
  #waitAfter(failure: EmbeddingFailure, attempt: number): number | undefined {
    const { bulkAttempts, firstBackOffMs, maxBackOffMs, maxRetryAfterMs } = this.#parts.limits;
    if (!failure.retryable || attempt >= bulkAttempts) return undefined;
    const backOffMs = Math.min(firstBackOffMs * 2 ** (attempt - 1), maxBackOffMs) * (0.5 + Math.random() / 2);
    const { retryAfterMs = 0 } = failure;
    return retryAfterMs > maxRetryAfterMs ? undefined : Math.max(backOffMs, retryAfterMs);
  }

  async #inTurn<T>(request: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>(resolve => this.#waiting.push(resolve));
    try {
      while (this.#pausedUntil > performance.now())
        await sleep(this.#pausedUntil - performance.now(), this.#parts.stopping);
      const heldBack = this.#parts.health.bulkHeldBack;
      if (heldBack) throw new EmbeddingFailure('held_back', { detail: heldBack.message, cause: heldBack });
      return await request();
    } finally {
      const next = this.#waiting.shift();
      if (next) next();
      else this.#free++;
    }
  }
}

async function sleep(ms: number, stopping: AbortSignal): Promise<void> {
  try {
    await delay(Math.ceil(ms), undefined, { signal: stopping });
  } catch {
    throw new EmbeddingFailure('closed');
  }
}
