import { Histogram, type Registry } from 'prom-client';

/** Seconds: from an answer out of the cache to the longest that a call is waited for by default. */
const BUCKETS = [0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

const METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'PATCH', 'DELETE']);
/** What cannot be named without taking a text from outside for a label. */
const OTHER = 'other';

/** By the first digit of the HTTP status; 0: the client had gone. */
const STATUSES = ['aborted', '1xx', '2xx', '3xx', '4xx', '5xx'] as const;

type Observer = Histogram.Internal<string>;

/** Requests by route. What a request costs here is two look-ups and one observation: no label object is made for it. */
export class HttpMetrics {
  readonly #seconds: Histogram;
  readonly #byRoute = new Map<string, Map<string, (Observer | undefined)[]>>();

  constructor(registry: Registry) {
    this.#seconds = new Histogram({
      name: 'switchboard_http_request_duration_seconds',
      help: 'Time from the head of a request to the end of its answer, by route, method and class of status.',
      labelNames: ['route', 'method', 'status'],
      buckets: BUCKETS,
      registers: [registry],
    });
  }

  /**
   * @param route as the code has it (`/v1/identity/sessions/:session_id`), never a path that came; undefined: none was found, or
   *   the request was refused before one was looked for
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
