import { describe, expect, it } from 'vitest';
import { networkOf, RateLimits } from '../../../src/core/access/rate-limits.ts';

describe('networkOf', () => {
  it.each([
    ['192.0.2.1', '192.0.2.1'],
    ['::ffff:192.0.2.1', '::ffff:192.0.2.1'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
    ['2001:db8:1:2::', '2001:db8:1:2::/64'],
    ['2001:db8::1', '2001:db8:0:0::/64'],
    ['2001:db8::3:4:5:6:7', '2001:db8:0:3::/64'],
    ['::1', '0:0:0:0::/64'],
    ['a session`s hash', 'a session`s hash'],
  ])('of %s is %s', (address, network) => {
    expect(networkOf(address)).toBe(network);
  });
});

describe('a bucket', () => {
  it('is spent when the next event would be refused, and asking spends nothing', async () => {
    const limits = new RateLimits({} as never);
    for (let event = 0; event < 60; event++) {
      expect(await limits.isSpent('failedAuth', '192.0.2.1')).toBe(false);
      await limits.take('failedAuth', '192.0.2.1');
    }
    expect(await limits.isSpent('failedAuth', '192.0.2.1')).toBe(true);
    expect(await limits.isSpent('failedAuth', '192.0.2.2')).toBe(false);
    await expect(limits.take('failedAuth', '192.0.2.1')).rejects.toMatchObject({
      code: 'rate_limited',
      retryAfterSec: expect.any(Number),
    });
  });

  it('is never spent where limiting is off', async () => {
    const limits = new RateLimits('off');
    for (let event = 0; event < 100; event++) await limits.take('failedAuth', 'x');
    expect(await limits.isSpent('failedAuth', 'x')).toBe(false);
  });
});
