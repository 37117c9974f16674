/** Failures in a row that open a circuit. */
const MAX_IN_A_ROW = 5;
/** Half of the calls of a time, if they are enough to tell, open it, too. */
const WINDOW_MS = 30_000;
const MIN_CALLS = 20;
const FIRST_OPEN_MS = 5_000;
const MAX_OPEN_MS = 60_000;
/** How long one probe keeps others out: a slow call may be the probe of a server that is well. */
const MAX_PROBE_MS = 10_000;
/** When to ask again while a probe is under way: it is over soon, as a rule. */
const PROBE_POLL_MS = 1_000;

/** One call's part in a circuit. */
export interface Entered {
  readonly atMs: number;
  readonly probes: boolean;
}

/**
 * Whether a server that has failed again and again is called at present. Closed: every call goes. Open: none does, for 5 s
 * first and twice as long after each failed probe, up to a minute. Then one call probes while the others are refused; its
 * success closes the circuit. All times in milliseconds.
 */
export class Circuit {
  #inARow = 0;
  #window = { sinceMs: -Infinity, calls: 0, failures: 0 };
  /** 0 while it is closed. */
  #openMs = 0;
  #changedAtMs = -Infinity;
  #probe: Entered | undefined;
  #lastFailure = '';

  /** What the last failure was called. */
  get lastFailure(): string {
    return this.#lastFailure;
  }

  get isOpen(): boolean {
    return this.#openMs > 0;
  }

  /** How long no call may go. */
  waitMs(nowMs: number): number {
    if (this.#openMs === 0) return 0;
    if (!this.#probe) return Math.max(0, this.#changedAtMs + this.#openMs - nowMs);
    const restMs = Math.max(0, this.#probe.atMs + MAX_PROBE_MS - nowMs);
    return Math.min(restMs, PROBE_POLL_MS);
  }

  /** Only when `waitMs` is 0. */
  enter(nowMs: number): Entered {
    const entered = { atMs: nowMs, probes: this.#openMs > 0 };
    if (entered.probes) this.#probe = entered;
    return entered;
  }

  /** The call is over; if it was the probe and said nothing about the server, the next call probes. */
  leave(entered: Entered): void {
    if (this.#probe === entered) this.#probe = undefined;
  }

  /** Returns whether this closed the circuit. */
  succeeded(entered: Entered, nowMs: number): boolean {
    if (this.#isOutdated(entered)) return false;
    this.#inARow = 0;
    this.#count(nowMs, 0);
    if (!entered.probes || this.#openMs === 0) return false;
    this.#change(0, nowMs);
    return true;
  }

  /** Returns whether this opened the circuit, where it was closed. */
  failed(entered: Entered, nowMs: number, failure: string): boolean {
    if (this.#isOutdated(entered)) return false;
    this.#lastFailure = failure;
    if (this.#openMs > 0) {
      if (this.#probe === entered) this.#change(Math.min(this.#openMs * 2, MAX_OPEN_MS), nowMs);
      return false;
    }
    this.#inARow++;
    this.#count(nowMs, 1);
    const { calls, failures } = this.#window;
    if (this.#inARow < MAX_IN_A_ROW && (calls < MIN_CALLS || failures * 2 < calls)) return false;
    this.#change(FIRST_OPEN_MS, nowMs);
    return true;
  }

  /** What began before the last change is no news. */
  #isOutdated(entered: Entered): boolean {
    return entered.atMs < this.#changedAtMs;
  }

  #count(nowMs: number, failures: 0 | 1): void {
    if (nowMs - this.#window.sinceMs >= WINDOW_MS) this.#window = { sinceMs: nowMs, calls: 0, failures: 0 };
    this.#window.calls++;
    this.#window.failures += failures;
  }

  #change(openMs: number, nowMs: number): void {
    this.#openMs = openMs;
    this.#changedAtMs = nowMs;
    this.#probe = undefined;
    this.#inARow = 0;
    this.#window = { sinceMs: nowMs, calls: 0, failures: 0 };
  }
}
