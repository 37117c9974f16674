import {
  HttpMetrics,
  MetricsRegistry,
  type Across,
  type Counter,
  type Histogram,
  type MetricsJson,
  type Series,
} from '../platform/telemetry/metrics.ts';

/** Seconds: a cached result takes a few milliseconds, and one that waits for an embedding API up to a second. */
const SEARCH_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1, 2.5];
const EMBEDDING_BUCKETS = [0.05, 0.1, 0.2, 0.4, 0.7, 1, 2.5, 5, 10, 30];
/** Seconds: a call takes as long as its server, up to the default timeout of 60 s. */
const CALL_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

/** The purpose of a request to an embedding API: a search, an import, or a health check of the API. */
export type EmbeddingLane = 'query' | 'bulk' | 'trial';

/** A call, a listing of tools, or a pass-through POST. */
export type CallKind = 'call' | 'list' | 'pass';

/** Components that may fail without stopping the program. */
export type DegradablePart = 'database' | 'embedder' | 'index' | 'rate_limits' | 'probing';

interface GaugeKind {
  readonly help: string;
  readonly states: readonly string[];
  /** How the values of several workers become one. Default: their sum. */
  readonly across?: Across;
}

/** Gauges read at each scrape, and their states. */
const GAUGES = {
  switchboard_upstream_sessions: {
    help: 'Open sessions with MCP servers.',
    states: ['busy', 'idle'],
  },
  switchboard_upstream_circuits: {
    help: 'Circuit breakers of MCP servers, also per tenant: open (calls are refused after repeated failures) or closed (recent failures).',
    states: ['open', 'closed'],
  },
  switchboard_upstream_slots: {
    help: 'Calls to MCP servers that are running (busy) or waiting for a slot of their origin.',
    states: ['busy', 'waiting'],
  },
  switchboard_streams: {
    help: 'Event streams through /mcp/{server_id} that are open, and how many more may be opened (free).',
    states: ['open', 'free'],
  },
  switchboard_servers: {
    help: 'Servers of the catalogue by the result of their last check; unvisited: not checked yet; inactive: deactivated as unreachable.',
    states: ['ok', 'needs_sign_in', 'not_mcp', 'unreachable', 'unvisited', 'inactive'],
    across: 'first',
  },
  switchboard_search_slots: {
    help: 'Searches that are running (busy) or waiting for a slot.',
    states: ['busy', 'waiting'],
  },
  switchboard_database_pool: {
    help: 'Postgres connections that are busy or idle, and queries waiting for one.',
    states: ['busy', 'idle', 'waiting'],
  },
} as const satisfies Readonly<Record<string, GaugeKind>>;

type GaugeName = keyof typeof GAUGES;
type Standing<Name extends GaugeName> = Readonly<Record<(typeof GAUGES)[Name]['states'][number], number>>;

/** All metrics for operators. Labels have a fixed set of values, as the method types show. */
export class Metrics {
  readonly #registry = new MetricsRegistry();
  readonly #degraded = new Map<DegradablePart, () => boolean>();
  #ofAllWorkers: (() => Promise<string>) | undefined;
  readonly http = new HttpMetrics(this.#registry, 'switchboard_http_request_duration_seconds');
  readonly calls = new CallMetrics(this.#registry);
  readonly events = new EventMetrics(this.#registry);

  readonly #searches = this.#registry.histogram(
    'switchboard_search_duration_seconds',
    'Duration of searches, by whether the ranking came from the cache.',
    SEARCH_BUCKETS,
    ['cache'],
  );
  readonly #hits = this.#searches.series('hit');
  readonly #misses = this.#searches.series('miss');
  readonly #empty = this.#registry.counter(
    'switchboard_search_empty_total',
    'Searches that returned no server.',
  );
  readonly #embeddingRequests = this.#registry.histogram(
    'switchboard_embedding_request_duration_seconds',
    'Duration of requests to the embedding API, by caller and outcome (ok or the kind of failure).',
    EMBEDDING_BUCKETS,
    ['lane', 'outcome'],
  );
  readonly #embeddedTexts = this.#registry.counter(
    'switchboard_embedding_texts_total',
    'Texts embedded by the embedding API.',
    ['lane'],
  );
  readonly #embeddingTokens = this.#registry.counter(
    'switchboard_embedding_tokens_total',
    'Tokens used, as reported by the embedding API.',
    ['lane'],
  );
  readonly #queryVectors = this.#registry.counter(
    'switchboard_embedding_query_cache_total',
    'Lookups of query vectors, by whether the vector was cached.',
    ['cache'],
  );

  constructor() {
    const help = '1 while a component is degraded (see /readyz), otherwise 0.';
    const read = () =>
      Object.fromEntries([...this.#degraded].map(([part, isDegraded]) => [part, isDegraded() ? 1 : 0]));
    this.#registry.gauge('switchboard_degraded', help, 'part', read, 'max');
  }

  searched({ cacheHit, latencyMs, empty }: { cacheHit: boolean; latencyMs: number; empty: boolean }): void {
    (cacheHit ? this.#hits : this.#misses).observe(latencyMs / 1000);
    if (empty) this.#empty.inc();
  }

  /** @param request.outcome `ok`, or a kind of failure from a closed list */
  embeddingRequested(request: { lane: EmbeddingLane; outcome: string; tookMs: number }): void {
    const { lane, outcome, tookMs } = request;
    this.#embeddingRequests.series(lane, outcome).observe(tookMs / 1000);
  }

  embedded({ lane, texts, tokens }: { lane: EmbeddingLane; texts: number; tokens: number }): void {
    this.#embeddedTexts.inc({ lane }, texts);
    this.#embeddingTokens.inc({ lane }, tokens);
  }

  queryVector(cacheHit: boolean): void {
    this.#queryVectors.inc({ cache: cacheHit ? 'hit' : 'miss' });
  }

  /** @param isDegraded called at each scrape */
  watchDegraded(part: DegradablePart, isDegraded: () => boolean): void {
    this.#degraded.set(part, isDegraded);
  }

  /** Registers a gauge that is read at each scrape. Call it once per name. */
  watch<Name extends GaugeName>(name: Name, read: () => Standing<Name>): void {
    const { help, across }: GaugeKind = GAUGES[name];
    this.#registry.gauge(name, help, 'state', read, across);
  }

  /** Adds the metrics of the process: for a server, not for a command. */
  watchProcess(): void {
    this.#registry.watchProcess();
  }

  get contentType(): string {
    return this.#registry.contentType;
  }

  /** From now on `text` returns this: the metrics of all workers, of which this process is one. */
  showAllWorkers(text: () => Promise<string>): void {
    this.#ofAllWorkers = text;
  }

  /** Returns all metrics in the Prometheus text format. */
  text(): Promise<string> {
    return this.#ofAllWorkers?.() ?? this.#registry.text();
  }

  /** Returns the metrics of this process only. */
  json(): Promise<MetricsJson> {
    return this.#registry.json();
  }
}

/** Times proxied calls by outcome. */
class CallMetrics {
  readonly #seconds: Histogram;
  readonly #series: Record<CallKind, Map<string, Series>> = {
    call: new Map(),
    list: new Map(),
    pass: new Map(),
  };

  constructor(registry: MetricsRegistry) {
    this.#seconds = registry.histogram(
      'switchboard_proxy_call_duration_seconds',
      'Duration of proxied calls including waiting time, by kind and outcome (ok, aborted by the caller, or the error code).',
      CALL_BUCKETS,
      ['kind', 'outcome'],
    );
  }

  /** @param outcome `ok`, `aborted` or an error code */
  ended(kind: CallKind, outcome: string, tookMs: number): void {
    const byOutcome = this.#series[kind];
    let series = byOutcome.get(outcome);
    if (!series) byOutcome.set(outcome, (series = this.#seconds.series(kind, outcome)));
    series.observe(tookMs / 1000);
  }
}

/** Counts rare events. */
class EventMetrics {
  readonly #refusals: Counter;
  readonly #accessRefusals: Counter;
  readonly #audited: Counter;
  readonly #tokenSets: Counter;
  readonly #providerRefreshes: Counter;
  readonly #probes: Counter;
  readonly #webhooks: Counter;

  constructor(registry: MetricsRegistry) {
    this.#refusals = registry.counter(
      'switchboard_rate_limit_refusals_total',
      'Requests refused with 429, by endpoint class, other limit or monthly quota.',
      ['class'],
    );
    this.#accessRefusals = registry.counter(
      'switchboard_access_refusals_total',
      'Requests refused for lack of a valid key (unauthorized) or of a scope (insufficient_scope).',
      ['reason'],
    );
    this.#audited = registry.counter(
      'switchboard_audit_events_total',
      'Audit log events: sign-ins, connections, revocations, keys, the catalogue.',
      ['event', 'outcome'],
    );
    this.#tokenSets = registry.counter(
      'switchboard_identity_token_requests_total',
      'Requests for identity tokens, by grant (session, refresh_token).',
      ['grant', 'outcome'],
    );
    this.#providerRefreshes = registry.counter(
      'switchboard_provider_token_refreshes_total',
      'Refreshes of provider tokens, by outcome.',
      ['outcome'],
    );
    this.#probes = registry.counter(
      'switchboard_probes_total',
      'Health checks of servers, by result (no_verdict: inconclusive, such as HTTP 429).',
      ['outcome'],
    );
    this.#webhooks = registry.counter(
      'switchboard_webhook_deliveries_total',
      'Attempts to send webhook events, by outcome (failed: will be retried), and dropped events.',
      ['outcome'],
    );
  }

  /** @param limit an endpoint class, another limit, or for instance `calls-per-month` */
  rateLimited(limit: string): void {
    this.#refusals.inc({ class: limit });
  }

  refused(reason: 'unauthorized' | 'insufficient_scope'): void {
    this.#accessRefusals.inc({ reason });
  }

  audited(event: string, outcome: 'ok' | 'refused' | 'failed'): void {
    this.#audited.inc({ event, outcome });
  }

  /** @param outcome `pending`: the user has not completed the sign-in */
  tokensAsked(grant: 'session' | 'refresh_token', outcome: 'ok' | 'refused' | 'pending'): void {
    this.#tokenSets.inc({ grant, outcome });
  }

  /**
   * @param outcome `ended`: only the user can fix it; `overtaken`: by a new sign-in or a revocation; `failed`: the provider's fault
   */
  providerRefreshed(outcome: 'ok' | 'ended' | 'overtaken' | 'failed'): void {
    this.#providerRefreshes.inc({ outcome });
  }

  probed(outcome: 'ok' | 'needs_sign_in' | 'not_mcp' | 'unreachable' | 'no_verdict'): void {
    this.#probes.inc({ outcome });
  }

  /**
   * @param outcome `failed`: will be retried; `dropped`: given up, or too many waited; `gone`: the receiver answered 410
   * @param count the number of events
   */
  webhookSent(outcome: 'ok' | 'failed' | 'dropped' | 'gone', count = 1): void {
    this.#webhooks.inc({ outcome }, count);
  }
}
