export interface BreakerLimits {
  /** Failures in a row that open the breaker. */
  readonly failuresInARow: number;
  /** Opens the breaker, too, when half of the calls within `ms` failed, if there were at least `minCalls`. */
  readonly window?: { readonly ms: number; readonly minCalls: number };
  /** The first time it stays open, in milliseconds; each failed probe doubles it, up to `maxOpenMs`. */
  readonly firstOpenMs: number;
  readonly maxOpenMs: number;
  /** How long one probe keeps other calls out: a slow call may be the probe of a service that is well. */
  readonly maxProbeMs: number;
}

/** When to ask again while a probe is under way: it is over soon, as a rule. */
const PROBE_POLL_MS = 1_000;

/** One call's part in a breaker. A call that began before there was one has `{ atMs, probes: false }`. */
export interface Entered {
  readonly atMs: number;
  readonly probes: boolean;
}

/**
 * Decides whether something that has failed again and again is asked at present. Closed: every call goes. Open: no call
 * goes for a while, which doubles with each failed probe. Then one call probes while the others are refused, and its
 * success closes the breaker. Background recovery fits in: wait for `waitMs`, `enter`, try, report the outcome.
 * All times are milliseconds of one monotonic clock, which the caller reads.
 */
export class Breaker {
  readonly #limits: BreakerLimits;
  #inARow = 0;
  #window = { sinceMs: -Infinity, calls: 0, failures: 0 };
  /** 0 while it is closed. */
  #openMs = 0;
  #changedAtMs = -Infinity;
  #probe: Entered | undefined;
  #lastFailure = '';

  constructor(limits: BreakerLimits) {
    this.#limits = limits;
  }

  /** The words given for the last failure; empty before the first. */
  get lastFailure(): string {
    return this.#lastFailure;
  }

  get isOpen(): boolean {
    return this.#openMs > 0;
  }

  /** Returns for how long no call may go; 0 when one may. */
  waitMs(nowMs: number): number {
    if (this.#openMs === 0) return 0;
    if (!this.#probe) return Math.max(0, this.#changedAtMs + this.#openMs - nowMs);
    const restMs = Math.max(0, this.#probe.atMs + this.#limits.maxProbeMs - nowMs);
    return Math.min(restMs, PROBE_POLL_MS);
  }

  /** Begins a call. Call it only when `waitMs` is 0. */
  enter(nowMs: number): Entered {
    const entered = { atMs: nowMs, probes: this.#openMs > 0 };
    if (entered.probes) this.#probe = entered;
    return entered;
  }

  /** Ends a call. Where it was the probe and said nothing about the service, the next call probes. */
  leave(entered: Entered): void {
    if (this.#probe === entered) this.#probe = undefined;
  }

  /** Counts a success. Returns true when it closed the breaker. */
  succeeded(entered: Entered, nowMs: number): boolean {
    if (this.#isOutdated(entered)) return false;
    this.#inARow = 0;
    this.#count(nowMs, 0);
    if (!entered.probes || this.#openMs === 0) return false;
    this.#change(0, nowMs);
    return true;
  }

  /**
   * Counts a failure. Returns true when it opened a closed breaker.
   * @param minOpenMs keeps the breaker open at least this long, up to `maxOpenMs`, as where the service asked to wait
   */
  failed(entered: Entered, nowMs: number, failure: string, minOpenMs = 0): boolean {
    if (this.#isOutdated(entered)) return false;
    this.#lastFailure = failure;
    if (this.#openMs > 0) {
      if (this.#probe === entered) this.#open(this.#openMs * 2, minOpenMs, nowMs);
      return false;
    }
    this.#inARow++;
    this.#count(nowMs, 1);
    if (this.#inARow < this.#limits.failuresInARow && !this.#halfFailed()) return false;
    this.#open(this.#limits.firstOpenMs, minOpenMs, nowMs);
    return true;
  }

  /** Opens the breaker at once, however few failures there were. Returns true when it was closed. */
  trip(nowMs: number, failure: string, minOpenMs = 0): boolean {
    this.#lastFailure = failure;
    if (this.#openMs > 0) return false;
    this.#open(this.#limits.firstOpenMs, minOpenMs, nowMs);
    return true;
  }

  /** A call that began before the last change is no news. */
  #isOutdated(entered: Entered): boolean {
    return entered.atMs < this.#changedAtMs;
  }

  #halfFailed(): boolean {
    const { minCalls = Infinity } = this.#limits.window ?? {};
    const { calls, failures } = this.#window;
    return calls >= minCalls && failures * 2 >= calls;
  }

  #count(nowMs: number, failures: 0 | 1): void {
    const { ms = Infinity } = this.#limits.window ?? {};
    if (nowMs - this.#window.sinceMs >= ms) this.#window = { sinceMs: nowMs, calls: 0, failures: 0 };
    this.#window.calls++;
    this.#window.failures += failures;
  }

  #open(openMs: number, minOpenMs: number, nowMs: number): void {
    this.#change(Math.min(Math.max(openMs, minOpenMs), this.#limits.maxOpenMs), nowMs);
  }

  #change(openMs: number, nowMs: number): void {
    this.#openMs = openMs;
    this.#changedAtMs = nowMs;
    this.#probe = undefined;
    this.#inARow = 0;
    this.#window = { sinceMs: nowMs, calls: 0, failures: 0 };
  }
}
