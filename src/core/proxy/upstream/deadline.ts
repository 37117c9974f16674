import { abortReason, CallerAbortError } from '../../../platform/race-abort.ts';
import { outOfTime, SharedWorkTimedOut } from './failures.ts';

/** The time one piece of work has. Its signal aborts with what the work must reject with. */
export class Budget {
  readonly #controller = new AbortController();
  readonly #timer: NodeJS.Timeout;
  readonly #caller: AbortSignal | undefined;
  readonly totalMs: number;

  /** Without a caller, for work that is shared between callers or that nobody waits for. */
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

  /** Rejects when the budget ends before the work; the work itself goes on, for others who wait for it. */
  wait<T>(work: Promise<T>): Promise<T> {
    const { signal } = this;
    return new Promise<T>((resolve, reject) => {
      const onAbort = () => reject(abortReason(signal));
      const done = () => signal.removeEventListener('abort', onAbort);
      if (signal.aborted) onAbort();
      else signal.addEventListener('abort', onAbort, { once: true });
      work.then(resolve, reject).finally(done);
    });
  }

  /**
   * Waits for work that several share and that has a budget of its own. One who joins it late, and whose own time is not up
   * when the work's is, starts it anew.
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
