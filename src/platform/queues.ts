import { abortReason, type Cancellation } from './time.ts';

/**
 * Joins concurrent calls for one key: while the first is running, later ones get its promise. Nothing is cached once it
 * settles, successful or not.
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

  /** Returns the running call for a key, if any. */
  running(key: string): Promise<T> | undefined {
    return this.#inFlight.get(key);
  }
}

/** Runs tasks one at a time, in order of arrival. A failing task does not block later ones. */
export class SerialQueue {
  #last: Promise<unknown> = Promise.resolve();
  #size = 0;

  /** The number of running and waiting tasks. */
  get size(): number {
    return this.#size;
  }

  /** Starts the task, immediately if the queue is empty, and settles like it. */
  run<T>(work: () => Promise<T>): Promise<T> {
    const started = this.#size++ === 0 ? begin(work) : this.#last.then(work);
    const ended = started.finally(() => this.#size--);
    this.#last = ended.catch(() => {});
    return ended;
  }

  /** Resolves when all tasks queued so far have ended, successful or not. */
  async settled(): Promise<void> {
    await this.#last;
  }
}

/** Starts the task in this tick; a synchronous throw becomes a rejection too. */
const begin = async <T>(work: () => Promise<T>): Promise<T> => work();

/** Counts what is under way by key. A key has so many places, and all keys together no more than `max`; nobody waits for one. */
export class Places {
  readonly #taken = new Map<string, number>();
  readonly #perKey: number;
  readonly #max: number;
  #total = 0;

  constructor(perKey: number, max = Infinity) {
    this.#perKey = perKey;
    this.#max = max;
  }

  /** The number of places that are taken, and of those that are free for all keys together. */
  get use(): { taken: number; free: number } {
    return { taken: this.#total, free: this.#max - this.#total };
  }

  /** Takes a place until the result is disposed of. Returns which limit is reached if none is free. */
  enter(key: string): Disposable | 'key' | 'all' {
    const taken = this.#taken.get(key) ?? 0;
    if (taken >= this.#perKey) return 'key';
    if (this.#total >= this.#max) return 'all';
    this.#taken.set(key, taken + 1);
    this.#total++;
    return { [Symbol.dispose]: () => this.#leave(key) };
  }

  #leave(key: string): void {
    const left = (this.#taken.get(key) ?? 1) - 1;
    if (left === 0) this.#taken.delete(key);
    else this.#taken.set(key, left);
    this.#total--;
  }
}

interface Holder {
  busy: number;
  /** In order of arrival. A caller that gives up removes itself. */
  readonly waiting: Set<() => void>;
}

interface Resource {
  busy: number;
  waiting: number;
  /** Holders that have or want a slot; the one served last is at the end. */
  readonly holders: Map<string, Holder>;
}

/**
 * Limits concurrent work on one resource, such as calls to one address; further work waits. A resource has twice the slots of
 * a single holder's maximum, and no holder gets more than half of the free slots: the first gets up to 64 of 128, the next
 * 32, then 16. Hanging work cannot be forced to release its slots, so some must be left for others. The waiting holder with
 * the fewest slots goes first. Places in the queue are shared in the same way.
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

  /** Returns the number of used slots and of waiting callers. */
  get use(): { busy: number; waiting: number } {
    const use = { busy: 0, waiting: 0 };
    for (const { busy, waiting } of this.#resources.values()) {
      use.busy += busy;
      use.waiting += waiting;
    }
    return use;
  }

  /**
   * Returns a function that releases the slot (further calls do nothing): at once if a slot is free, because most calls find
   * one. Otherwise resolves to it, or rejects with the signal's reason.
   * @throws `tooManyWait` if too many are already waiting; the signal's reason
   */
  take(key: string, holderId: string, signal: Cancellation): (() => void) | Promise<() => void> {
    signal.throwIfAborted();
    const resource = this.#resources.get(key) ?? { busy: 0, waiting: 0, holders: new Map<string, Holder>() };
    const holder = resource.holders.get(holderId) ?? { busy: 0, waiting: new Set() };
    const isFree = this.#isFree(resource, holder);
    if (!isFree && holder.waiting.size >= 2 * this.#maxWaiting - resource.waiting) throw this.#tooManyWait();
    if (resource.holders.size === 0) this.#resources.set(key, resource);
    if (holder.busy === 0 && holder.waiting.size === 0) resource.holders.set(holderId, holder);
    let held = true;
    const release = () => {
      if (held) this.#giveBack(key, resource, holderId, holder);
      held = false;
    };
    if (!isFree) return this.#wait(resource, holderId, holder, signal).then(() => release);
    occupy(resource, holder);
    return release;
  }

  #isFree(resource: Resource, holder: Holder): boolean {
    return holder.busy < 2 * this.#perHolder - resource.busy;
  }

  #wait(resource: Resource, holderId: string, holder: Holder, signal: Cancellation): Promise<void> {
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

  /** Returns a function that gives the next slot away; undefined if no waiting holder may have one. */
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
