import { RateLimiterMemory, RateLimiterRes } from 'rate-limiter-flexible';
import type { Config, RateClass } from '../../config.ts';
import { SwitchboardError } from '../../errors.ts';

/** How a limit stands after a call, for the headers of draft-ietf-httpapi-ratelimit-headers. */
export interface RateLimitState {
  readonly class: RateClass;
  readonly calls: number;
  readonly windowSec: number;
  readonly remaining: number;
  /** Seconds until the window starts again, rounded up. */
  readonly resetSec: number;
}

/** Thrown as `rate_limited`; carries the state for the headers. */
export class RateLimited extends SwitchboardError {
  readonly state: RateLimitState;

  constructor(state: RateLimitState) {
    super(
      'rate_limited',
      `This key has used its ${state.calls} ${state.class} calls in ${state.windowSec} s. Try again in ${state.resetSec} s.`,
      { retryAfterSec: state.resetSec },
    );
    this.state = state;
  }
}

/**
 * One fixed window per key and class of endpoint, in memory. Both faces spend the same budget: they share this object.
 */
export class RateLimits {
  readonly #limiters: ReadonlyMap<RateClass, RateLimiterMemory>;

  constructor(limits: Config['access']['rateLimits']) {
    const entries =
      limits === 'off' ? [] : (Object.entries(limits) as [RateClass, { calls: number; seconds: number }][]);
    this.#limiters = new Map(
      entries.map(([name, { calls, seconds }]) => [
        name,
        new RateLimiterMemory({ points: calls, duration: seconds, keyPrefix: name }),
      ]),
    );
  }

  /** Spends one call. Undefined when limiting is off. @throws RateLimited when the budget is used up. */
  async spend(keyId: string, rateClass: RateClass): Promise<RateLimitState | undefined> {
    const limiter = this.#limiters.get(rateClass);
    if (!limiter) return undefined;
    try {
      return stateOf(limiter, rateClass, await limiter.consume(keyId));
    } catch (thrown) {
      if (thrown instanceof RateLimiterRes) throw new RateLimited(stateOf(limiter, rateClass, thrown));
      throw thrown;
    }
  }
}

const stateOf = (
  limiter: RateLimiterMemory,
  rateClass: RateClass,
  answer: RateLimiterRes,
): RateLimitState => ({
  class: rateClass,
  calls: limiter.points,
  windowSec: limiter.duration,
  remaining: Math.max(0, answer.remainingPoints),
  resetSec: Math.max(1, Math.ceil(answer.msBeforeNext / 1000)),
});
