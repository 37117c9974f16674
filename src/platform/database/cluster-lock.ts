import { setTimeout as delay } from 'node:timers/promises';
import { SerialQueue } from '../queues.ts';
import type { Hold, OpenDatabase } from './database.ts';

/** The retry interval while another process has the lock. */
const TRY_EVERY_MS = 1_000;

/** @param signal aborts when the work has to end or the lock is lost */
type Work<T> = (signal: AbortSignal) => Promise<T>;

/** Runs one piece of work of a kind at a time across all processes on the database. */
export class ClusterLock {
  readonly #hold: OpenDatabase['hold'];
  readonly #lock: number;
  readonly #queue = new SerialQueue();

  /** @param lock an arbitrary number, fixed for one kind of work */
  constructor(hold: OpenDatabase['hold'], lock: number) {
    this.#hold = hold;
    this.#lock = lock;
  }

  /**
   * Runs the work once the lock is acquired.
   * @param onWait called once if others come first
   * @throws the signal's reason, also while waiting
   */
  run<T>(signal: AbortSignal, onWait: () => void, work: Work<T>): Promise<T> {
    const hasToWait = this.#queue.size > 0;
    if (hasToWait) onWait();
    return this.#queue.run(async () => {
      await using hold = await this.#wait(signal, hasToWait ? () => {} : onWait);
      return await work(AbortSignal.any([signal, hold.lost]));
    });
  }

  /** Runs the work, or returns undefined if another process has the lock. */
  runIfFree<T>(signal: AbortSignal, work: Work<T>): Promise<T | undefined> {
    return this.#queue.run(async () => {
      await using hold = await this.#hold(this.#lock);
      return hold && (await work(AbortSignal.any([signal, hold.lost])));
    });
  }

  /** Resolves when all work started so far in this process has ended. */
  settled(): Promise<void> {
    return this.#queue.settled();
  }

  async #wait(signal: AbortSignal, onWait: () => void): Promise<Hold> {
    for (let tries = 0; ; tries++) {
      signal.throwIfAborted();
      const hold = await this.#hold(this.#lock);
      if (hold) return hold;
      if (tries === 0) onWait();
      await delay(TRY_EVERY_MS, undefined, { signal }).catch(() => {});
    }
  }
}
