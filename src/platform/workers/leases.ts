import { LRUCache } from 'lru-cache';
import { SingleFlight } from '../queues.ts';
import { monotonicMs, Repeat, systemClock, type Clock } from '../time.ts';

/** One process asks for points of a window that several processes spend. */
export interface LeaseRequest {
  /** Names the limit and its holder. */
  readonly window: string;
  /** The points of a whole window, and how long it lasts. */
  readonly points: number;
  readonly durationMs: number;
  /** The points needed now. */
  readonly needed: number;
}

export interface Lease {
  /** 0: the window has too few left. Otherwise at least as many as needed. */
  readonly granted: number;
  /** The points that the window still has for all processes. */
  readonly left: number;
  readonly resetMs: number;
}

/** A lease is at most this part of what is left, divided by the number of processes. */
const PART = 16;
const SWEEP_MS = 60_000;

/**
 * Keeps windows that several processes spend, and hands out their points in lots. The processes together never spend more than
 * a window has. They ask a few dozen times a window rather than once a request, because a lot is a part of what is left; that
 * also bounds what a process may hold without using it.
 */
export class LeaseBook {
  readonly #windows = new Map<string, { left: number; endsAtMs: number }>();
  readonly #processes: number;
  readonly #clock: Clock;
  readonly #sweep: Repeat;

  constructor(processes: number, clock: Clock = systemClock) {
    this.#processes = processes;
    this.#clock = clock;
    this.#sweep = new Repeat(SWEEP_MS, () => this.#forgetEnded()).start(SWEEP_MS);
  }

  lease({ window: name, points, durationMs, needed }: LeaseRequest): Lease {
    const nowMs = monotonicMs(this.#clock);
    let window = this.#windows.get(name);
    if (!window || window.endsAtMs <= nowMs) {
      window = { left: points, endsAtMs: nowMs + durationMs };
      this.#windows.set(name, window);
    }
    const lot = Math.max(needed, Math.floor(window.left / (PART * this.#processes)));
    const granted = needed > window.left ? 0 : Math.min(lot, window.left);
    // A refused request is charged too.
    window.left = granted === 0 ? 0 : window.left - granted;
    return { granted, left: window.left, resetMs: window.endsAtMs - nowMs };
  }

  close(): Promise<void> {
    return this.#sweep.stop();
  }

  #forgetEnded(): void {
    const nowMs = monotonicMs(this.#clock);
    for (const [name, { endsAtMs }] of this.#windows) if (endsAtMs <= nowMs) this.#windows.delete(name);
  }
}

/** The state of a window, as far as this process knows: the others may have spent more since it asked. */
export interface LeasedState {
  readonly isWithin: boolean;
  readonly remaining: number;
  readonly resetMs: number;
}

interface Held {
  points: number;
  left: number;
  readonly endsAtMs: number;
}

const MAX_KEYS = 100_000;
/** How long nobody asks again after a question without an answer. */
const UNANSWERED_MS = 1_000;

/** Limits events to so many per window in all processes together, by points leased from a `LeaseBook` in another process. */
export class LeasedLimit {
  readonly points: number;
  readonly #name: string;
  readonly #durationMs: number;
  readonly #ask: (request: LeaseRequest) => Promise<Lease | undefined>;
  readonly #clock: Clock;
  readonly #held: LRUCache<string, Held>;
  readonly #asking = new SingleFlight<void>();

  /** @param ask resolves to undefined if the book does not answer: then nobody is refused */
  constructor(
    {
      name,
      points,
      durationMs,
    }: { readonly name: string; readonly points: number; readonly durationMs: number },
    ask: (request: LeaseRequest) => Promise<Lease | undefined>,
    clock: Clock = systemClock,
  ) {
    this.points = points;
    this.#name = name;
    this.#durationMs = durationMs;
    this.#ask = ask;
    this.#clock = clock;
    this.#held = new LRUCache({ max: MAX_KEYS });
  }

  /** Spends points of a key's window. */
  async spend(key: string, count = 1): Promise<LeasedState> {
    for (;;) {
      const held = this.#current(key);
      if (held && (held.points >= count || held.left === 0)) {
        const isWithin = held.points >= count;
        held.points = isWithin ? held.points - count : 0;
        return this.#stateOf(held, isWithin);
      }
      await this.#asking.run(key, () => this.#leaseMore(key, count - (held?.points ?? 0)));
    }
  }

  /** Returns the state of a key's window; undefined before its first event in this process. */
  peek(key: string): LeasedState | undefined {
    const held = this.#current(key);
    return held && this.#stateOf(held, true);
  }

  async #leaseMore(key: string, needed: number): Promise<void> {
    // Before the book's answer, so that this process never takes a window for longer than the book does.
    const askedAtMs = monotonicMs(this.#clock);
    const window = `${this.#name}:${key}`;
    const lease = await this.#ask({ window, points: this.points, durationMs: this.#durationMs, needed });
    const held = this.#current(key);
    if (!lease) return void this.#held.set(key, this.#unanswered(needed));
    const { granted, left, resetMs } = lease;
    const points = granted === 0 ? 0 : (held?.points ?? 0) + granted;
    this.#held.set(key, { points, left, endsAtMs: askedAtMs + resetMs });
  }

  /** A whole window's points for a moment, so that calls of one key do not wait one after another for a book that hangs. */
  #unanswered(needed: number): Held {
    const endsAtMs = monotonicMs(this.#clock) + UNANSWERED_MS;
    return { points: Math.max(needed, this.points), left: 1, endsAtMs };
  }

  #current(key: string): Held | undefined {
    const held = this.#held.get(key);
    return held && held.endsAtMs > monotonicMs(this.#clock) ? held : undefined;
  }

  #stateOf({ points, left, endsAtMs }: Held, isWithin: boolean): LeasedState {
    return { isWithin, remaining: points + left, resetMs: endsAtMs - monotonicMs(this.#clock) };
  }
}
