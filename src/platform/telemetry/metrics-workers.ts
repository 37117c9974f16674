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

/** The metrics of each running worker; undefined: it did not answer in time. */
export type WorkerAnswers = ReadonlyMap<number, Promise<MetricsJson | undefined>>;

/**
 * The metrics of a program of several processes: its workers, and the process that uses this. Counts never fall: those of a
 * worker that has ended or does not answer stay as they were last seen here.
 */
export class WorkerMetrics {
  readonly #own = new MetricsRegistry();
  readonly #lastSeen = new Map<number, MetricsJson>();
  /** How many processes have ended, by worker. */
  readonly #ends = new Map<number, number>();
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
    this.#ends.set(worker, this.#endsOf(worker) + 1);
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
  async text(asked: WorkerAnswers, count: number): Promise<string> {
    const seen = await Promise.all([...asked].map(([worker, answer]) => this.#seen(worker, answer)));
    // One that has ended after its answer is among the ended.
    const running = seen.filter(({ worker, ends }) => ends === this.#endsOf(worker));
    const answered = running.filter(({ answer }) => answer !== undefined).length;
    this.#states = { answered, silent: running.length - answered, down: count - running.length };
    const parts = running
      .toSorted((one, other) => one.worker - other.worker)
      .map(({ worker, answer }) => answer ?? countsOf(this.#lastSeen.get(worker) ?? []));
    return sum([...parts, this.#ended, await this.#own.json()]).metrics();
  }

  /** Waits for an answer, and keeps it at once: its process may end before the others answer. */
  async #seen(worker: number, asked: Promise<MetricsJson | undefined>) {
    const ends = this.#endsOf(worker);
    const answer = await asked;
    if (answer && ends === this.#endsOf(worker)) this.#lastSeen.set(worker, answer);
    return { worker, ends, answer };
  }

  readonly #endsOf = (worker: number): number => this.#ends.get(worker) ?? 0;
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
