import { abortReason } from './time.ts';

/**
 * Joins concurrent calls for one key: while the first is under way, later ones get its promise.
 * Nothing is kept once it settles, whether it succeeded or failed.
 */
export class SingleFlight<T> {
  readonly #inFlight = new Map<string, Promise<T>>();

  run(key: string, start: () => Promise<T>): Promise<T> {
    const running = this.#inFlight.get(key);
    if (running) return running;
    const promise = start().finally(() => this.#inFlight.delete(key));
    this.#inFlight.set(key, promise);
    return promise;
  }

  /** Returns the call under way for a key, if there is one. */
  running(key: string): Promise<T> | undefined {
    return this.#inFlight.get(key);
  }
}

/** Runs pieces of work one at a time, in the order in which they came. A piece that fails holds up none after it. */
export class SerialQueue {
  #last: Promise<unknown> = Promise.resolve();
  #size = 0;

  /** How many pieces are under way or waiting. */
  get size(): number {
    return this.#size;
  }

  /** Starts the work, at once where nothing is under way, and resolves or rejects as it does. */
  run<T>(work: () => Promise<T>): Promise<T> {
    const started = this.#size++ === 0 ? begin(work) : this.#last.then(work);
    const ended = started.finally(() => this.#size--);
    this.#last = ended.catch(() => {});
    return ended;
  }

  /** Resolves when all that has come so far has ended, well or not. */
  async settled(): Promise<void> {
    await this.#last;
  }
}

/** Starts the work in this tick; what it throws at once is a rejection, too. */
const begin = async <T>(work: () => Promise<T>): Promise<T> => work();

interface Holder {
  busy: number;
  /** In order of arrival. A caller that gives up removes itself. */
  readonly waiting: Set<() => void>;
}

interface Resource {
  busy: number;
  waiting: number;
  /** Those that hold a slot or wait for one; the one served last comes last. */
  readonly holders: Map<string, Holder>;
}

/**
 * Bounds the work under way on one resource, such as calls to one address; further work waits. A resource has twice the
 * slots that one holder may have, and no holder gets more than half of what is free: the first gets up to 64 of 128, the
 * next 32, then 16. Work that hangs cannot be made to give its slots back, so some must be left for the next holder.
 * The waiting holder with the fewest slots is served first. Places in the queue are shared out in the same way.
 */
export class FairSlots {
  readonly #resources = new Map<string, Resource>();
  readonly #perHolder: number;
  readonly #maxWaiting: number;
  readonly #tooManyWait: () => Error;

  constructor(perHolder: number, maxWaiting: number, tooManyWait: () => Error) {
    this.#perHolder = perHolder;
    this.#maxWaiting = maxWaiting;
    this.#tooManyWait = tooManyWait;
  }

  /** Counts the slots that are held, and those that are waited for. */
  get use(): { busy: number; waiting: number } {
    const use = { busy: 0, waiting: 0 };
    for (const { busy, waiting } of this.#resources.values()) {
      use.busy += busy;
      use.waiting += waiting;
    }
    return use;
  }

  /**
   * Resolves with the function that gives the slot back (once; further calls do nothing), or rejects with the signal's
   * reason. @throws `tooManyWait` when too many wait already.
   */
  async take(key: string, holderId: string, signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    const resource = this.#resources.get(key) ?? { busy: 0, waiting: 0, holders: new Map<string, Holder>() };
    const holder = resource.holders.get(holderId) ?? { busy: 0, waiting: new Set() };
    const isFree = this.#isFree(resource, holder);
    if (!isFree && holder.waiting.size >= 2 * this.#maxWaiting - resource.waiting) throw this.#tooManyWait();
    this.#resources.set(key, resource);
    resource.holders.set(holderId, holder);
    if (isFree) occupy(resource, holder);
    else await this.#wait(resource, holderId, holder, signal);
    let held = true;
    return () => {
      if (held) this.#giveBack(key, resource, holderId, holder);
      held = false;
    };
  }

  #isFree(resource: Resource, holder: Holder): boolean {
    return holder.busy < 2 * this.#perHolder - resource.busy;
  }

  #wait(resource: Resource, holderId: string, holder: Holder, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const leave = () => {
        signal.removeEventListener('abort', onAbort);
        holder.waiting.delete(enter);
        resource.waiting--;
      };
      const onAbort = () => {
        leave();
        forgetIfIdle(resource, holderId, holder);
        reject(abortReason(signal));
      };
      const enter = () => {
        leave();
        resolve();
      };
      holder.waiting.add(enter);
      resource.waiting++;
      signal.addEventListener('abort', onAbort, { once: true });
    });
  }

  #giveBack(key: string, resource: Resource, holderId: string, holder: Holder): void {
    resource.busy--;
    holder.busy--;
    for (let next = this.#next(resource); next; next = this.#next(resource)) next();
    forgetIfIdle(resource, holderId, holder);
    if (resource.holders.size === 0) this.#resources.delete(key);
  }

  /** Returns what gives the next slot away; undefined when nobody who waits may have one. */
  #next(resource: Resource): (() => void) | undefined {
    let turn: [holderId: string, holder: Holder, enter: () => void] | undefined;
    for (const [holderId, holder] of resource.holders) {
      const [enter] = holder.waiting;
      if (enter && holder.busy < (turn?.[1].busy ?? Infinity)) turn = [holderId, holder, enter];
    }
    if (!turn || !this.#isFree(resource, turn[1])) return undefined;
    const [holderId, holder, enter] = turn;
    return () => {
      resource.holders.delete(holderId);
      resource.holders.set(holderId, holder);
      occupy(resource, holder);
      enter();
    };
  }
}

function occupy(resource: Resource, holder: Holder): void {
  resource.busy++;
  holder.busy++;
}

function forgetIfIdle(resource: Resource, holderId: string, holder: Holder): void {
  if (holder.busy === 0 && holder.waiting.size === 0) resource.holders.delete(holderId);
}
