/** Gives the time, as a dependency that tests can set. */
export interface Clock {
  /** Milliseconds since the epoch. Jumps, either way, when the machine's clock is set. */
  now(): number;
  /** Milliseconds from any start, to measure how long something took: it never jumps. Where it is absent, `now` serves. */
  monotonic?(): number;
}

export const systemClock: Clock = { now: () => Date.now(), monotonic: () => performance.now() };

export const monotonicMs = (clock: Clock): number => clock.monotonic?.() ?? clock.now();
