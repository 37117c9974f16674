import { setImmediate as turn } from 'node:timers/promises';
import { withoutSpan } from './telemetry/tracing.ts';

/** Gives the time, as a dependency that tests can set. */
export interface Clock {
  /** Milliseconds since the epoch. Jumps, either way, when the machine's clock is set. */
  now(): number;
  /** Milliseconds from any start, to measure how long something took: it never jumps. Where it is absent, `now` serves. */
  monotonic?(): number;
}

export const systemClock: Clock = { now: () => Date.now(), monotonic: () => performance.now() };

export const monotonicMs = (clock: Clock): number => clock.monotonic?.() ?? clock.now();

/**
 * Ends the wait of a caller that has gone away (its signal aborted). It is no error of the closed list, as nobody is left to
 * read one. The `cause` is the signal's reason.
 */
export class CallerAbortError extends Error {
  override readonly name = 'AbortError';

  constructor(reason: unknown) {
    super('The caller went away before there was an answer.', { cause: reason });
  }
}

/** Returns what a signal was aborted with, as an error. */
export function abortReason(signal: AbortSignal): Error {
  const reason: unknown = signal.reason;
  return reason instanceof Error ? reason : new CallerAbortError(reason);
}

/**
 * Resolves or rejects as the work does, unless the signal aborts first. The work itself goes on then, and its outcome is
 * ignored.
 * @throws the signal's reason
 */
export async function raceAbort<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const onAbort = () => reject(abortReason(signal));
  if (signal.aborted) onAbort();
  else signal.addEventListener('abort', onAbort, { once: true });
  try {
    return await raceLast(work, aborted);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

/**
 * Resolves or rejects as the work does, unless that takes longer than `ms`. An answer that has arrived while this process was
 * held up is in time.
 * @throws what `late` returns
 */
export async function raceDeadline<T>(work: Promise<T>, ms: number, late: () => Error): Promise<T> {
  const { promise: expired, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => setImmediate(() => reject(late())), ms);
  try {
    return await raceLast(work, expired);
  } finally {
    clearTimeout(timer);
  }
}

/** Waits for the work, for at most `ms`. Resolves to whether it has ended by then, well or not. */
export async function settledWithin(work: Promise<unknown>, ms: number): Promise<boolean> {
  try {
    await raceDeadline(
      work.catch(() => {}),
      ms,
      () => new Error('late'),
    );
    return true;
  } catch {
    return false;
  }
}

/** The end of the wait goes first: where both are there already, as with a signal that had aborted before, it wins. */
function raceLast<T>(work: Promise<T>, end: Promise<never>): Promise<T> {
  work.catch(() => {});
  return Promise.race([end, work]);
}

/** The event loop is given a turn after this much work, in milliseconds. */
const SLICE_MS = 5;

export type Pause = () => Promise<void> | undefined;

/**
 * Returns a function to call between pieces of long work, and to await. It gives the event loop a turn whenever 5 ms have
 * passed since the last one.
 * @param signal ends the work there, with its reason
 */
export function slices(signal?: AbortSignal): Pause {
  let startedAt = performance.now();
  return () => {
    signal?.throwIfAborted();
    if (performance.now() - startedAt < SLICE_MS) return undefined;
    return turn().then(() => {
      signal?.throwIfAborted();
      startedAt = performance.now();
    });
  };
}

/**
 * Repeats work in the background, one run at a time: `everyMs` after the last run began, or as soon as it has ended where
 * that is later. It keeps no process alive, and belongs to no request's trace.
 */
export class Repeat {
  readonly #everyMs: number;
  readonly #work: () => Promise<unknown> | void;
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<unknown> = Promise.resolve();
  #isRunning = false;
  #isDue = false;
  #isStopped = false;

  /** @param work must not throw or reject */
  constructor(everyMs: number, work: () => Promise<unknown> | void) {
    this.#everyMs = everyMs;
    this.#work = work;
  }

  /** Begins the first run at once, or after `firstMs`. */
  start(firstMs = 0): this {
    if (firstMs > 0) this.#schedule(firstMs);
    else this.kick();
    return this;
  }

  /** Runs now; after the run under way, if there is one, since that may have begun too early to see the news. */
  kick(): void {
    if (this.#isStopped) return;
    this.#isDue = true;
    if (this.#isRunning) return;
    this.#isRunning = true;
    this.#running = withoutSpan(() => this.#run()).finally(() => {
      this.#isRunning = false;
      if (this.#isDue) this.kick();
    });
  }

  /** Begins no further run. Resolves when the one under way has ended. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#isDue = false;
    clearTimeout(this.#timer);
    await this.#running;
  }

  async #run(): Promise<void> {
    this.#isDue = false;
    this.#schedule(this.#everyMs);
    await this.#work();
  }

  #schedule(ms: number): void {
    clearTimeout(this.#timer);
    this.#timer = withoutSpan(() => setTimeout(() => this.kick(), ms).unref());
  }
}
