import { AggregatorRegistry, Histogram, Registry } from 'prom-client';
import { expect, it } from 'vitest';
import { MetricsRegistry } from '../../../src/platform/telemetry/metrics.ts';

const SETTINGS = {
  name: 'seconds',
  help: 'How long it took.',
  labelNames: ['route', 'status'],
  buckets: [0.1, 1],
};
const OBSERVED = [
  ['/a', '2xx', 0.05],
  ['/a', '2xx', 0.1],
  ['/a', '2xx', 0.11],
  ['/a', '5xx', 7],
  ['"\\\n', '2xx', 0],
] as const;

it("a histogram shows what prom-client's own shows", async () => {
  const { name, help, labelNames, buckets } = SETTINGS;
  const ours = new MetricsRegistry();
  const histogram = ours.histogram(name, help, buckets, labelNames);
  const unlabelled = ours.histogram('plain', help, buckets);
  const theirs = new Registry();
  const reference = new Histogram({ ...SETTINGS, registers: [theirs] });
  const plain = new Histogram({ name: 'plain', help, buckets, registers: [theirs] });
  expect(await ours.text()).toBe(await theirs.metrics());

  for (const [route, status, value] of OBSERVED) {
    histogram.series(route, status).observe(value);
    reference.observe({ route, status }, value);
  }
  unlabelled.series().observe(3);
  plain.observe(3);
  expect(await ours.text()).toBe(await theirs.metrics());
  // Added up over two workers.
  const both = [await ours.json(), await ours.json()];
  const twice = [await theirs.getMetricsAsJSON(), await theirs.getMetricsAsJSON()];
  expect(await AggregatorRegistry.aggregate(both).metrics()).toBe(
    await AggregatorRegistry.aggregate(twice).metrics(),
  );
});
