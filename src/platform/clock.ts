/** The time as a dependency, so that tests can set it. */
export interface Clock {
  /** Milliseconds since the epoch. Jumps, either way, when the machine's clock is set. */
  now(): number;
  /** Milliseconds from whatever start, for how long ago something was: it never jumps. Left out, it is `now`. */
  monotonic?(): number;
}

export const systemClock: Clock = { now: () => Date.now(), monotonic: () => performance.now() };

export const monotonicMs = (clock: Clock): number => clock.monotonic?.() ?? clock.now();
