import type { Tokenizer } from './tokenizer.ts';
import { DIMENSIONS, MAX_TEXTS, type TokenBatch } from './model.ts';
import type { Job, JobQueue } from './worker-pool.ts';

/**
 * A job stops growing here (tokens; a single longer text still fits): about 30 ms of work, the longest a search waits for a
 * free worker. Larger ones take no less time a token.
 */
const JOB_TOKENS = 64;

interface Pending {
  readonly texts: readonly string[];
  readonly vectors: Float32Array[];
  /** First text not yet given to a worker. */
  next: number;
  missing: number;
  readonly resolve: (vectors: Float32Array[]) => void;
  readonly reject: (error: Error) => void;
}

/** A text of a job. */
interface Part {
  readonly request: Pending;
  /** Which of the request's texts. */
  readonly at: number;
}

/** Requests that wait to be cut into jobs: urgent ones first, else in order of arrival. */
export class EmbedQueue implements JobQueue {
  readonly #tokenizer: Tokenizer;
  readonly #workers: number;
  readonly #urgent: Pending[] = [];
  readonly #others: Pending[] = [];

  constructor(tokenizer: Tokenizer, workers: number) {
    this.#tokenizer = tokenizer;
    this.#workers = workers;
  }

  /**
   * Queues texts (at least one), and resolves to their vectors, in order.
   * @param isUrgent overtakes all that is not: a search must not wait for an import
   */
  add(texts: readonly string[], isUrgent: boolean): Promise<Float32Array[]> {
    const { promise, resolve, reject } = Promise.withResolvers<Float32Array[]>();
    const vectors: Float32Array[] = Array.from({ length: texts.length });
    // A copy: the texts are read later, when their turn comes.
    const request = { texts: [...texts], vectors, next: 0, missing: texts.length, resolve, reject };
    (isUrgent ? this.#urgent : this.#others).push(request);
    return promise;
  }

  /**
   * The next job, if any: tokenized only now, a few texts at a time, so that an import does not hold up the thread. Short
   * requests that wait (the sentences of one search, say) share a job: a worker's share of them costs less together.
   */
  take(): Job | undefined {
    const queue = this.#urgent.length > 0 ? this.#urgent : this.#others;
    if (queue.length === 0) return undefined;
    const parts: Part[] = [];
    const message = this.#batch(queue, parts);
    const requests = new Set(parts.map(({ request }) => request));
    const fail = (error: Error) => {
      for (const request of requests) this.#drop(request, error);
    };
    return {
      message,
      done: answer => {
        if (answer instanceof Float32Array) settle(parts, answer);
        else fail(new Error('The worker did not answer with vectors'));
      },
      failed: fail,
    };
  }

  /** Rejects everything that waits. */
  rejectAll(error: Error): void {
    for (const request of [...this.#urgent, ...this.#others]) this.#drop(request, error);
  }

  /** Takes a worker's share of what waits, and notes its texts in `parts`. */
  #batch(queue: Pending[], parts: Part[]): TokenBatch {
    const waiting = queue.reduce((sum, { texts, next }) => sum + texts.length - next, 0);
    const most = Math.min(MAX_TEXTS, Math.ceil(waiting / this.#workers));
    const ids: number[] = [];
    const lengths: number[] = [];
    for (let [request] = queue; request && lengths.length < most; [request] = queue) {
      const tokens = this.#tokenizer.encode(request.texts[request.next] ?? '');
      if (lengths.length > 0 && ids.length + tokens.length > JOB_TOKENS) break;
      ids.push(...tokens);
      lengths.push(tokens.length);
      parts.push({ request, at: request.next++ });
      if (request.next === request.texts.length) queue.shift();
    }
    return { ids: Int32Array.from(ids), lengths };
  }

  #drop(request: Pending, error: Error): void {
    for (const queue of [this.#urgent, this.#others]) {
      const index = queue.indexOf(request);
      if (index !== -1) queue.splice(index, 1);
    }
    request.reject(error);
  }
}

function settle(parts: readonly Part[], answer: Float32Array): void {
  for (const [position, { request, at }] of parts.entries()) {
    // Copies, so that one kept vector does not keep its whole batch.
    request.vectors[at] = answer.slice(position * DIMENSIONS, (position + 1) * DIMENSIONS);
    if (--request.missing === 0) request.resolve(request.vectors);
  }
}
