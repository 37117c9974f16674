import { growth } from '../measures.ts';
import { percentile } from '../processes.ts';
import { explanationOf, isQuiet, type Fault } from './faults.ts';
import { KINDS, type Operation } from './load.ts';
import { NAMES, type Name } from './replicas.ts';
import type { Sample, Scrape } from './samples.ts';

export interface Seen {
  readonly operations: readonly Operation[];
  readonly faults: readonly Fault[];
  readonly samples: readonly Sample[];
  readonly scrapes: readonly Scrape[];
}

/** Fewer marks than this say nothing of growth. */
const MIN_MARKS = 10;

export const tookMs = ({ dueMs, endedMs }: Operation): number => endedMs - dueMs;

/** Failed operations that no fault explains: they could have succeeded. */
export const unexplained = ({ operations, faults }: Seen): Operation[] =>
  operations.filter(one => one.failure !== undefined && !explanationOf(faults, one));

/** Operations and failures of each kind, and how long they took while nothing was wrong. */
export function byKind(seen: Seen) {
  const wrong = new Set(unexplained(seen));
  return KINDS.map(kind => {
    const ofKind = seen.operations.filter(one => one.kind === kind);
    const times = ofKind.filter(({ dueMs }) => isQuiet(seen.faults, dueMs)).map(tookMs);
    return {
      kind,
      operations: ofKind.length,
      failed: ofKind.filter(({ failure }) => failure !== undefined).length,
      could_have_succeeded: ofKind.filter(one => wrong.has(one)).length,
      quiet_p50_ms: percentile(times, 0.5),
      quiet_p95_ms: percentile(times, 0.95),
      quiet_p99_ms: percentile(times, 0.99),
    };
  });
}

/** What each fault cost. */
export function byFault(seen: Seen) {
  const { operations, faults } = seen;
  const explained = operations
    .filter(({ failure }) => failure !== undefined)
    .map(one => ({ one, fault: explanationOf(faults, one) }));
  const wrong = unexplained(seen);
  return faults.map(fault => {
    const { name, startMs, endMs, graceMs } = fault;
    const within = operations.filter(({ dueMs }) => dueMs >= startMs && dueMs <= endMs);
    const failed = explained.filter(({ fault: of }) => of === fault).map(({ one }) => one);
    const lastMs = Math.max(endMs, ...failed.map(({ dueMs }) => dueMs));
    return {
      fault: name,
      start_s: startMs / 1_000,
      lasted_s: (endMs - startMs) / 1_000,
      operations: within.length,
      failed: failed.length,
      failures: countBy(failed),
      could_have_succeeded: wrong.filter(({ dueMs }) => dueMs >= startMs && dueMs <= endMs + graceMs).length,
      recovered_after_s: (lastMs - endMs) / 1_000,
      p99_ms: percentile(within.map(tookMs), 0.99),
    };
  });
}

/** Such as `call upstream_unreachable × 4, call ECONNRESET × 1`. */
export function countBy(failed: readonly Operation[]): string {
  const counts = new Map<string, number>();
  for (const { kind, failure } of failed)
    counts.set(`${kind} ${failure}`, (counts.get(`${kind} ${failure}`) ?? 0) + 1);
  return Array.from(counts, ([what, count]) => `${what} × ${count}`).join(', ');
}

/** A replica's samples, those of each life together. */
export const livesOf = (name: Name, samples: readonly Sample[]): Sample[][] => [
  ...Map.groupBy(
    samples.filter(one => one.name === name),
    ({ life }) => life,
  ).values(),
];

/** Growth of each long life over the last half of its quiet marks, as a share of their mean. */
export function byLife({ samples, faults }: Seen) {
  const quiet = samples.filter(({ atMs }) => isQuiet(faults, atMs));
  return NAMES.flatMap(name => livesOf(name, quiet))
    .map(marks => marks.slice(Math.floor(marks.length / 2)))
    .filter(({ length }) => length >= MIN_MARKS)
    .map(marks => {
      const at = marks.map(({ atMs }) => atMs);
      const rss = marks.map(({ rssMib }) => rssMib);
      const descriptors = marks.map(mark => mark.descriptors);
      return {
        replica: `${marks[0]?.name}, life ${marks[0]?.life}`,
        from_s: (at[0] ?? 0) / 1_000,
        to_s: (at.at(-1) ?? 0) / 1_000,
        rss_mib: percentile(rss, 0.5),
        rss_growth: growth(rss, at),
        descriptors: percentile(descriptors, 0.5),
        descriptors_growth: growth(descriptors, at),
      };
    });
}

/** What the replicas said of themselves: the event loop while it was quiet, and the worst that the pool saw. */
export function inside({ scrapes, faults }: Seen) {
  const quiet = scrapes.filter(({ atMs }) => isQuiet(faults, atMs));
  const lives = Map.groupBy(scrapes, ({ name, life }) => `${name} ${life}`).values();
  return {
    /** Of all lives, from start to last scrape. */
    replicas_processor_s: [...lives].reduce((sum, ofLife) => sum + (ofLife.at(-1)?.processorSec ?? 0), 0),
    quiet_event_loop_lag_p99_ms: percentile(
      quiet.map(({ eventLoopLagMs }) => eventLoopLagMs),
      0.5,
    ),
    quiet_pool_busy_max: Math.max(0, ...quiet.map(({ poolBusy }) => poolBusy)),
    pool_waiting_max: Math.max(0, ...scrapes.map(({ poolWaiting }) => poolWaiting)),
  };
}
