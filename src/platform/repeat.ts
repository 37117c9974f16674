import { withoutSpan } from './telemetry/tracing.ts';

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
