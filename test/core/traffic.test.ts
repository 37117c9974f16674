import { describe, expect, it } from 'vitest';
import { Metrics } from '../../src/core/metrics.ts';
import { trafficOf } from '../../src/core/traffic.ts';

describe('the traffic', () => {
  it('is read from the metrics: calls by outcome without listings, and durations by interpolation', async () => {
    const metrics = new Metrics();
    metrics.watchProcess();
    for (let n = 0; n < 90; n++) metrics.calls.ended('call', 'ok', 20);
    for (let n = 0; n < 5; n++) metrics.calls.ended('pass', 'upstream_timeout', 40_000);
    for (let n = 0; n < 3; n++) metrics.calls.ended('call', 'upstream_error', 20);
    for (let n = 0; n < 2; n++) metrics.calls.ended('call', 'aborted', 20);
    for (let n = 0; n < 50; n++) metrics.calls.ended('list', 'ok', 1);
    metrics.searched({ cacheHit: false, latencyMs: 5, empty: true });
    metrics.searched({ cacheHit: true, latencyMs: 0.5, empty: false });
    const { since, calls, errors, searches } = trafficOf(await metrics.text());
    expect(Date.parse(since)).toBeLessThanOrEqual(Date.now());
    expect(Date.parse(since)).toBeGreaterThan(Date.now() - 86_400_000);
    expect(calls).toMatchObject({ count: 100, failed: 8, aborted: 2 });
    expect(errors).toEqual([
      { code: 'upstream_timeout', count: 5 },
      { code: 'upstream_error', count: 3 },
    ]);
    // 95 calls took 10 to 25 ms.
    expect(calls.p50_ms).toBeCloseTo(10 + (50 / 95) * 15, 0);
    expect(calls.p95_ms).toBe(25);
    expect(calls.buckets.at(-1)).toEqual({ le_ms: null, count: 100 });
    expect(searches).toMatchObject({ count: 2, empty: 1 });
  });

  it('has the requests that were refused, by code and limit', async () => {
    const metrics = new Metrics();
    metrics.watchProcess();
    metrics.events.refused('insufficient_scope');
    for (let n = 0; n < 4; n++) metrics.events.refused('unauthorized');
    for (let n = 0; n < 3; n++) metrics.events.rateLimited('search');
    for (let n = 0; n < 2; n++) metrics.events.rateLimited('calls-per-month');
    expect(trafficOf(await metrics.text()).refusals).toEqual([
      { code: 'unauthorized', limit: null, count: 4 },
      { code: 'rate_limited', limit: 'search', count: 3 },
      { code: 'quota_exceeded', limit: 'calls', count: 2 },
      { code: 'insufficient_scope', limit: null, count: 1 },
    ]);
  });

  it('without a call has no durations', async () => {
    const metrics = new Metrics();
    metrics.watchProcess();
    expect(trafficOf(await metrics.text())).toMatchObject({
      calls: { count: 0, failed: 0, aborted: 0, p50_ms: null, p95_ms: null },
      errors: [],
    });
  });
});
