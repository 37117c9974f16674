import { isIPv6 } from 'node:net';
import {
  RateLimiterCompatibleAbstract,
  RateLimiterMemory,
  RateLimiterRedis,
  RateLimiterRes,
} from 'rate-limiter-flexible';
import type { Config, RateClass } from '../../config/index.ts';
import { SwitchboardError } from '../../errors.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { Metrics } from '../metrics.ts';
import type { Redis } from '../../platform/outbound/redis.ts';
import {
  LeasedLimit,
  type Lease,
  type LeasedState,
  type LeaseRequest,
} from '../../platform/workers/leases.ts';

/** The state of a limit after a request, for the headers of draft-ietf-httpapi-ratelimit-headers. */
export interface RateLimitState {
  readonly class: RateClass;
  readonly calls: number;
  readonly windowSec: number;
  readonly remaining: number;
  /** Seconds until the window resets, rounded up. */
  readonly resetSec: number;
}

/** Thrown as `rate_limited`; carries the state for the headers. */
export class RateLimited extends SwitchboardError {
  readonly state: RateLimitState;

  constructor(state: RateLimitState) {
    super(
      'rate_limited',
      `Rate limit exceeded: this key may make ${state.calls} ${state.class} requests per ${state.windowSec} s. Try again in ${state.resetSec} s.`,
      { retryAfterSec: state.resetSec },
    );
    this.state = state;
  }
}

/** Fixed limits in addition to the keys' own. */
const BUCKETS = {
  /** Ten per second, in bursts of sixty. */
  poll: {
    points: 60,
    duration: 6,
    text: 'This session is polled too often. Poll every 1 to 2 seconds.',
  },
  failedAuth: {
    points: 60,
    duration: 60,
    text: 'Too many requests without a valid API key came from this address.',
  },
  callback: { points: 120, duration: 60, text: 'Too many sign-in pages were opened from this address.' },
  /** All pages for end users: enough for 100 sign-ins of mode `page`, of six requests each, from one network. */
  page: { points: 600, duration: 60, text: 'Too many pages were opened from this address.' },
  registration: {
    points: 60,
    duration: 3_600,
    text: 'Too many clients were registered from this address. Wait an hour.',
  },
  /** Unclassified requests: wrong paths and methods, and at /mcp everything except tool calls. */
  unclassed: {
    points: 600,
    duration: 60,
    text: 'This key has made too many requests that are neither calls nor searches.',
  },
} as const;
export type Bucket = keyof typeof BUCKETS;

type Limiter = RateLimiterMemory | RateLimiterRedis | LeasedLimiter;

/** Where limits are counted. Neither: in the memory of this process. */
export interface LimitStore {
  readonly redis?: Redis | undefined;
  /** Leases points of windows that the workers of this program share. With Redis: while it is unavailable. */
  readonly lease?: ((request: LeaseRequest) => Promise<Lease | undefined>) | undefined;
}

/** Prefixes every name in Redis, which other programs may use too. */
const REDIS_PREFIX = 'switchboard:limit:';

/**
 * Limits requests to a fixed window per key and endpoint class. All faces share one budget, as do all workers of a program and
 * all processes with the same Redis. While Redis is unavailable, each program counts from zero in its own memory, and no call
 * fails.
 */
export class RateLimits {
  readonly #redis: Redis | undefined;
  readonly #limiters: ReadonlyMap<RateClass, Limiter>;
  readonly #buckets: ReadonlyMap<Bucket, Limiter> | undefined;
  readonly #metrics: Metrics | undefined;

  constructor(limits: Config['access']['rateLimits'], store: LimitStore = {}, metrics?: Metrics) {
    this.#redis = store.redis;
    this.#metrics = metrics;
    const entries =
      limits === 'off' ? [] : (Object.entries(limits) as [RateClass, { calls: number; seconds: number }][]);
    this.#limiters = new Map(
      entries.map(([name, { calls, seconds }]) => [name, createLimiter(name, calls, seconds, store)]),
    );
    if (limits === 'off') return;
    const buckets = Object.entries(BUCKETS) as [Bucket, (typeof BUCKETS)[Bucket]][];
    this.#buckets = new Map(
      buckets.map(([name, { points, duration }]) => [name, createLimiter(name, points, duration, store)]),
    );
  }

  /** Opens rate limits, with a separate Redis connection if an address is given. Redis need not be available yet. */
  static async open(
    limits: Config['access']['rateLimits'],
    redisUrl: string | undefined,
    { log, metrics, lease }: { log: Log; metrics: Metrics; lease: LimitStore['lease'] },
  ): Promise<RateLimits> {
    if (redisUrl === undefined || limits === 'off') return new RateLimits(limits, { lease }, metrics);
    // Loaded only if Redis is configured, because its package has hundreds of files.
    const { Redis } = await import('../../platform/outbound/redis.ts');
    const redis = await Redis.open({ url: redisUrl, log });
    const rateLimits = new RateLimits(limits, { redis, lease }, metrics);
    metrics.watchDegraded('rate_limits', () => rateLimits.degraded !== undefined);
    return rateLimits;
  }

  async close(): Promise<void> {
    await this.#redis?.close();
  }

  /** Returns why limits are not shared although Redis is configured; undefined if they are. */
  get degraded(): string | undefined {
    const trouble = this.#redis?.trouble;
    return trouble === undefined ? undefined : `${trouble}: each program counts rate limits separately`;
  }

  /**
   * Counts one event that is limited per session or address, whatever the key.
   * @throws SwitchboardError `rate_limited`
   */
  async take(bucket: Bucket, key: string): Promise<void> {
    try {
      await this.#buckets?.get(bucket)?.consume(networkOf(key));
    } catch (thrown) {
      if (!(thrown instanceof RateLimiterRes)) throw thrown;
      this.#metrics?.events.rateLimited(bucket);
      const retryAfterSec = Math.max(1, Math.ceil(thrown.msBeforeNext / 1000));
      throw new SwitchboardError('rate_limited', `${BUCKETS[bucket].text} Try again in ${retryAfterSec} s.`, {
        retryAfterSec,
      });
    }
  }

  /** Refuses a request after too many of these events, without counting it. @throws SwitchboardError `rate_limited` */
  async requireUnspent(bucket: Bucket, key: string): Promise<void> {
    if (await this.isSpent(bucket, key)) await this.take(bucket, key);
  }

  /** Returns whether the next event of this kind would be refused. Counts nothing. */
  async isSpent(bucket: Bucket, key: string): Promise<boolean> {
    const state = await this.#buckets?.get(bucket)?.get(networkOf(key));
    return state !== undefined && state !== null && state.remainingPoints <= 0;
  }

  /**
   * Refuses more calls at once than a whole window allows, because waiting would not help. Counts nothing.
   * @throws SwitchboardError `invalid_request`
   */
  requireSpendable(rateClass: RateClass, calls: number): void {
    const limit = this.#limiters.get(rateClass)?.points ?? Infinity;
    if (calls <= limit) return;
    throw new SwitchboardError(
      'invalid_request',
      `This batch has ${calls} messages. Send at most ${limit}, the rate limit for ${rateClass} requests.`,
    );
  }

  /**
   * Spends one or more calls. Returns undefined if limiting is off.
   * @throws RateLimited if the budget is insufficient; the calls are charged anyway
   */
  async spend(keyId: string, rateClass: RateClass, calls = 1): Promise<RateLimitState | undefined> {
    const limiter = this.#limiters.get(rateClass);
    if (!limiter) return undefined;
    try {
      return stateOf(limiter, rateClass, await limiter.consume(keyId, calls));
    } catch (thrown) {
      if (!(thrown instanceof RateLimiterRes)) throw thrown;
      this.#metrics?.events.rateLimited(rateClass);
      throw new RateLimited(stateOf(limiter, rateClass, thrown));
    }
  }
}

/**
 * Returns the /64 network of an IPv6 address, because one customer usually owns all of it. Other addresses
 * are returned unchanged, including IPv4-mapped ones (`::ffff:192.0.2.1`).
 */
export function networkOf(address: string): string {
  if (!isIPv6(address) || address.includes('.')) return address;
  const [head = [], tail] = address.split('::').map(part => part.split(':').filter(group => group !== ''));
  const groups =
    tail === undefined ? head : [...head, ...Array<string>(8 - head.length - tail.length).fill('0'), ...tail];
  return `${groups.slice(0, 4).join(':')}::/64`;
}

const stateOf = (limiter: Limiter, rateClass: RateClass, answer: RateLimiterRes): RateLimitState => ({
  class: rateClass,
  calls: limiter.points,
  windowSec: limiter.duration,
  remaining: Math.max(0, answer.remainingPoints),
  resetSec: Math.max(1, Math.ceil(answer.msBeforeNext / 1000)),
});

function createLimiter(
  name: string,
  points: number,
  duration: number,
  { redis, lease }: LimitStore,
): Limiter {
  const own = { points, duration, keyPrefix: name };
  const inMemory = lease ? new LeasedLimiter(own, lease) : new RateLimiterMemory(own);
  if (!redis) return inMemory;
  return new RateLimiterRedis({
    points,
    duration,
    keyPrefix: REDIS_PREFIX + name,
    storeClient: commandsOf(redis),
    useRedisPackage: true,
    insuranceLimiter: inMemory,
  });
}

/** Returns an adapter with the few commands that the limiter uses. */
const commandsOf = (redis: Redis) => ({
  eval: (script: string, options: { keys: string[]; arguments: string[] }) =>
    redis.run(client => client.eval(script, options)),
  multi: () => ({
    get: (key: string) => ({
      pTTL: () => ({
        exec: () => redis.run(client => client.multi().get(key).pTTL(key).execAsPipeline()),
      }),
    }),
  }),
});

/** A leased limit with the interface of the other limiters. */
class LeasedLimiter extends RateLimiterCompatibleAbstract {
  readonly points: number;
  readonly duration: number;
  override readonly keyPrefix: string;
  override blockDuration = 0;
  override execEvenly = false;
  readonly #limit: LeasedLimit;

  constructor(
    options: { readonly points: number; readonly duration: number; readonly keyPrefix: string },
    lease: NonNullable<LimitStore['lease']>,
  ) {
    super();
    const { keyPrefix, points, duration } = options;
    this.keyPrefix = keyPrefix;
    this.points = points;
    this.duration = duration;
    this.#limit = new LeasedLimit({ name: keyPrefix, points, durationMs: duration * 1000 }, lease);
  }

  /** Rejects with the state once the window is spent, as the other limiters do. */
  override async consume(key: string | number, points = 1): Promise<RateLimiterRes> {
    const state = await this.#limit.spend(String(key), points);
    if (!state.isWithin) throw resultOf(state);
    return resultOf(state);
  }

  override get(key: string | number): Promise<RateLimiterRes | null> {
    const state = this.#limit.peek(String(key));
    return Promise.resolve(state ? resultOf(state) : null);
  }
}

const resultOf = ({ remaining, resetMs }: LeasedState) => new RateLimiterRes(remaining, resetMs);
