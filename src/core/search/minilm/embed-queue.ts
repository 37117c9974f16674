import type { Tokenizer } from './tokenizer.ts';
import { DIMENSIONS, MAX_TEXTS, type TokenBatch } from './model.ts';
import type { Job, JobQueue } from './worker-pool.ts';

/** Requests of at most this many texts overtake longer ones: a search must not wait for an import. */
const SHORT_REQUEST_TEXTS = 2;

/** A job stops growing here (tokens; a single longer text still fits): about 50 ms of work, the longest a search waits for a free worker. */
const JOB_TOKENS = 128;

interface Pending {
  readonly texts: readonly string[];
  readonly vectors: Float32Array[];
  /** First text not yet given to a worker. */
  next: number;
  missing: number;
  readonly resolve: (vectors: Float32Array[]) => void;
  readonly reject: (error: Error) => void;
}

/** Requests waiting to be cut into jobs, short ones first, else in order of arrival. */
export class EmbedQueue implements JobQueue {
  readonly #tokenizer: Tokenizer;
  readonly #workers: number;
  readonly #short: Pending[] = [];
  readonly #long: Pending[] = [];

  constructor(tokenizer: Tokenizer, workers: number) {
    this.#tokenizer = tokenizer;
    this.#workers = workers;
  }

  /** Queues `texts` (at least one); resolves to their vectors, in order. */
  add(texts: readonly string[]): Promise<Float32Array[]> {
    const { promise, resolve, reject } = Promise.withResolvers<Float32Array[]>();
    const vectors: Float32Array[] = Array.from({ length: texts.length });
    // A copy: the texts are read later, when their turn comes.
    const request = { texts: [...texts], vectors, next: 0, missing: texts.length, resolve, reject };
    (texts.length <= SHORT_REQUEST_TEXTS ? this.#short : this.#long).push(request);
    return promise;
  }

  /** The next job, if any: tokenized only now, a few texts at a time, so that an import does not hold up the thread. */
  take(): Job | undefined {
    const queue = this.#short.length > 0 ? this.#short : this.#long;
    const request = queue[0];
    if (!request) return undefined;
    const first = request.next;
    const batch = this.#batch(request);
    if (request.next === request.texts.length) queue.shift();
    return {
      message: batch,
      done: answer => {
        if (answer instanceof Float32Array) settle(request, first, answer);
        else this.#drop(request, new Error('The worker did not answer with vectors'));
      },
      failed: error => this.#drop(request, error),
    };
  }

  /** Rejects everything that waits. */
  rejectAll(error: Error): void {
    for (const request of [...this.#short, ...this.#long]) this.#drop(request, error);
  }

  #batch(request: Pending): TokenBatch {
    const left = request.texts.length - request.next;
    const most = Math.min(MAX_TEXTS, Math.ceil(left / this.#workers));
    const ids: number[] = [];
    const lengths: number[] = [];
    while (lengths.length < most) {
      const text = request.texts[request.next] ?? '';
      const tokens = this.#tokenizer.encode(text);
      if (lengths.length > 0 && ids.length + tokens.length > JOB_TOKENS) break;
      ids.push(...tokens);
      lengths.push(tokens.length);
      request.next++;
    }
    return { ids: Int32Array.from(ids), lengths };
  }

  #drop(request: Pending, error: Error): void {
    for (const queue of [this.#short, this.#long]) {
      const index = queue.indexOf(request);
      if (index !== -1) queue.splice(index, 1);
    }
    request.reject(error);
  }
}

function settle(request: Pending, first: number, answer: Float32Array): void {
  const count = answer.length / DIMENSIONS;
  for (let i = 0; i < count; i++) {
    // Copies, so that one kept vector does not keep its whole batch.
    request.vectors[first + i] = answer.slice(i * DIMENSIONS, (i + 1) * DIMENSIONS);
  }
  request.missing -= count;
  if (request.missing === 0) request.resolve(request.vectors);
}
