import { setTimeout as delay } from 'node:timers/promises';
import type { Hold, OpenDatabase } from './database.ts';

/** Locks of the database: any numbers, but always the same. */
export const LOCKS = { sync: 0x5b_5c, probing: 0x5b_5d } as const;
/** How often one who waits for another process tries. */
const TRY_EVERY_MS = 1_000;

/** Aborts when the turn has to end, or was lost. */
type Work<T> = (signal: AbortSignal) => Promise<T>;

/** One piece of work of a kind at a time, such as a sync, of all processes on the database. */
export class Turns {
  readonly #hold: OpenDatabase['hold'];
  readonly #lock: number;
  #running: Promise<unknown> = Promise.resolve();
  /** Under way or waiting, in this process. */
  #count = 0;

  constructor(hold: OpenDatabase['hold'], lock: (typeof LOCKS)[keyof typeof LOCKS]) {
    this.#hold = hold;
    this.#lock = lock;
  }

  /** @param onWait hears, once, that others come first @throws the signal's reason, also while it waits */
  take<T>(signal: AbortSignal, onWait: () => void, work: Work<T>): Promise<T> {
    const hasToWait = this.#count > 0;
    if (hasToWait) onWait();
    return this.#next(async () => {
      await using hold = await this.#wait(signal, hasToWait ? () => {} : onWait);
      return await work(AbortSignal.any([signal, hold.lost]));
    });
  }

  /** Undefined where another process has its turn. */
  takeIfFree<T>(signal: AbortSignal, work: Work<T>): Promise<T | undefined> {
    return this.#next(async () => {
      await using hold = await this.#hold(this.#lock);
      return hold && (await work(AbortSignal.any([signal, hold.lost])));
    });
  }

  #next<T>(work: () => Promise<T>): Promise<T> {
    this.#count++;
    const running = this.#running.then(work).finally(() => this.#count--);
    this.#running = running.catch(() => {});
    return running;
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
