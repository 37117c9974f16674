import { abortReason, CallerAbortError } from '../../../platform/time.ts';
import { outOfTime, SharedWorkTimedOut } from './failures.ts';

/** Limits the time of one piece of work. Its signal aborts with the error that the work must reject with. */
export class Deadline {
  readonly #controller = new AbortController();
  readonly #timer: NodeJS.Timeout;
  readonly #caller: AbortSignal | undefined;
  readonly totalMs: number;

  /** @param caller absent for work that is shared or that nobody waits for */
  constructor(totalMs: number, caller?: AbortSignal) {
    this.#caller = caller;
    this.totalMs = totalMs;
    this.#timer = setTimeout(
      () => this.#controller.abort(caller ? outOfTime(totalMs) : new SharedWorkTimedOut(totalMs)),
      totalMs,
    );
    if (caller?.aborted) this.#onCallerAbort();
    else caller?.addEventListener('abort', this.#onCallerAbort, { once: true });
  }

  readonly #onCallerAbort = (): void => this.#controller.abort(new CallerAbortError(this.#caller?.reason));

  get signal(): AbortSignal {
    return this.#controller.signal;
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
    clearTimeout(this.#timer);
    this.#caller?.removeEventListener('abort', this.#onCallerAbort);
  }
}
