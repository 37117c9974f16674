import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';

export type { Counter, Histogram } from 'prom-client';

/** One series of a histogram, kept by whoever observes often: no label object is made for each observation. */
export type Observer = Histogram.Internal<string>;

/** CPU, memory, event loop and garbage collection: one for all, as its observers cannot be taken away again. */
let ofProcess: Registry | undefined;

function processRegistry(): Registry {
  if (ofProcess) return ofProcess;
  ofProcess = new Registry();
  collectDefaultMetrics({ register: ofProcess });
  return ofProcess;
}

/**
 * Metrics in Prometheus's text format. Labels have a handful of values each, all from closed lists of the code: never a name,
 * an id or a text from outside.
 */
export class MetricsRegistry {
  readonly #registry = new Registry();
  #process: Registry | undefined;

  counter(name: string, help: string, labelNames: readonly string[] = []): Counter {
    return new Counter({ name, help, labelNames, registers: [this.#registry] });
  }

  /** @param buckets upper bounds, in seconds */
  histogram(
    name: string,
    help: string,
    buckets: readonly number[],
    labelNames: readonly string[] = [],
  ): Histogram {
    return new Histogram({ name, help, labelNames, buckets: [...buckets], registers: [this.#registry] });
  }

  /** @param read is called at each scrape and must not throw; its keys are the values of the label */
  gauge(name: string, help: string, label: string, read: () => Readonly<Record<string, number>>): void {
    void new Gauge({
      name,
      help,
      labelNames: [label],
      registers: [this.#registry],
      collect() {
        for (const [value, number] of Object.entries(read())) this.set({ [label]: value }, number);
      },
    });
  }

  /** Shows, from now on, what the process uses, too: for a process that serves, not for a command. */
  watchProcess(): void {
    this.#process = processRegistry();
  }

  get contentType(): string {
    return this.#registry.contentType;
  }

  async text(): Promise<string> {
    const [own, process = ''] = await Promise.all([this.#registry.metrics(), this.#process?.metrics()]);
    return own + process;
  }
}

/** Seconds: from an answer out of a cache to the longest that is waited for by default. */
const HTTP_BUCKETS = [0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];
const METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'PATCH', 'DELETE']);
/** Stands for what could only be named by taking a text from outside for a label. */
const OTHER = 'other';
/** By the first digit of the HTTP status; 0: the client had gone. */
const STATUSES = ['aborted', '1xx', '2xx', '3xx', '4xx', '5xx'] as const;

/** Times HTTP requests by route. A request costs two look-ups and one observation. */
export class HttpMetrics {
  readonly #seconds: Histogram;
  readonly #byRoute = new Map<string, Map<string, (Observer | undefined)[]>>();

  constructor(registry: MetricsRegistry, name: string) {
    const help =
      'Time from the head of a request to the end of its answer, by route, method and class of status.';
    this.#seconds = registry.histogram(name, help, HTTP_BUCKETS, ['route', 'method', 'status']);
  }

  /**
   * @param route as the code has it (`/users/:id`), never a path that came; undefined: none was found, or the request was
   *   refused before one was looked for
   * @param status undefined: the client went away before the answer was written
   */
  answered(
    route: string | undefined,
    method: string | undefined,
    status: number | undefined,
    seconds: number,
  ): void {
    const key = route ?? OTHER;
    const verb = method !== undefined && METHODS.has(method) ? method : OTHER;
    let byMethod = this.#byRoute.get(key);
    if (!byMethod) this.#byRoute.set(key, (byMethod = new Map<string, (Observer | undefined)[]>()));
    let byStatus = byMethod.get(verb);
    if (!byStatus) byMethod.set(verb, (byStatus = []));
    const at = status === undefined ? 0 : Math.min(5, Math.floor(status / 100));
    const observer = (byStatus[at] ??= this.#seconds.labels(key, verb, STATUSES[at] ?? OTHER));
    observer.observe(seconds);
  }
}
