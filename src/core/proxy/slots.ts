import { SwitchboardError } from '../../errors.ts';
import { abortReason } from './budget.ts';

interface Origin {
  busy: number;
  /** In order of arrival; one that gives up removes itself, so abandoned callers hold nothing. */
  readonly waiting: Set<() => void>;
}

/** Bounds the calls under way to one origin; further ones wait in order. */
export class Slots {
  readonly #origins = new Map<string, Origin>();
  readonly #perOrigin: number;
  readonly #maxWaiting: number;

  constructor(perOrigin: number, maxWaiting: number) {
    this.#perOrigin = perOrigin;
    this.#maxWaiting = maxWaiting;
  }

  /**
   * Resolves with the function that gives the slot back (once; further calls do nothing), or rejects with the signal's
   * reason. @throws SwitchboardError `unavailable` when too many wait already.
   */
  async take(key: string, signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    const origin = this.#origins.get(key) ?? { busy: 0, waiting: new Set() };
    this.#origins.set(key, origin);
    if (origin.busy < this.#perOrigin) origin.busy++;
    else await this.#wait(origin, signal);
    let held = true;
    return () => {
      if (held) this.#giveBack(key, origin);
      held = false;
    };
  }

  #wait(origin: Origin, signal: AbortSignal): Promise<void> {
    if (origin.waiting.size >= this.#maxWaiting) {
      throw new SwitchboardError(
        'unavailable',
        'Too many calls to this MCP server are waiting already. Try again later.',
      );
    }
    return new Promise((resolve, reject) => {
      const onAbort = () => {
        origin.waiting.delete(enter);
        reject(abortReason(signal));
      };
      const enter = () => {
        signal.removeEventListener('abort', onAbort);
        resolve();
      };
      origin.waiting.add(enter);
      signal.addEventListener('abort', onAbort, { once: true });
    });
  }

  /** The slot goes to the one that waits longest, or back. */
  #giveBack(key: string, origin: Origin): void {
    for (const enter of origin.waiting) {
      origin.waiting.delete(enter);
      enter();
      return;
    }
    origin.busy--;
    if (origin.busy === 0) this.#origins.delete(key);
  }
}
