import { Histogram, type Registry } from 'prom-client';

/** Seconds: a call takes the time of its server, up to the 60 s that it is waited for by default. */
const BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

/** A call made for its caller, a listing of tools, or a POST of a client that speaks with the server itself. */
export type CallKind = 'call' | 'list' | 'pass';

type Observer = Histogram.Internal<string>;

/** Proxied calls by how they ended. */
export class CallMetrics {
  readonly #seconds: Histogram;
  readonly #observers: Record<CallKind, Map<string, Observer>> = {
    call: new Map(),
    list: new Map(),
    pass: new Map(),
  };

  constructor(registry: Registry) {
    this.#seconds = new Histogram({
      name: 'switchboard_proxy_call_duration_seconds',
      help: 'Time a proxied call took with its turn, by kind and outcome (ok, aborted by its caller, or the code of the error).',
      labelNames: ['kind', 'outcome'],
      buckets: BUCKETS,
      registers: [registry],
    });
  }

  /** @param outcome `ok`, `aborted`, or a code of the closed list of errors */
  ended(kind: CallKind, outcome: string, tookMs: number): void {
    const observers = this.#observers[kind];
    let observer = observers.get(outcome);
    if (!observer) observers.set(outcome, (observer = this.#seconds.labels(kind, outcome)));
    observer.observe(tookMs / 1000);
  }
}
