import type { MetricsJson } from '../telemetry/metrics.ts';
import type { Channel } from './channel.ts';
import type { Lease, LeaseRequest } from './leases.ts';

/** The messages between a worker and its primary. */
export const MESSAGES = {
  /** From the worker: it listens (`Listening`). */
  listening: 'listening',
  /** From the worker: why it ends (`Failure`). */
  failed: 'failed',
  /** From the primary: stop. */
  stop: 'stop',
  /** From the primary: are you alive? */
  alive: 'alive',
  /** From the primary: create the first key, if there is none yet. */
  firstKey: 'first key',
  /** From the primary: your metrics. From the worker: those of all, as text. */
  metrics: 'metrics',
  /** From the worker: a lease (`LeaseRequest`). */
  lease: 'lease',
  /** From a worker, passed on to all others: what one has to know that another was told. */
  news: 'news',
} as const;

export interface Listening {
  readonly url: string;
  readonly servers: number;
}

export interface Failure {
  readonly code: string;
  readonly detail: string;
}

/** News of a subject, for the other workers. */
export interface News {
  readonly subject: string;
  readonly body: unknown;
}

/** A primary that does not answer in this time hangs: nobody is refused then. */
const LEASE_MS = 1_000;
/** Longer than the primary waits for the other workers. */
const METRICS_MS = 5_000;

/** A worker's place among the processes that serve on one port. */
export class WorkerSeat {
  /** 1 or more. The first worker holds the lock of what only one process may have. */
  readonly number: number;
  /** Aborts when the primary is gone, so that nothing new can arrive. */
  readonly orphaned: AbortSignal;
  readonly #primary: Channel;
  readonly #listeners = new Map<string, (body: unknown) => void>();

  constructor(number: number, primary: Channel, orphaned: AbortSignal) {
    this.number = number;
    this.orphaned = orphaned;
    this.#primary = primary
      .on(MESSAGES.alive, () => true)
      .on(MESSAGES.news, ({ subject, body }: News) => this.#listeners.get(subject)?.(body));
  }

  get isFirst(): boolean {
    return this.number === 1;
  }

  readonly lease = (request: LeaseRequest): Promise<Lease | undefined> =>
    this.#primary.ask<Lease>(MESSAGES.lease, request, LEASE_MS);

  /** Answers with this worker's metrics from now on. */
  offerMetrics(read: () => Promise<MetricsJson>): void {
    this.#primary.on(MESSAGES.metrics, read);
  }

  /** Returns the metrics of all workers, as text. @throws Error if the primary does not answer */
  async allMetrics(): Promise<string> {
    const text = await this.#primary.ask<string>(MESSAGES.metrics, undefined, METRICS_MS);
    if (text === undefined)
      throw new Error('the primary process did not answer with the metrics of all workers');
    return text;
  }

  /** Tells the other workers. What they do with it is not awaited. */
  tellOthers(subject: string, body: unknown): void {
    this.#primary.tell(MESSAGES.news, { subject, body });
  }

  onNews(subject: string, listener: (body: unknown) => void): void {
    this.#listeners.set(subject, listener);
  }
}
