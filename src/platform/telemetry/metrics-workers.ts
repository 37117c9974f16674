import { AggregatorRegistry } from 'prom-client';
import { MetricsRegistry, type MetricsJson } from './metrics.ts';

/** Metrics of the process whose sum or average would hide a single process in trouble. */
const AGGREGATORS: Readonly<Record<string, string>> = {
  process_start_time_seconds: 'min',
  // Limits are per process: together these show the process that is nearest to its own.
  process_open_fds: 'max',
  process_max_fds: 'min',
  nodejs_eventloop_lag_seconds: 'max',
  nodejs_eventloop_lag_stddev_seconds: 'max',
  nodejs_eventloop_lag_p50_seconds: 'max',
  nodejs_eventloop_lag_p90_seconds: 'max',
  nodejs_eventloop_lag_p99_seconds: 'max',
};

/** The metrics that a worker answered; undefined: it runs but did not answer in time. */
export type WorkerAnswers = ReadonlyMap<number, MetricsJson | undefined>;

/**
 * The metrics of a program of several processes: its workers, and the process that uses this. Counts never fall: those of a
 * worker that has ended or does not answer stay as they were last seen here.
 */
export class WorkerMetrics {
  readonly #own = new MetricsRegistry();
  readonly #lastSeen = new Map<number, MetricsJson>();
  #ended: MetricsJson = [];
  #states: Readonly<Record<'answered' | 'silent' | 'down', number>> = { answered: 0, silent: 0, down: 0 };
  readonly #restarts = this.#own.counter(
    'switchboard_worker_restarts_total',
    'Workers that ended unexpectedly and were started again.',
  );

  constructor() {
    this.#own.watchProcess();
    const help =
      'Workers in these figures (answered), too busy to answer (silent: only their last known counts), or being restarted (down).';
    this.#own.gauge('switchboard_workers', help, 'state', () => this.#states);
  }

  /** Keeps what a worker had counted until it was last asked. */
  ended(worker: number): void {
    const last = this.#lastSeen.get(worker);
    this.#lastSeen.delete(worker);
    // The library types both forms of the same objects differently.
    if (last) this.#ended = sum([this.#ended, countsOf(last)]).getMetricsAsArray() as unknown as MetricsJson;
  }

  restarted(): void {
    this.#restarts.inc();
  }

  /**
   * Returns the metrics of all processes in the Prometheus text format.
   * @param count how many workers there should be
   */
  async text(answers: WorkerAnswers, count: number): Promise<string> {
    const answered = [...answers.values()].filter(one => one !== undefined).length;
    this.#states = { answered, silent: answers.size - answered, down: count - answers.size };
    const parts: MetricsJson[] = [];
    for (const [worker, answer] of [...answers].sort(([a], [b]) => a - b)) {
      if (answer) this.#lastSeen.set(worker, answer);
      parts.push(answer ?? countsOf(this.#lastSeen.get(worker) ?? []));
    }
    return sum([...parts, this.#ended, await this.#own.json()]).metrics();
  }
}

/** Returns only what never falls. */
const countsOf = (metrics: MetricsJson): MetricsJson =>
  metrics.filter(({ type }) => COUNTS.has(String(type)));

const COUNTS: ReadonlySet<string> = new Set(['counter', 'histogram']);

const sum = (parts: readonly MetricsJson[]) =>
  AggregatorRegistry.aggregate(
    parts.map(metrics =>
      metrics.map(metric => ({ ...metric, aggregator: AGGREGATORS[metric.name] ?? metric.aggregator })),
    ),
  );
