import { LRUCache } from 'lru-cache';
import type { Metrics } from '../../../metrics.ts';
import { SingleFlight } from '../../../../platform/single-flight.ts';
import { sendable } from './batches.ts';
import { EmbeddingFailure } from './failure.ts';
import type { Health } from './health.ts';
import type { EmbeddingLimits } from './limits.ts';
import type { OneModel } from './one-model.ts';

const CACHE_BYTES = 16 * 1024 * 1024;
const FLOAT_BYTES = 4;
/** With the probe 32, which is all that some servers take. */
const MAX_BATCH_TEXTS = 31;

interface QueryLaneParts {
  readonly model: OneModel;
  readonly health: Health;
  readonly limits: EmbeddingLimits;
  readonly metrics: Metrics;
}

/** Texts asked for in one turn of the event loop, such as the sentences of a query: one request. */
interface OpenBatch {
  readonly texts: string[];
  readonly vectors: Promise<Float32Array[]>;
}

/**
 * Vectors of queries: kept in memory, asked for once however many want the same, and never waited for longer than a search
 * can wait. While the API fails, callers are refused at once.
 */
export class QueryLane {
  readonly #parts: QueryLaneParts;
  readonly #vectors = new LRUCache<string, Float32Array>({
    maxSize: CACHE_BYTES,
    sizeCalculation: (vector, text) => vector.length * FLOAT_BYTES + text.length * 2 + 64,
  });
  /** Of the model's vectors. */
  #epoch = 0;
  readonly #asked = new SingleFlight<Float32Array>();
  #open: OpenBatch | undefined;

  constructor(parts: QueryLaneParts) {
    this.#parts = parts;
  }

  /** @throws EmbeddingFailure within `queryWaitMs` */
  embed(text: string): Promise<Float32Array> {
    const { health, metrics, model } = this.#parts;
    const sent = sendable(text);
    if (this.#epoch !== model.epoch) this.#vectors.clear();
    this.#epoch = model.epoch;
    const known = this.#vectors.get(sent);
    metrics.queryVector(known !== undefined);
    if (known) return Promise.resolve(known);
    const heldBack = health.queriesHeldBack;
    if (heldBack && !this.#asked.running(sent))
      return Promise.reject(new EmbeddingFailure('held_back', { detail: heldBack.message, cause: heldBack }));
    return this.#asked.run(sent, () => this.#join(sent));
  }

  async #join(text: string): Promise<Float32Array> {
    if (this.#open?.texts.length === MAX_BATCH_TEXTS) this.#open = undefined;
    const batch = (this.#open ??= this.#openBatch());
    const position = batch.texts.push(text) - 1;
    const vector = (await batch.vectors)[position];
    if (!vector) throw new EmbeddingFailure('invalid_answer');
    return vector;
  }

  #openBatch(): OpenBatch {
    const texts: string[] = [];
    const vectors = Promise.resolve().then(() => {
      this.#open = undefined;
      return this.#inTime(texts);
    });
    return { texts, vectors };
  }

  async #inTime(texts: readonly string[]): Promise<Float32Array[]> {
    const { health, limits } = this.#parts;
    const answer = this.#ask(texts);
    let timer: NodeJS.Timeout | undefined;
    const tooLate = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new EmbeddingFailure('timeout')), limits.queryWaitMs);
    });
    try {
      const vectors = await Promise.race([answer, tooLate]);
      health.querySucceeded();
      return vectors;
    } catch (error) {
      const failure = error as EmbeddingFailure;
      if (!['closed', 'held_back'].includes(failure.kind)) health.queryFailed(failure);
      throw failure;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Goes on after the search has stopped waiting: what was paid for is kept. */
  async #ask(texts: readonly string[]): Promise<Float32Array[]> {
    const { model, limits } = this.#parts;
    const send = () => model.embed(texts, { lane: 'query', limitMs: limits.queryLimitMs });
    const vectors = await send().catch((error: EmbeddingFailure) => {
      // As a rule a kept connection that the server has closed meanwhile.
      if (error.kind === 'unreachable') return send();
      throw error;
    });
    for (const [at, vector] of vectors.entries()) this.#vectors.set(texts[at] ?? '', vector);
    return vectors;
  }
}
