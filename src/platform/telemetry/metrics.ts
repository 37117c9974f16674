import { collectDefaultMetrics, Counter, Gauge, Registry, type Metric } from 'prom-client';

export type { Counter } from 'prom-client';

/** All metrics with their values, as they are sent between processes. */
export type MetricsJson = Awaited<ReturnType<Registry['getMetricsAsJSON']>>;

/** How the values of several processes become one. */
export type Across = 'sum' | 'first' | 'max';

/** CPU, memory, event loop and garbage collection: shared, because its observers cannot be removed. */
let ofProcess: Registry | undefined;

function processRegistry(): Registry {
  if (ofProcess) return ofProcess;
  ofProcess = new Registry();
  collectDefaultMetrics({ register: ofProcess });
  return ofProcess;
}

interface HistogramOptions {
  readonly name: string;
  readonly help: string;
  /** Upper bounds, ascending. */
  readonly buckets: readonly number[];
  readonly labelNames: readonly string[];
}

/** The observations of one combination of label values. */
export class Series {
  readonly labels: Readonly<Record<string, string>>;
  /** How many observations fell into each bucket; the last one has no upper bound. */
  readonly counts: number[];
  sum = 0;
  readonly #buckets: readonly number[];

  constructor(labels: Readonly<Record<string, string>>, buckets: readonly number[]) {
    this.labels = labels;
    this.counts = [...buckets, Infinity].map(() => 0);
    this.#buckets = buckets;
  }

  observe(value: number): void {
    const found = this.#buckets.findIndex(bound => value <= bound);
    const at = found < 0 ? this.#buckets.length : found;
    this.counts[at] = (this.counts[at] ?? 0) + 1;
    this.sum += value;
  }
}

/**
 * A histogram for a registry of prom-client, with the values that prom-client's own would have. That one checks and hashes the
 * labels at each observation, which costs more than all other counting of a proxied call.
 */
export class Histogram {
  readonly type = 'histogram';
  readonly aggregator = 'sum';
  readonly name: string;
  readonly help: string;
  readonly #buckets: readonly number[];
  readonly #labelNames: readonly string[];
  readonly #series = new Map<string, Series>();

  constructor({ name, help, buckets, labelNames }: HistogramOptions) {
    this.name = name;
    this.help = help;
    this.#buckets = buckets;
    this.#labelNames = labelNames;
    if (labelNames.length === 0) this.series();
  }

  /** Returns the series of these label values, in the order of the label names. Frequent callers keep it. */
  series(...values: readonly string[]): Series {
    const key = values.join('\n');
    let series = this.#series.get(key);
    if (!series) {
      const labels = Object.fromEntries(this.#labelNames.map((name, at) => [name, values[at] ?? '']));
      this.#series.set(key, (series = new Series(labels, this.#buckets)));
    }
    return series;
  }

  /** Returns all values, as the registry asks for them at each scrape. */
  get() {
    const values = [...this.#series.values()].flatMap(series => this.#valuesOf(series));
    const { name, help, type, aggregator } = this;
    return { name, help, type, aggregator, values };
  }

  #valuesOf({ labels, counts, sum }: Series) {
    const { name } = this;
    let count = 0;
    const buckets = counts.map((observed, at) => {
      const le = this.#buckets[at] ?? '+Inf';
      return { metricName: `${name}_bucket`, labels: { le, ...labels }, value: (count += observed) };
    });
    return [
      ...buckets,
      { metricName: `${name}_sum`, labels, value: sum },
      { metricName: `${name}_count`, labels, value: count },
    ];
  }
}

/** Metrics in the Prometheus text format. Labels have a few fixed values each: never a name, an id or outside text. */
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
    const histogram = new Histogram({ name, help, labelNames, buckets });
    // The registry asks a metric for its name and its values only, but its type lists the library's own classes.
    this.#registry.registerMetric(histogram as unknown as Metric);
    return histogram;
  }

  /** @param read called at each scrape, must not throw; its keys are the label's values */
  gauge(
    name: string,
    help: string,
    label: string,
    read: () => Readonly<Record<string, number>>,
    across: Across = 'sum',
  ): void {
    void new Gauge({
      name,
      help,
      labelNames: [label],
      aggregator: across,
      registers: [this.#registry],
      collect() {
        for (const [value, number] of Object.entries(read())) this.set({ [label]: value }, number);
      },
    });
  }

  /** Adds the metrics of the process: for a server, not for a command. */
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

  async json(): Promise<MetricsJson> {
    const [own, process = []] = await Promise.all([
      this.#registry.getMetricsAsJSON(),
      this.#process?.getMetricsAsJSON(),
    ]);
    return [...own, ...process];
  }
}

/** Seconds: from a cached response up to the default timeout. */
const HTTP_BUCKETS = [0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];
const METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'PATCH', 'DELETE']);
/** Replaces a label value that would be outside text. */
const OTHER = 'other';
/** Labels by the first digit of the HTTP status; 0: the client had disconnected. */
const STATUSES = ['aborted', '1xx', '2xx', '3xx', '4xx', '5xx'] as const;

/** Times HTTP requests by route. A request costs two lookups and one observation. */
export class HttpMetrics {
  readonly #seconds: Histogram;
  readonly #byRoute = new Map<string, Map<string, (Series | undefined)[]>>();

  constructor(registry: MetricsRegistry, name: string) {
    const help = 'Duration of requests, by route, method and status class.';
    this.#seconds = registry.histogram(name, help, HTTP_BUCKETS, ['route', 'method', 'status']);
  }

  /**
   * @param route the pattern (`/users/:id`), never the requested path; undefined: no route matched, or the
   * request was refused earlier
   * @param status undefined: the client disconnected before the response was sent
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
    if (!byMethod) this.#byRoute.set(key, (byMethod = new Map<string, (Series | undefined)[]>()));
    let byStatus = byMethod.get(verb);
    if (!byStatus) byMethod.set(verb, (byStatus = []));
    const at = status === undefined ? 0 : Math.min(5, Math.floor(status / 100));
    const series = (byStatus[at] ??= this.#seconds.series(key, verb, STATUSES[at] ?? OTHER));
    series.observe(seconds);
  }
}
