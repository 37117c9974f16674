import { Worker } from 'node:worker_threads';
import { SwitchboardError } from '../../../../errors.ts';
import { withoutSpan } from '../../../../platform/telemetry/tracing.ts';

/** When workers crash this often with no job done in between, none is started for a while. */
const MAX_CRASHES_IN_A_ROW = 3;
const REST_MS = 30_000;

/** One message to a worker and where its answer goes. */
export interface Job {
  readonly message: unknown;
  done(answer: unknown): void;
  failed(error: Error): void;
}

/** Where the pool gets its work. */
export interface JobQueue {
  /** The next job, if any: asked whenever a worker is free. */
  take(): Job | undefined;
  /** Called when the pool stops, for good or for a while: nothing that waits will be done. */
  rejectAll(error: Error): void;
}

interface Slot {
  worker: Worker | undefined;
  job: Job | undefined;
}

/**
 * A fixed number of workers that answer one message each at a time. A worker that dies fails its job and is replaced.
 * Only a worker with a job keeps the process alive.
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
   * @param inputs one a worker: its `workerData`, again for the worker that replaces it
   * @param restMs how long no worker is started after they have crashed too often
   */
  constructor(script: URL, inputs: readonly unknown[], queue: JobQueue, restMs = REST_MS) {
    this.#script = script;
    this.#inputs = inputs;
    this.#queue = queue;
    this.#restMs = restMs;
    this.#slots = inputs.map(() => ({ worker: undefined, job: undefined }));
    for (const index of this.#slots.keys()) this.#start(index);
  }

  /** Why the pool takes no jobs: closed, or its workers have died too often, and rest. */
  get stopped(): Error | undefined {
    return this.#stopped;
  }

  /** Gives every free worker a job, as long as there are any. */
  wake(): void {
    for (const slot of this.#slots) {
      if (this.#stopped) return;
      if (slot.worker && !slot.job) this.#feed(slot, slot.worker);
    }
  }

  /** Stops all workers for good; running and waiting jobs fail with `reason`. Later calls do nothing. */
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
      `The search workers crashed ${MAX_CRASHES_IN_A_ROW} times in a row. They are started again in a while.`,
      { cause },
    );
    void this.#stop(reason);
    this.#restart = withoutSpan(() =>
      setTimeout(() => {
        this.#stopped = undefined;
        // The next crash, if no job is done before it, is one too many again.
        this.#crashesInARow = MAX_CRASHES_IN_A_ROW - 1;
        for (const index of this.#slots.keys()) this.#start(index);
        this.wake();
      }, this.#restMs).unref(),
    );
  }
}
