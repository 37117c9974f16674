import * as fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import { RateLimited, RateLimits } from '../../../src/core/access/rate-limits.ts';
import { LeaseBook, LeasedLimit, type LeaseRequest } from '../../../src/platform/workers/leases.ts';

const WINDOW_MS = 60_000;

const clock = { ms: 0, now: () => clock.ms };
const books: LeaseBook[] = [];
afterEach(() => Promise.all(books.splice(0).map(book => book.close())));

/** The limits of so many processes on one book, which answers after a turn of the event loop, and what they asked. */
function processes(count: number, points: number) {
  const book = new LeaseBook(count, clock);
  books.push(book);
  const asked: LeaseRequest[] = [];
  const ask = async (request: LeaseRequest) => {
    asked.push(request);
    await new Promise(resolve => setImmediate(resolve));
    return book.lease(request);
  };
  const limits = Array.from(
    { length: count },
    () => new LeasedLimit({ name: 'calls', points, durationMs: WINDOW_MS }, ask, clock),
  );
  return { limits, asked };
}

async function spendAll(limit: LeasedLimit, atOnce = 50): Promise<number> {
  let within = 0;
  for (;;) {
    const states = await Promise.all(Array.from({ length: atOnce }, () => limit.spend('key')));
    const passed = states.filter(({ isWithin }) => isWithin).length;
    if (passed === 0) return within;
    within += passed;
  }
}

describe('leased limits', () => {
  it('never allow more than the window in all processes, however they are used', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 2, max: 8 }),
        fc.integer({ min: 1, max: 3_000 }),
        fc.array(fc.record({ by: fc.nat(), count: fc.integer({ min: 1, max: 40 }) }), { maxLength: 100 }),
        async (count, points, events) => {
          clock.ms = 0;
          const { limits } = processes(count, points);
          const spent = events.map(async ({ by, count: size }) => {
            const { isWithin } = (await limits[by % count]?.spend('key', size)) ?? { isWithin: false };
            return isWithin ? size : 0;
          });
          const total = (await Promise.all(spent)).reduce((sum, one) => sum + one, 0);
          expect(total).toBeLessThanOrEqual(points);
          const rest = await Promise.all(limits.map(limit => spendAll(limit)));
          expect(total + rest.reduce((sum, one) => sum + one, 0)).toBeLessThanOrEqual(points);
        },
      ),
      { seed: 17, numRuns: 60 },
    );
  });

  it('allow all of it to a caller with one connection, but for what idle processes hold, and ask rarely', async () => {
    clock.ms = 0;
    const { limits, asked } = processes(4, 100_000);
    const [busy, ...idle] = limits;
    for (const limit of idle) expect((await limit.spend('key')).isWithin).toBe(true);
    const within = (await spendAll(busy ?? limits[0] ?? missing(), 500)) + idle.length;
    expect(within).toBeLessThanOrEqual(100_000);
    expect(within).toBeGreaterThan(100_000 * (1 - 1 / 16));
    expect(asked.length).toBeLessThan(1_000);
  });

  it('refuse without asking once the window is spent, until it ends, and say how long', async () => {
    clock.ms = 1_000;
    const { limits, asked } = processes(2, 3);
    const [one = missing(), other = missing()] = limits;
    expect([await spendAll(one), await spendAll(other)]).toEqual([3, 0]);
    const before = asked.length;
    clock.ms += 10_000;
    expect(await one.spend('key')).toEqual({ isWithin: false, remaining: 0, resetMs: WINDOW_MS - 10_000 });
    expect(asked.length).toBe(before);
    expect((await one.spend('another key')).isWithin).toBe(true);
    clock.ms += WINDOW_MS;
    expect((await one.spend('key')).isWithin).toBe(true);
  });

  it('refuse nobody while the book does not answer', async () => {
    const alone = new LeasedLimit({ name: 'calls', points: 1, durationMs: WINDOW_MS }, () =>
      Promise.resolve(undefined),
    );
    for (let call = 0; call < 5; call++) expect((await alone.spend('key')).isWithin).toBe(true);
  });
});

describe('leased limits with a hanging book or a clock that jumps', () => {
  it('let all calls of a key wait together, once a second', async () => {
    clock.ms = 0;
    let asked = 0;
    const hanging = () => {
      asked++;
      return new Promise<undefined>(resolve => {
        setImmediate(() => {
          clock.ms += 1_000;
          resolve(undefined);
        });
      });
    };
    const limit = new LeasedLimit({ name: 'calls', points: 100, durationMs: WINDOW_MS }, hanging, clock);
    await Promise.all(Array.from({ length: 60 }, () => limit.spend('key')));
    expect(asked).toBe(1);
    clock.ms += 1_000;
    await limit.spend('key');
    expect(asked).toBe(2);
  });

  it('end a window in time although the clock was set back', () => {
    const now = { wall: 10_000_000, monotonic: 0 };
    const book = new LeaseBook(2, { now: () => now.wall, monotonic: () => now.monotonic });
    books.push(book);
    const lease = () => book.lease({ window: 'calls:key', points: 1, durationMs: WINDOW_MS, needed: 1 });
    expect([lease().granted, lease().granted]).toEqual([1, 0]);
    now.wall -= 3_600_000;
    expect(lease().resetMs).toBe(WINDOW_MS);
    now.monotonic += WINDOW_MS;
    expect(lease().granted).toBe(1);
  });
});

describe('rate limits of workers', () => {
  it('have headers, refusals and spent buckets as those of one process', async () => {
    const book = new LeaseBook(2);
    books.push(book);
    const lease = (request: LeaseRequest) => Promise.resolve(book.lease(request));
    const limits = { search: { calls: 3, seconds: 600 } } as never;
    const [one, other] = [new RateLimits(limits, { lease }), new RateLimits(limits, { lease })];
    const remaining = async (at: RateLimits) => (await at.spend('key', 'search'))?.remaining;
    expect([await remaining(one), await remaining(other), await remaining(one)]).toEqual([2, 1, 0]);
    const refused = await other.spend('key', 'search').catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(RateLimited);
    expect((refused as RateLimited).state).toMatchObject({
      calls: 3,
      windowSec: 600,
      remaining: 0,
      resetSec: 600,
    });
    expect(() => one.requireSpendable('search', 4)).toThrow('Send at most 3');
    for (let event = 0; event < 60; event++) {
      expect(await one.isSpent('failedAuth', '192.0.2.1')).toBe(false);
      await one.take('failedAuth', '192.0.2.1');
    }
    expect(await one.isSpent('failedAuth', '192.0.2.1')).toBe(true);
    await expect(other.take('failedAuth', '192.0.2.1')).rejects.toMatchObject({ code: 'rate_limited' });
  });
});

const missing = (): never => {
  throw new Error('missing');
};
