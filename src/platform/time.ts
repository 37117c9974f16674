import { setImmediate as turn } from 'node:timers/promises';
import { withoutSpan } from './telemetry/tracing.ts';

/** Supplies the time; tests can replace it. */
export interface Clock {
  /** Milliseconds since the epoch. Can jump when the machine's clock is set. */
  now(): number;
  /** Milliseconds since an arbitrary start, for measuring durations: it never jumps. Absent: `now` is used. */
  monotonic?(): number;
}

export const systemClock: Clock = { now: () => Date.now(), monotonic: () => performance.now() };

export const monotonicMs = (clock: Clock): number => clock.monotonic?.() ?? clock.now();

/**
 * Ends the wait of a caller that has disconnected (its signal aborted). It is not in the closed list of errors, because
 * nobody will read it. `cause` is the signal's reason, if that says more.
 */
export class CallerAbortError extends Error {
  override readonly name = 'AbortError';

  constructor(reason?: unknown) {
    super('The caller disconnected before the response was ready.', { cause: reason });
  }
}

/** The part of AbortSignal that calls use. An AbortSignal is one. */
export interface Cancellation {
  readonly aborted: boolean;
  readonly reason: unknown;
  throwIfAborted(): void;
  addEventListener(type: 'abort', listener: () => void, options?: { readonly once: true }): void;
  removeEventListener(type: 'abort', listener: () => void): void;
}

/** A cancellation that costs a fraction of an AbortController: a proxied call has two and hardly ever uses them. */
export class Canceller implements Cancellation {
  readonly #listeners: (() => void)[] = [];
  aborted = false;
  reason: unknown;

  abort(reason: unknown): void {
    if (this.aborted) return;
    this.aborted = true;
    this.reason = reason;
    // A listener may remove others.
    for (let next = this.#listeners.shift(); next; next = this.#listeners.shift()) next();
  }

  throwIfAborted(): void {
    if (this.aborted) throw this.reason;
  }

  /** A listener is called at most once. */
  addEventListener(_type: 'abort', listener: () => void): void {
    this.#listeners.push(listener);
  }

  removeEventListener(_type: 'abort', listener: () => void): void {
    const at = this.#listeners.indexOf(listener);
    if (at >= 0) this.#listeners.splice(at, 1);
  }
}

/** Returns an AbortSignal that aborts with the cancellation, for functions of Node. */
export function toAbortSignal(cancellation: Cancellation): AbortSignal {
  if (cancellation instanceof AbortSignal) return cancellation;
  const controller = new AbortController();
  if (cancellation.aborted) controller.abort(cancellation.reason);
  else cancellation.addEventListener('abort', () => controller.abort(cancellation.reason));
  return controller.signal;
}

/** Returns a signal's abort reason as an error. */
export function abortReason(signal: Cancellation): Error {
  const reason: unknown = signal.reason;
  return reason instanceof Error ? reason : new CallerAbortError(reason);
}

/**
 * Settles like the work unless the signal aborts first. The work itself continues, and its outcome is ignored.
 * @throws the signal's reason
 */
export async function raceAbort<T>(work: Promise<T>, signal: Cancellation): Promise<T> {
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
 * Settles like the work unless it takes longer than `ms`. A result that arrived while this process was blocked is in time.
 * @throws the error from `late`
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

/** Waits for the work, for at most `ms`. Resolves to whether it has ended by then, successful or not. */
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

/** The abort comes first, so that it wins if both are ready, as with a signal that was already aborted. */
function raceLast<T>(work: Promise<T>, end: Promise<never>): Promise<T> {
  work.catch(() => {});
  return Promise.race([end, work]);
}

/**
 * Calls functions after one delay, in order. All share a timer, because one for each call would be a measurable part of it. The
 * timer does not keep the process alive. A function is called at most once.
 */
export class Delay {
  readonly #ms: number;
  /** The functions with the times at which they are due, the next one first. */
  readonly #due = new Map<() => void, number>();
  #timer: NodeJS.Timeout | undefined;
  #isCalling = false;

  constructor(ms: number) {
    this.#ms = ms;
  }

  add(call: () => void): void {
    this.#due.set(call, performance.now() + this.#ms);
    if (!this.#timer && !this.#isCalling) this.#start(this.#ms);
  }

  delete(call: () => void): void {
    this.#due.delete(call);
    if (this.#due.size > 0 || delays.size <= MAX_DELAYS || delays.get(this.#ms) !== this) return;
    delays.delete(this.#ms);
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #start(ms: number): void {
    this.#timer = withoutSpan(() => setTimeout(this.#run, ms).unref());
  }

  readonly #run = (): void => {
    this.#timer = undefined;
    this.#isCalling = true;
    const now = performance.now();
    try {
      for (const [call, atMs] of this.#due) {
        if (atMs > now) break;
        this.#due.delete(call);
        call();
      }
    } finally {
      this.#isCalling = false;
      const [next] = this.#due.values();
      if (next !== undefined) this.#start(Math.ceil(next - performance.now()));
    }
  };
}

/** How many delays are kept while nothing uses them: callers choose their own timeouts. */
const MAX_DELAYS = 100;
const delays = new Map<number, Delay>();

/** Returns the shared delay of this many milliseconds. */
export function delayOf(ms: number): Delay {
  let found = delays.get(ms);
  if (!found) delays.set(ms, (found = new Delay(ms)));
  return found;
}

/** The event loop gets a turn after this much work, in milliseconds. */
const SLICE_MS = 5;

export type Pause = () => Promise<void> | undefined;

/**
 * Returns a function to await between steps of long work. It yields to the event loop if 5 ms have passed since the last yield.
 * @param signal ends the work, with its reason
 */
export function slices(signal?: Cancellation): Pause {
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
 * Runs short works, in order: at once, until they have taken 5 ms of a turn of the event loop, and the others in later turns.
 */
export class ShortWorks {
  readonly #waiting: (() => void)[] = [];
  #endsAt = 0;
  #isTurnPlanned = false;

  /** @param work must not throw */
  run(work: () => void): void {
    if (this.#isTurnPlanned && (this.#waiting.length > 0 || performance.now() > this.#endsAt)) {
      this.#waiting.push(work);
      return;
    }
    if (!this.#isTurnPlanned) this.#planTurn();
    work();
  }

  #planTurn(): void {
    this.#isTurnPlanned = true;
    this.#endsAt = performance.now() + SLICE_MS;
    withoutSpan(() => setImmediate(this.#turn));
  }

  readonly #turn = (): void => {
    this.#isTurnPlanned = false;
    if (this.#waiting.length === 0) return;
    this.#planTurn();
    let done = 0;
    do this.#waiting[done++]?.();
    while (done < this.#waiting.length && performance.now() <= this.#endsAt);
    this.#waiting.splice(0, done);
  };
}

/**
 * Repeats work in the background, one run at a time: `everyMs` after the last run started, or when it has ended if that is
 * later. Does not keep the process alive and belongs to no request's trace.
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

  /** Starts the first run immediately, or after `firstMs`. */
  start(firstMs = 0): this {
    if (firstMs > 0) this.#schedule(firstMs);
    else this.kick();
    return this;
  }

  /** Runs now, or after the current run, which may have started too early to see the latest changes. */
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

  /** Starts no further run. Resolves when the current one has ended. */
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
