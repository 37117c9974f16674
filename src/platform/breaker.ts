export interface BreakerLimits {
  /** The number of consecutive failures that opens the breaker. */
  readonly failuresInARow: number;
  /** Also opens the breaker if half of the calls within `ms` failed, with at least `minCalls` calls. */
  readonly window?: { readonly ms: number; readonly minCalls: number };
  /** The initial open time in milliseconds; each failed probe doubles it, up to `maxOpenMs`. */
  readonly firstOpenMs: number;
  readonly maxOpenMs: number;
  /** How long a probe blocks other calls: a slow call may be probing a healthy service. */
  readonly maxProbeMs: number;
}

/** When to check again while a probe is running: it usually ends soon. */
const PROBE_POLL_MS = 1_000;

/** One call's entry in a breaker. A call that started before the breaker existed has `{ atMs, probes: false }`. */
export interface Entered {
  readonly atMs: number;
  readonly probes: boolean;
}

/**
 * A circuit breaker. Closed: all calls are allowed. Open: no call is allowed for a time that doubles with each failed probe. Then
 * one call probes while the others are refused, and its success closes the breaker. Background recovery uses it as well: wait for
 * `waitMs`, `enter`, try, report the outcome. All times are milliseconds of one monotonic clock, which the caller reads.
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

  /** The text of the last failure; empty before the first. */
  get lastFailure(): string {
    return this.#lastFailure;
  }

  get isOpen(): boolean {
    return this.#openMs > 0;
  }

  /** Returns how long no call is allowed; 0 if one is allowed now. */
  waitMs(nowMs: number): number {
    if (this.#openMs === 0) return 0;
    if (!this.#probe) return Math.max(0, this.#changedAtMs + this.#openMs - nowMs);
    const restMs = Math.max(0, this.#probe.atMs + this.#limits.maxProbeMs - nowMs);
    return Math.min(restMs, PROBE_POLL_MS);
  }

  /** Starts a call. Call it only if `waitMs` is 0. */
  enter(nowMs: number): Entered {
    const entered = { atMs: nowMs, probes: this.#openMs > 0 };
    if (entered.probes) this.#probe = entered;
    return entered;
  }

  /** Ends a call without an outcome. If it was the probe, the next call probes. */
  leave(entered: Entered): void {
    if (this.#probe === entered) this.#probe = undefined;
  }

  /** Records a success. Returns true if it closed the breaker. */
  succeeded(entered: Entered, nowMs: number): boolean {
    if (this.#isOutdated(entered)) return false;
    this.#inARow = 0;
    this.#count(nowMs, 0);
    if (!entered.probes || this.#openMs === 0) return false;
    this.#change(0, nowMs);
    return true;
  }

  /**
   * Records a failure. Returns true if it opened a closed breaker.
   * @param minOpenMs keeps the breaker open at least this long, up to `maxOpenMs`, for instance after a Retry-After
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

  /** Opens the breaker immediately. Returns true if it was closed. */
  trip(nowMs: number, failure: string, minOpenMs = 0): boolean {
    this.#lastFailure = failure;
    if (this.#openMs > 0) return false;
    this.#open(this.#limits.firstOpenMs, minOpenMs, nowMs);
    return true;
  }

  /** A call that started before the last change carries no information. */
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
