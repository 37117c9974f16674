import { setTimeout as delay } from 'node:timers/promises';
import { SerialQueue } from '../queues.ts';
import type { Hold, OpenDatabase } from './database.ts';

/** How often one who waits for another process tries. */
const TRY_EVERY_MS = 1_000;

/** @param signal aborts when the work has to end, or the lock was lost */
type Work<T> = (signal: AbortSignal) => Promise<T>;

/** Lets one piece of work of a kind run at a time, of all processes on the database. */
export class ClusterLock {
  readonly #hold: OpenDatabase['hold'];
  readonly #lock: number;
  readonly #queue = new SerialQueue();

  /** @param lock any number, but always the same for one kind of work */
  constructor(hold: OpenDatabase['hold'], lock: number) {
    this.#hold = hold;
    this.#lock = lock;
  }

  /**
   * Works when the lock is had.
   * @param onWait is called once where others come first
   * @throws the signal's reason, also while it waits
   */
  run<T>(signal: AbortSignal, onWait: () => void, work: Work<T>): Promise<T> {
    const hasToWait = this.#queue.size > 0;
    if (hasToWait) onWait();
    return this.#queue.run(async () => {
      await using hold = await this.#wait(signal, hasToWait ? () => {} : onWait);
      return await work(AbortSignal.any([signal, hold.lost]));
    });
  }

  /** Works unless another process has the lock: undefined then. */
  runIfFree<T>(signal: AbortSignal, work: Work<T>): Promise<T | undefined> {
    return this.#queue.run(async () => {
      await using hold = await this.#hold(this.#lock);
      return hold && (await work(AbortSignal.any([signal, hold.lost])));
    });
  }

  /** Resolves when all work that has come so far in this process has ended. */
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
