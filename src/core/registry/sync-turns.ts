import { setTimeout as delay } from 'node:timers/promises';
import type { Hold, OpenDatabase } from '../../infra/database.ts';

/** Any number, but always the same: who has this lock of the database syncs. */
const SYNC_LOCK = 0x5b_5c;
/** How often one who waits for another process tries. */
const TRY_EVERY_MS = 1_000;

/** Aborts when the turn has to end, or was lost. */
type Work<T> = (signal: AbortSignal) => Promise<T>;

/** One sync at a time, of all processes on the database. */
export class SyncTurns {
  readonly #hold: OpenDatabase['hold'];
  #running: Promise<unknown> = Promise.resolve();
  /** Under way or waiting, in this process. */
  #count = 0;

  constructor(hold: OpenDatabase['hold']) {
    this.#hold = hold;
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
      await using hold = await this.#hold(SYNC_LOCK);
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
      const hold = await this.#hold(SYNC_LOCK);
      if (hold) return hold;
      if (tries === 0) onWait();
      await delay(TRY_EVERY_MS, undefined, { signal }).catch(() => {});
    }
  }
}
