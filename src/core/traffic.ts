/** The name of the histogram of calls, and of that of searches, in the metrics. */
const CALLS = 'switchboard_proxy_call_duration_seconds';
const SEARCHES = 'switchboard_search_duration_seconds';
const ACCESS_REFUSALS = 'switchboard_access_refusals_total';
const LIMIT_REFUSALS = 'switchboard_rate_limit_refusals_total';

interface Bucket {
  /** Its upper bound; null: none. */
  readonly le_ms: number | null;
  /** The number of observations up to the bound. */
  readonly count: number;
}

interface Durations {
  readonly count: number;
  readonly p50_ms: number | null;
  readonly p95_ms: number | null;
  readonly buckets: readonly Bucket[];
}

/** The requests that all workers have served since the start. Only the differences of two readings say what happens now. */
export interface Traffic {
  readonly since: string;
  /** Proxied calls and pass-through requests. Failures are the server's or ours; callers abort themselves. */
  readonly calls: Durations & { readonly failed: number; readonly aborted: number };
  readonly errors: readonly { readonly code: string; readonly count: number }[];
  readonly searches: Durations & { readonly empty: number };
  /** Requests that were refused because of who sent them, by error code, and by limit if there are several. */
  readonly refusals: readonly {
    readonly code: 'unauthorized' | 'insufficient_scope' | 'rate_limited' | 'quota_exceeded';
    readonly limit: string | null;
    readonly count: number;
  }[];
}

/** A line of the Prometheus text format. */
interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** Reads the traffic from the metrics, which sum up all workers. @param text in the Prometheus format */
export function trafficOf(text: string): Traffic {
  const samples = [...samplesOf(text)];
  const calls = samples.filter(({ name, labels }) => name.startsWith(CALLS) && labels['kind'] !== 'list');
  const byOutcome = new Map<string, number>();
  for (const { name, labels, value } of calls) {
    const { outcome = '' } = labels;
    if (name === `${CALLS}_count`) byOutcome.set(outcome, (byOutcome.get(outcome) ?? 0) + value);
  }
  const { ok = 0, aborted = 0, ...failures } = Object.fromEntries(byOutcome);
  const errors = Object.entries(failures)
    .map(([code, count]) => ({ code, count }))
    .filter(({ count }) => count > 0)
    .toSorted((one, other) => other.count - one.count);
  const failed = errors.reduce((sum, { count }) => sum + count, 0);
  const total = (name: string) =>
    samples.reduce((sum, sample) => (sample.name === name ? sum + sample.value : sum), 0);
  const startedSec = total('process_start_time_seconds');
  return {
    since: new Date(startedSec * 1_000).toISOString(),
    calls: { ...durationsOf(calls), count: ok + failed + aborted, failed, aborted },
    errors,
    searches: {
      ...durationsOf(samples.filter(({ name }) => name.startsWith(SEARCHES))),
      empty: total('switchboard_search_empty_total'),
    },
    refusals: samples
      .flatMap(sample => refusalOf(sample) ?? [])
      .filter(({ count }) => count > 0)
      .toSorted((one, other) => other.count - one.count),
  };
}

function refusalOf({ name, labels, value: count }: Sample): Traffic['refusals'][number] | undefined {
  const { reason, class: limit = '' } = labels;
  if (name === ACCESS_REFUSALS && (reason === 'unauthorized' || reason === 'insufficient_scope'))
    return { code: reason, limit: null, count };
  if (name !== LIMIT_REFUSALS) return undefined;
  const use = /^(\w+)-per-month$/.exec(limit)?.[1];
  return use === undefined
    ? { code: 'rate_limited', limit, count }
    : { code: 'quota_exceeded', limit: use, count };
}

function* samplesOf(text: string): Generator<Sample> {
  for (const line of text.split('\n')) {
    const [, name = '', labels = '', value = ''] = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
    if (!READ.some(prefix => name.startsWith(prefix))) continue;
    const pairs = [...labels.matchAll(/(\w+)="([^"]*)"/g)].map(
      ([, key = '', label = '']) => [key, label] as const,
    );
    yield { name, labels: Object.fromEntries(pairs), value: Number(value) };
  }
}

const READ = [
  CALLS,
  SEARCHES,
  ACCESS_REFUSALS,
  LIMIT_REFUSALS,
  'switchboard_search_empty_total',
  'process_start_time_seconds',
];

/** Adds up the series of a histogram. */
function durationsOf(samples: readonly Sample[]): Durations {
  const counts = new Map<number, number>();
  for (const { name, labels, value } of samples) {
    if (!name.endsWith('_bucket')) continue;
    const bound = labels['le'] === '+Inf' ? Infinity : Number(labels['le']);
    counts.set(bound, (counts.get(bound) ?? 0) + value);
  }
  const buckets = [...counts]
    .toSorted(([one], [other]) => one - other)
    .map(([bound, count]) => ({
      le_ms: bound === Infinity ? null : Math.round(bound * 100_000) / 100,
      count,
    }));
  const count = buckets.at(-1)?.count ?? 0;
  return { count, p50_ms: quantile(buckets, 0.5), p95_ms: quantile(buckets, 0.95), buckets };
}

/** Returns the duration that a share of the observations did not exceed, by interpolation; null without any. */
function quantile(buckets: readonly Bucket[], share: number): number | null {
  const wanted = share * (buckets.at(-1)?.count ?? 0);
  if (wanted === 0) return null;
  let below: Bucket = { le_ms: 0, count: 0 };
  for (const bucket of buckets) {
    if (bucket.count >= wanted) return within(below, bucket, wanted);
    below = bucket;
  }
  return below.le_ms;
}

function within(below: Bucket, bucket: Bucket, wanted: number): number | null {
  const from = below.le_ms ?? 0;
  // Nothing bounds the last bucket.
  if (bucket.le_ms === null) return from;
  const part = (wanted - below.count) / (bucket.count - below.count);
  return Math.round((from + part * (bucket.le_ms - from)) * 10) / 10;
}
