import { percentile } from '../processes.ts';
import { KINDS, type Operation } from './load.ts';
import { NAMES } from './replicas.ts';
import { livesOf, tookMs, unexplained, type Seen } from './report.ts';
import type { Sample } from './samples.ts';
import { drawChart, type Panel, type Point, type Series } from './svg.ts';

const MINUTE_MS = 60_000;
/** So many that a bar is a pixel or two wide. */
const BUCKETS = 400;
/** Percentiles want more operations than counts do. */
const WIDE_BUCKETS = 120;
const MIN_BUCKET_MS = 1_000;

/** Operations that were due at the same time, by when that was, in minutes. */
type Bucket = readonly [minute: number, operations: readonly Operation[]];

/** Requests and failures, latency, memory and descriptors over the time of the run, with its faults. */
export function plot(title: string, minutes: number, seen: Seen): string {
  const bucketMs = Math.max(MIN_BUCKET_MS, (minutes * MINUTE_MS) / BUCKETS);
  const wideMs = Math.max(MIN_BUCKET_MS, (minutes * MINUTE_MS) / WIDE_BUCKETS);
  return drawChart({
    title,
    minutes,
    barMinutes: bucketMs / MINUTE_MS,
    spans: seen.faults.map(({ name, startMs, endMs }) => ({
      name,
      from: startMs / MINUTE_MS,
      to: endMs / MINUTE_MS,
    })),
    panels: [
      rates(seen, bucketMs),
      latency(seen, wideMs),
      perReplica('Memory (resident set, MiB)', seen.samples, bucketMs, ({ rssMib }) => rssMib),
      perReplica('Open descriptors', seen.samples, bucketMs, ({ descriptors }) => descriptors),
    ],
  });
}

function bucketsOf(operations: readonly Operation[], bucketMs: number): Bucket[] {
  const buckets = Map.groupBy(operations, ({ dueMs }) => Math.floor(dueMs / bucketMs));
  return [...buckets]
    .toSorted(([a], [b]) => a - b)
    .map(([at, ofBucket]) => [(at * bucketMs) / MINUTE_MS, ofBucket]);
}

function rates(seen: Seen, bucketMs: number): Panel {
  const wrong = new Set(unexplained(seen));
  const rate = (matches: (one: Operation) => boolean): Point[] =>
    bucketsOf(seen.operations, bucketMs).map(([x, ofBucket]) => ({
      x,
      y: (ofBucket.filter(matches).length * 1_000) / bucketMs,
    }));
  return {
    title: 'Operations a second',
    series: [
      { name: 'answered', colour: 's0', lines: [rate(({ failure }) => failure === undefined)] },
      {
        name: 'failed, explained by a fault',
        colour: 's3',
        bars: rate(one => one.failure !== undefined && !wrong.has(one)),
      },
      { name: 'failed, could have succeeded', colour: 's4', bars: rate(one => wrong.has(one)) },
    ],
  };
}

const COLOURS = { search: 's0', call: 's3', refresh: 's1' } as const;

function latency({ operations }: Seen, bucketMs: number): Panel {
  const line = (kind: Operation['kind'], share: number): Point[] =>
    bucketsOf(
      operations.filter(one => one.kind === kind),
      bucketMs,
    ).map(([x, ofBucket]) => ({
      x: x + bucketMs / 2 / MINUTE_MS,
      y: percentile(ofBucket.map(tookMs), share),
    }));
  return {
    title: 'Latency from when it was due',
    logFrom: 1,
    label: ms => (ms < 1_000 ? `${ms} ms` : `${ms / 1_000} s`),
    series: KINDS.flatMap((kind): Series[] => [
      { name: `${kind} p50`, colour: COLOURS[kind], lines: [line(kind, 0.5)] },
      { name: 'p99', colour: COLOURS[kind], lines: [line(kind, 0.99)], isDashed: true },
    ]),
  };
}

const REPLICA_COLOURS = { a: 's0', b: 's3', c: 's1' } as const;

/** A line for each life: between two there is none. */
function perReplica(
  title: string,
  samples: readonly Sample[],
  bucketMs: number,
  valueOf: (sample: Sample) => number,
): Panel {
  const lines = (name: Sample['name']) =>
    livesOf(name, samples).map(ofLife =>
      // The last of each bucket: a point a pixel is enough.
      [...new Map(ofLife.map(sample => [Math.floor(sample.atMs / bucketMs), sample])).values()].map(
        sample => ({ x: sample.atMs / MINUTE_MS, y: valueOf(sample) }),
      ),
    );
  return {
    title,
    series: NAMES.map(name => ({
      name: `replica ${name}`,
      colour: REPLICA_COLOURS[name],
      lines: lines(name),
    })),
  };
}
