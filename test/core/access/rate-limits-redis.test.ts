import { afterAll, beforeAll, beforeEach, describe, expect, inject, it, onTestFinished } from 'vitest';
import { RateLimited, RateLimits, type LimitStore } from '../../../src/core/access/rate-limits.ts';
import { createLog } from '../../../src/platform/telemetry/log.ts';
import { Redis, type RedisTimes } from '../../../src/platform/outbound/redis.ts';
import { LeaseBook } from '../../../src/platform/workers/leases.ts';
import { eventually } from '../../support/processes.ts';
import { REDIS_PASSWORD, startRedis, type RedisServer } from '../../support/redis.ts';

const LIMITS = { search: { calls: 5, seconds: 600 } } as never;

describe.skipIf(!inject('hasRedis'))('rate limits on Redis', () => {
  let server: RedisServer;
  let key: string;
  let count = 0;
  beforeAll(async () => {
    server = await startRedis();
  });
  beforeEach(() => {
    key = `key-${++count}`;
  });
  afterAll(() => server[Symbol.asyncDispose]());

  /** The limits of one process, and the lines of its log. */
  async function process(url = server.url, times: Partial<RedisTimes> = {}, lease?: LimitStore['lease']) {
    const lines: string[] = [];
    const log = createLog('trace', { write: (line: string) => void lines.push(line) });
    const redis = await Redis.open({ url, log, times: { commandMs: 60_000, retryMs: 20, ...times } });
    const limits = new RateLimits(LIMITS, { redis, lease });
    return { limits, lines, [Symbol.asyncDispose]: () => redis.close() };
  }

  const remaining = async (limits: RateLimits) => (await limits.spend(key, 'search'))?.remaining;

  it('two processes spend one budget, and each says what is left of it, as in memory', async () => {
    await using a = await process();
    await using b = await process();
    const alone = new RateLimits(LIMITS);
    for (const limits of [a.limits, b.limits, a.limits, b.limits, a.limits])
      expect(await limits.spend(key, 'search')).toEqual({
        ...(await alone.spend(key, 'search')),
        resetSec: expect.toSatisfy((sec: number) => sec > 590 && sec <= 600),
      });
    for (const { limits } of [a, b]) {
      const refused = await limits.spend(key, 'search').catch((error: unknown) => error);
      expect(refused).toBeInstanceOf(RateLimited);
      expect((refused as RateLimited).state).toMatchObject({ calls: 5, windowSec: 600, remaining: 0 });
    }
    expect([a.limits.degraded, a.lines]).toEqual([undefined, []]);
  });

  it('two processes share the bounds per address, and asking spends nothing', async () => {
    await using a = await process();
    await using b = await process();
    for (let event = 0; event < 60; event++) {
      expect(await b.limits.isSpent('failedAuth', key)).toBe(false);
      await a.limits.take('failedAuth', key);
    }
    expect(await b.limits.isSpent('failedAuth', key)).toBe(true);
    await expect(b.limits.take('failedAuth', key)).rejects.toMatchObject({ code: 'rate_limited' });
  });

  it('counts in memory while Redis is gone, says so once, and shares again when it is back', async () => {
    await using a = await process();
    await using b = await process();
    expect(await remaining(a.limits)).toBe(4);
    await server.kill();
    // Of the calls that meet the lost connection none fails either.
    expect(await Promise.all([remaining(a.limits), remaining(a.limits)])).toEqual([4, 3]);
    await eventually('the idle one has noticed too', () => b.limits.degraded !== undefined);
    expect(a.limits.degraded).toBe('Redis unavailable: each program counts rate limits separately');
    await expect(a.limits.isSpent('failedAuth', key)).resolves.toBe(false);

    await server.start();
    await eventually(
      'both use Redis',
      () => a.limits.degraded === undefined && b.limits.degraded === undefined,
    );
    key += '-after';
    expect([await remaining(a.limits), await remaining(b.limits)]).toEqual([4, 3]);
    expect(a.lines.map(line => JSON.parse(line).msg)).toEqual(['Redis unavailable', 'Redis recovered']);
  });

  it('of two workers, spend one budget also while Redis is gone', async () => {
    const book = new LeaseBook(2);
    const lease: LimitStore['lease'] = request => Promise.resolve(book.lease(request));
    await using a = await process(server.url, {}, lease);
    await using b = await process(server.url, {}, lease);
    expect([await remaining(a.limits), await remaining(b.limits)]).toEqual([4, 3]);
    await server.kill();
    for (const left of [4, 3, 2, 1, 0]) expect(await remaining((left % 2 ? a : b).limits)).toBe(left);
    await expect(remaining(a.limits)).rejects.toBeInstanceOf(RateLimited);
    await server.start();
    await eventually(
      'Redis is used',
      () => a.limits.degraded === undefined && b.limits.degraded === undefined,
    );
    await book.close();
  });

  it('waits for a Redis that hangs once, and not again until it answers', async () => {
    await using a = await process(server.url, { commandMs: 1_000, connectMs: 50 });
    await eventually('Redis is used', () => a.limits.degraded === undefined);
    expect(await remaining(a.limits)).toBe(4);
    await server.pause();
    onTestFinished(() => server.resume());
    expect(await remaining(a.limits)).toBe(4);
    expect(a.limits.degraded).toMatch(/^Redis unavailable: /);
    // Nothing is sent any more: the answer needs no turn of the event loop but those of promises.
    let turned = false;
    const turn = new Promise(resolve => setImmediate(resolve)).then(() => (turned = true));
    expect(await remaining(a.limits)).toBe(3);
    expect(turned).toBe(false);
    await turn;
    server.resume();
    await eventually('Redis is used', () => a.limits.degraded === undefined);
  });

  it('starts without Redis, and with a wrong password, which no log holds', async () => {
    await using wrong = await process(server.url.replace(REDIS_PASSWORD, 'not-the-password'), {
      connectMs: 30_000,
      commandMs: 30_000,
    });
    expect(await remaining(wrong.limits)).toBe(4);
    expect(wrong.limits.degraded).toMatch(/^Redis rejected a command \(check REDIS_URL\): /);
    expect(wrong.lines.join('')).toContain('WRONGPASS');
    expect(wrong.lines.join('')).not.toContain('not-the-password');

    await server.kill();
    await using early = await process();
    expect(await remaining(early.limits)).toBe(4);
    expect(early.lines.join('')).toContain('ECONNREFUSED');
    expect(early.lines.join('')).not.toContain(REDIS_PASSWORD);
    await server.start();
    await eventually('Redis is used', () => early.limits.degraded === undefined);
  });
});
