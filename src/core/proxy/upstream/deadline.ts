import {
  abortReason,
  CallerAbortError,
  Canceller,
  delayOf,
  type Cancellation,
  type Delay,
} from '../../../platform/time.ts';
import { outOfTime, SharedWorkTimedOut } from './failures.ts';

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
