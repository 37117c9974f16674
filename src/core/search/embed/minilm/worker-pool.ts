import { Worker } from 'node:worker_threads';
import { SwitchboardError } from '../../../../errors.ts';
import { withoutSpan } from '../../../../platform/telemetry/tracing.ts';
import type { Passage } from '../embedder.ts';
import { DIMENSIONS, MAX_TEXTS, MAX_VECTORS, type TokenBatch } from './model.ts';
import type { Tokenizer } from './tokenizer.ts';

/** After this many crashes without a finished job in between, no worker is started for a while. */
const MAX_CRASHES_IN_A_ROW = 3;
const REST_MS = 30_000;

/** One message to a worker, with the callbacks for its reply. */
export interface Job {
  readonly message: unknown;
  done(answer: unknown): void;
  failed(error: Error): void;
}

type JobQueue = Pick<EmbedQueue, 'take' | 'rejectAll'>;

interface Slot {
  worker: Worker | undefined;
  job: Job | undefined;
}

/**
 * A fixed number of workers that process one message at a time. If a worker dies, its job fails and the worker is replaced.
 * Only workers with a job keep the process alive.
 */
export class WorkerPool {
  readonly #script: URL;
  readonly #inputs: readonly unknown[];
  readonly #queue: JobQueue;
  readonly #slots: readonly Slot[];
  readonly #restMs: number;
  #crashesInARow = 0;
  #stopped: Error | undefined;
  #restart: NodeJS.Timeout | undefined;
  #closed = false;

  /**
   * @param script the worker's module
   * @param inputs the `workerData` of each worker and its replacements
   * @param restMs how long no worker is started after too many crashes
   */
  constructor(script: URL, inputs: readonly unknown[], queue: JobQueue, restMs = REST_MS) {
    this.#script = script;
    this.#inputs = inputs;
    this.#queue = queue;
    this.#restMs = restMs;
    this.#slots = inputs.map(() => ({ worker: undefined, job: undefined }));
    for (const index of this.#slots.keys()) this.#start(index);
  }

  /** Why the pool accepts no jobs: it is closed, or its workers crashed too often. Undefined while it works. */
  get stopped(): Error | undefined {
    return this.#stopped;
  }

  /** Gives every free worker a job, as long as there are jobs. */
  wake(): void {
    for (const slot of this.#slots) {
      if (this.#stopped) return;
      if (slot.worker && !slot.job) this.#feed(slot, slot.worker);
    }
  }

  /** Stops all workers permanently; running and waiting jobs fail with `reason`. Later calls have no effect. */
  async close(reason: Error): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    clearTimeout(this.#restart);
    await this.#stop(reason);
  }

  async #stop(reason: Error): Promise<void> {
    this.#stopped = reason;
    this.#queue.rejectAll(reason);
    const running = this.#slots.flatMap(slot => {
      const { worker, job } = slot;
      slot.worker = undefined;
      slot.job = undefined;
      job?.failed(reason);
      return worker ? [worker.terminate()] : [];
    });
    await Promise.all(running);
  }

  #start(index: number): void {
    const slot = this.#slots[index];
    if (!slot || this.#closed) return;
    const worker = new Worker(this.#script, { workerData: this.#inputs[index] });
    slot.worker = worker;
    worker.unref();
    let cause: unknown;
    worker.on('message', answer => {
      if (slot.worker !== worker) return;
      const { job } = slot;
      slot.job = undefined;
      this.#crashesInARow = 0;
      worker.unref();
      job?.done(answer);
      this.wake();
    });
    worker.on('error', error => {
      cause = error;
    });
    worker.on('exit', code => {
      if (slot.worker === worker) this.#replace(index, cause ?? new Error(`exit code ${code}`));
    });
  }

  #feed(slot: Slot, worker: Worker): void {
    const job = this.#queue.take();
    if (!job) return;
    slot.job = job;
    worker.ref();
    // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a worker thread has no origin
    worker.postMessage(job.message);
  }

  #replace(index: number, cause: unknown): void {
    const slot = this.#slots[index];
    if (!slot) return;
    const { job } = slot;
    slot.worker = undefined;
    slot.job = undefined;
    this.#crashesInARow++;
    job?.failed(new SwitchboardError('unavailable', 'A search worker crashed. Try again.', { cause }));
    if (this.#crashesInARow < MAX_CRASHES_IN_A_ROW) {
      this.#start(index);
      this.wake();
      return;
    }
    this.#rest(cause);
  }

  #rest(cause: unknown): void {
    const reason = new SwitchboardError(
      'unavailable',
      `The search workers crashed ${MAX_CRASHES_IN_A_ROW} times in a row. They will be restarted soon.`,
      { cause },
    );
    void this.#stop(reason);
    this.#restart = withoutSpan(() =>
      setTimeout(() => {
        this.#stopped = undefined;
        // One more crash without a finished job stops the workers again.
        this.#crashesInARow = MAX_CRASHES_IN_A_ROW - 1;
        for (const index of this.#slots.keys()) this.#start(index);
        this.wake();
      }, this.#restMs).unref(),
    );
  }
}

/**
 * The size at which a job stops growing, in tokens (a longer single text still fits): about 30 ms of work, the longest a
 * search waits for a free worker. Larger jobs are not more efficient.
 */
const JOB_TOKENS = 64;

/** A text, and the passages of a request that are all of it or part of it. */
interface PendingText {
  readonly text: string;
  readonly passages: { readonly passage: Passage; /** Index in the request. */ readonly at: number }[];
}

interface Pending {
  readonly texts: readonly PendingText[];
  readonly vectors: Float32Array[];
  /** Index of the first text not yet given to a worker. */
  next: number;
  missing: number;
  readonly resolve: (vectors: Float32Array[]) => void;
  readonly reject: (error: Error) => void;
}

/** One vector of a job. */
interface Part {
  readonly request: Pending;
  /** Index of the passage in its request. */
  readonly at: number;
}

/** Requests waiting to be split into jobs: urgent ones first, otherwise in order of arrival. */
export class EmbedQueue {
  readonly #tokenizer: Tokenizer;
  readonly #workers: number;
  readonly #urgent: Pending[] = [];
  readonly #others: Pending[] = [];

  constructor(tokenizer: Tokenizer, workers: number) {
    this.#tokenizer = tokenizer;
    this.#workers = workers;
  }

  /**
   * Queues passages (at least one) and resolves to their vectors, in order. The passages of one text take one pass.
   * @param isUrgent overtakes all other requests: a search must not wait for an import
   */
  add(passages: readonly Passage[], isUrgent: boolean): Promise<Float32Array[]> {
    const { promise, resolve, reject } = Promise.withResolvers<Float32Array[]>();
    const { length } = passages;
    const vectors: Float32Array[] = Array.from({ length });
    const request = { texts: groupedByText(passages), vectors, next: 0, missing: length, resolve, reject };
    (isUrgent ? this.#urgent : this.#others).push(request);
    return promise;
  }

  /**
   * Returns the next job, if any. Its texts are tokenized only now, a few at a time, so that an import does not block the
   * thread. Waiting texts (such as the sentences of a search) share a job, which is more efficient.
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
        else fail(new Error('The worker did not return vectors'));
      },
      failed: fail,
    };
  }

  /** Rejects every waiting request. */
  rejectAll(error: Error): void {
    for (const request of [...this.#urgent, ...this.#others]) this.#drop(request, error);
  }

  /** Takes one worker's share of the waiting texts and adds them to `parts`. */
  #batch(queue: Pending[], parts: Part[]): TokenBatch {
    const waiting = queue.reduce((sum, { texts, next }) => sum + texts.length - next, 0);
    const most = Math.min(MAX_TEXTS, Math.ceil(waiting / this.#workers));
    const ids: number[] = [];
    const lengths: number[] = [];
    const pooled: [number, number][] = [];
    for (let [request] = queue; request && lengths.length < most; [request] = queue) {
      const { text, passages } = request.texts[request.next] ?? NO_TEXT;
      const tokens = this.#tokenizer.encode(text);
      const isFull = ids.length + tokens.length > JOB_TOKENS || pooled.length + passages.length > MAX_VECTORS;
      if (lengths.length > 0 && isFull) break;
      for (const { passage, at } of passages) {
        const [first, count] = this.#tokensOf(passage, tokens.length);
        pooled.push([ids.length + first, count]);
        parts.push({ request, at });
      }
      ids.push(...tokens);
      lengths.push(tokens.length);
      if (++request.next === request.texts.length) queue.shift();
    }
    return { ids: Int32Array.from(ids), lengths, pooled };
  }

  /**
   * Returns the first token of a passage in its text, and their number.
   * @param all the number of the text's tokens
   */
  #tokensOf(passage: Passage, all: number): [first: number, count: number] {
    if (typeof passage === 'string') return [0, all];
    // Without the end token.
    const countTo = (end: number) => this.#tokenizer.encode(passage.of.slice(0, end)).length - 1;
    const first = countTo(passage.from);
    const count = Math.min(countTo(passage.to), all - 1) - first;
    // Beyond what is read of a long text.
    return count > 0 ? [first, count] : [0, all];
  }

  #drop(request: Pending, error: Error): void {
    for (const queue of [this.#urgent, this.#others]) {
      const index = queue.indexOf(request);
      if (index !== -1) queue.splice(index, 1);
    }
    request.reject(error);
  }
}

const NO_TEXT: PendingText = { text: '', passages: [] };

/** Groups passages by their text, at most MAX_VECTORS of each. */
function groupedByText(passages: readonly Passage[]): PendingText[] {
  const texts: PendingText[] = [];
  const open = new Map<string, PendingText>();
  for (const [at, passage] of passages.entries()) {
    const text = typeof passage === 'string' ? passage : passage.of;
    let group = open.get(text);
    if (group === undefined || group.passages.length === MAX_VECTORS) {
      group = { text, passages: [] };
      open.set(text, group);
      texts.push(group);
    }
    group.passages.push({ passage, at });
  }
  return texts;
}

function settle(parts: readonly Part[], answer: Float32Array): void {
  for (const [position, { request, at }] of parts.entries()) {
    // Copies, so that one stored vector does not keep its whole batch in memory.
    request.vectors[at] = answer.slice(position * DIMENSIONS, (position + 1) * DIMENSIONS);
    if (--request.missing === 0) request.resolve(request.vectors);
  }
}
