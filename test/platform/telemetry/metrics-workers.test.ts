import { describe, expect, it } from 'vitest';
import { Metrics } from '../../../src/core/metrics.ts';
import type { MetricsJson } from '../../../src/platform/telemetry/metrics.ts';
import { WorkerMetrics } from '../../../src/platform/telemetry/metrics-workers.ts';

/** A worker with so many busy slots, searches and servers. */
function worker({ busy = 0, searches = 0, servers = 0, degraded = false } = {}): Metrics {
  const metrics = new Metrics();
  metrics.watchDegraded('database', () => degraded);
  metrics.watch('switchboard_search_slots', () => ({ busy, waiting: 0 }));
  const none = { needs_sign_in: 0, not_mcp: 0, unreachable: 0, unvisited: 0, inactive: 0 };
  metrics.watch('switchboard_servers', () => ({ ok: servers, ...none }));
  metrics.watchProcess();
  for (let search = 0; search < searches; search++)
    metrics.searched({ cacheHit: false, latencyMs: 3, empty: true });
  return metrics;
}

const valueOf = (text: string, series: string) =>
  Number(
    text
      .split('\n')
      .find(line => line.startsWith(`${series} `))
      ?.slice(series.length + 1),
  );
const BUSY = 'switchboard_search_slots{state="busy"}';
const SEARCHES = 'switchboard_search_duration_seconds_count{cache="miss"}';
const FAST = 'switchboard_search_duration_seconds_bucket{le="0.005",cache="miss"}';
const workers = (text: string) =>
  ['answered', 'silent', 'down'].map(state => valueOf(text, `switchboard_workers{state="${state}"}`));

describe('the metrics of several workers', () => {
  it('are sums, but for what all have alike and for trouble that one may have', async () => {
    const all = new WorkerMetrics();
    const one = await worker({ busy: 1, searches: 2, servers: 7 }).json();
    const two = await worker({ busy: 2, searches: 3, servers: 7, degraded: true }).json();
    const text = await all.text(
      new Map([
        [2, Promise.resolve(two)],
        [1, Promise.resolve(one)],
      ]),
      2,
    );
    expect([BUSY, SEARCHES, FAST].map(series => valueOf(text, series))).toEqual([3, 5, 5]);
    expect(valueOf(text, 'switchboard_servers{state="ok"}')).toBe(7);
    expect(valueOf(text, 'switchboard_degraded{part="database"}')).toBe(1);
    expect(valueOf(text, 'switchboard_search_empty_total')).toBe(5);
    expect(workers(text)).toEqual([2, 0, 0]);
    const started = one.find(({ name }) => name === 'process_start_time_seconds')?.values[0]?.value;
    expect(valueOf(text, 'process_start_time_seconds')).toBe(started);
    expect(text).toContain('nodejs_eventloop_lag_p99_seconds');
    // One type and help for each name, as the format wants.
    const types = [...text.matchAll(/^# TYPE (\w+)/gm)].map(([, name]) => name);
    expect(new Set(types).size).toBe(types.length);
  });

  it.each([
    ['event loop', 'nodejs_eventloop_lag_p99_seconds', 200],
    ['number of open files', 'process_open_fds', 200],
    ['limit of open files', 'process_max_fds', 100],
  ])('show the worst %s', async (_what, name, worst) => {
    const gauge = (value: number) => [
      { name, help: 'h', type: 'gauge', aggregator: 'sum', values: [{ value, labels: {} }] },
    ];
    const text = await new WorkerMetrics().text(
      new Map([
        [1, Promise.resolve(gauge(100) as never)],
        [2, Promise.resolve(gauge(200) as never)],
      ]),
      2,
    );
    expect(valueOf(text, name)).toBe(worst);
  });

  it('never fall: counts of one that is silent, down or replaced stay, its gauges do not', async () => {
    const all = new WorkerMetrics();
    const [one, two] = [worker({ busy: 1, searches: 2 }), worker({ busy: 5, searches: 3 })];
    await all.text(
      new Map([
        [1, one.json()],
        [2, two.json()],
      ]),
      2,
    );
    const silent = await all.text(
      new Map<number, Promise<MetricsJson | undefined>>([
        [1, one.json()],
        [2, Promise.resolve(undefined)],
      ]),
      2,
    );
    expect([BUSY, SEARCHES].map(series => valueOf(silent, series))).toEqual([1, 5]);
    expect(workers(silent)).toEqual([1, 1, 0]);
    all.ended(2);
    const down = await all.text(new Map([[1, one.json()]]), 2);
    expect([BUSY, SEARCHES].map(series => valueOf(down, series))).toEqual([1, 5]);
    expect(workers(down)).toEqual([1, 0, 1]);
    all.restarted();
    const next = worker({ busy: 4, searches: 1 });
    const replaced = await all.text(
      new Map([
        [1, one.json()],
        [2, next.json()],
      ]),
      2,
    );
    expect([BUSY, SEARCHES, FAST].map(series => valueOf(replaced, series))).toEqual([5, 6, 6]);
    expect(valueOf(replaced, 'switchboard_worker_restarts_total')).toBe(1);
    all.ended(2);
    all.ended(1);
    expect(valueOf(await all.text(new Map(), 2), SEARCHES)).toBe(6);
  });

  it('count a worker once that ends while a scrape waits for another', async () => {
    const all = new WorkerMetrics();
    const [one, two] = [worker({ searches: 2 }), worker({ searches: 3 })];
    await all.text(new Map([[1, one.json()]]), 2);
    one.searched({ cacheHit: false, latencyMs: 3, empty: true });
    const slow = Promise.withResolvers<MetricsJson>();
    const answer = one.json();
    const scrape = all.text(
      new Map([
        [1, answer],
        [2, slow.promise],
      ]),
      2,
    );
    await answer;
    await new Promise(resolve => setImmediate(resolve));
    all.ended(1);
    slow.resolve(await two.json());
    expect(valueOf(await scrape, SEARCHES)).toBe(6);
    expect(valueOf(await all.text(new Map([[2, two.json()]]), 2), SEARCHES)).toBe(6);
  });
});
