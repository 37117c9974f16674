import { abortReason, CallerAbortError, Canceller, type Cancellation } from '../../../platform/time.ts';
import { withoutSpan } from '../../../platform/telemetry/tracing.ts';
import { outOfTime, SharedWorkTimedOut } from './failures.ts';

/**
 * Calls functions after one delay, in order. All share a timer, because one for each call would be a measurable part of it. The
 * timer does not keep the process alive.
 */
class Delay {
  readonly #ms: number;
  /** The functions with the times at which they are due, the next one first. */
  readonly #due = new Map<() => void, number>();
  #isRunning = false;

  constructor(ms: number) {
    this.#ms = ms;
  }

  add(call: () => void): void {
    this.#due.set(call, performance.now() + this.#ms);
    if (!this.#isRunning) this.#start(this.#ms);
  }

  delete(call: () => void): void {
    this.#due.delete(call);
    if (this.#due.size === 0 && delays.size > MAX_DELAYS) delays.delete(this.#ms);
  }

  #start(ms: number): void {
    this.#isRunning = true;
    withoutSpan(() => setTimeout(this.#run, ms).unref());
  }

  readonly #run = (): void => {
    this.#isRunning = false;
    const now = performance.now();
    for (const [call, atMs] of this.#due) {
      if (atMs > now) return this.#start(Math.ceil(atMs - now));
      this.delete(call);
      call();
    }
  };
}

/** How many delays are kept while nothing uses them: callers choose their own timeouts. */
const MAX_DELAYS = 100;
const delays = new Map<number, Delay>();

function delayOf(ms: number): Delay {
  let found = delays.get(ms);
  if (!found) delays.set(ms, (found = new Delay(ms)));
  return found;
}

/** Limits the time of one piece of work. Its signal aborts with the error that the work must reject with. */
export class Deadline {
  readonly #canceller = new Canceller();
  readonly #delay: Delay;
  readonly #caller: Cancellation | undefined;
  readonly totalMs: number;

  /** @param caller absent for work that is shared or that nobody waits for */
  constructor(totalMs: number, caller?: Cancellation) {
    this.#caller = caller;
    this.totalMs = totalMs;
    this.#delay = delayOf(totalMs);
    this.#delay.add(this.#onTimeout);
    if (caller?.aborted) this.abort();
    else caller?.addEventListener('abort', this.abort, { once: true });
  }

  readonly #onTimeout = (): void =>
    this.#canceller.abort(this.#caller ? outOfTime(this.totalMs) : new SharedWorkTimedOut(this.totalMs));

  /** Ends the work as if its caller had disconnected. */
  readonly abort = (): void => {
    const reason = this.#caller?.reason;
    this.#canceller.abort(reason instanceof CallerAbortError ? reason : new CallerAbortError(reason));
  };

  get signal(): Cancellation {
    return this.#canceller;
  }

  /** Rejects if the deadline is reached before the work has ended. The work itself continues, for others who wait for it. */
  wait<T>(work: Promise<T>): Promise<T> {
    const { signal } = this;
    // Every call with a user waits here: `raceAbort` would cost it several extra promises.
    return new Promise<T>((resolve, reject) => {
      const onAbort = () => reject(abortReason(signal));
      if (signal.aborted) onAbort();
      else signal.addEventListener('abort', onAbort, { once: true });
      work.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
    });
  }

  /**
   * Waits for shared work with its own deadline. If the work times out while a late caller still has time left, that caller
   * starts the work again.
   */
  async share<T>(work: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await this.wait(work());
      } catch (error) {
        if (this.signal.aborted || !(error instanceof SharedWorkTimedOut)) throw error;
      }
    }
  }

  [Symbol.dispose](): void {
    this.#delay.delete(this.#onTimeout);
    this.#caller?.removeEventListener('abort', this.abort);
  }
}
