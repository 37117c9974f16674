import {
  HttpMetrics,
  MetricsRegistry,
  type Counter,
  type Histogram,
  type Observer,
} from '../platform/telemetry/metrics.ts';

/** Seconds: an answer from the cache takes a few thousandths, one that waits for an embedding API up to one. */
const SEARCH_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1, 2.5];
const EMBEDDING_BUCKETS = [0.05, 0.1, 0.2, 0.4, 0.7, 1, 2.5, 5, 10, 30];
/** Seconds: a call takes the time of its server, up to the 60 s that it is waited for by default. */
const CALL_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

/** The purpose of a request to an embedding API: a search, an import, or the program itself to see whether the API works. */
export type EmbeddingLane = 'query' | 'bulk' | 'trial';

/** A call made for its caller, a listing of tools, or a POST of a client that speaks with the server itself. */
export type CallKind = 'call' | 'list' | 'pass';

/** The parts of the program whose failure leaves it running, only worse. */
export type DegradablePart = 'database' | 'embedder' | 'index' | 'rate_limits' | 'probing';

/** Gauges that are read at each scrape, and the states they tell apart. */
const GAUGES = {
  switchboard_upstream_sessions: {
    help: 'Open sessions with MCP servers of revisions that have some.',
    states: ['busy', 'idle'],
  },
  switchboard_upstream_circuits: {
    help: 'MCP servers, each also by tenant, that calls are held back from since they failed repeatedly (open), or that failed lately (closed).',
    states: ['open', 'closed'],
  },
  switchboard_upstream_slots: {
    help: 'Calls to MCP servers that are under way (busy), or wait as too many to one origin are.',
    states: ['busy', 'waiting'],
  },
  switchboard_servers: {
    help: 'Servers of the catalogue by what the last visit found; unvisited: there was none yet; inactive: taken out for having no answer.',
    states: ['ok', 'needs_sign_in', 'not_mcp', 'unreachable', 'unvisited', 'inactive'],
  },
  switchboard_search_slots: {
    help: 'Searches whose ranking is computed (busy), or that wait as too many are.',
    states: ['busy', 'waiting'],
  },
  switchboard_database_pool: {
    help: 'Connections to Postgres that are in use (busy) or idle, and queries that wait for one.',
    states: ['busy', 'idle', 'waiting'],
  },
} as const;

type GaugeName = keyof typeof GAUGES;
type Standing<Name extends GaugeName> = Readonly<Record<(typeof GAUGES)[Name]['states'][number], number>>;

/** Everything that operators count and draw. Its labels are closed lists, as the types of the methods say. */
export class Metrics {
  readonly #registry = new MetricsRegistry();
  readonly #degraded = new Map<DegradablePart, () => boolean>();
  readonly http = new HttpMetrics(this.#registry, 'switchboard_http_request_duration_seconds');
  readonly calls = new CallMetrics(this.#registry);
  readonly events = new EventMetrics(this.#registry);

  readonly #searches = this.#registry.histogram(
    'switchboard_search_duration_seconds',
    'Time a search took, by whether its ranking came from the cache.',
    SEARCH_BUCKETS,
    ['cache'],
  );
  readonly #hits = this.#searches.labels({ cache: 'hit' });
  readonly #misses = this.#searches.labels({ cache: 'miss' });
  readonly #empty = this.#registry.counter(
    'switchboard_search_empty_total',
    'Searches answered with no server.',
  );
  readonly #embeddingRequests = this.#registry.histogram(
    'switchboard_embedding_request_duration_seconds',
    'Time a request to the embedding API took, by who asked and how it ended (ok or the kind of failure).',
    EMBEDDING_BUCKETS,
    ['lane', 'outcome'],
  );
  readonly #embeddedTexts = this.#registry.counter(
    'switchboard_embedding_texts_total',
    'Texts that the embedding API gave vectors for.',
    ['lane'],
  );
  readonly #embeddingTokens = this.#registry.counter(
    'switchboard_embedding_tokens_total',
    'Tokens that the embedding API says it counted.',
    ['lane'],
  );
  readonly #queryVectors = this.#registry.counter(
    'switchboard_embedding_query_cache_total',
    'Query texts whose vector was asked for, by whether it was in memory.',
    ['cache'],
  );

  constructor() {
    const help = '1 while a part works worse than it should (see /readyz), else 0.';
    this.#registry.gauge('switchboard_degraded', help, 'part', () =>
      Object.fromEntries([...this.#degraded].map(([part, isDegraded]) => [part, isDegraded() ? 1 : 0])),
    );
  }

  searched({ cacheHit, latencyMs, empty }: { cacheHit: boolean; latencyMs: number; empty: boolean }): void {
    (cacheHit ? this.#hits : this.#misses).observe(latencyMs / 1000);
    if (empty) this.#empty.inc();
  }

  /** @param request.outcome `ok`, or the kind of failure from a closed list */
  embeddingRequested(request: { lane: EmbeddingLane; outcome: string; tookMs: number }): void {
    const { lane, outcome, tookMs } = request;
    this.#embeddingRequests.observe({ lane, outcome }, tookMs / 1000);
  }

  embedded({ lane, texts, tokens }: { lane: EmbeddingLane; texts: number; tokens: number }): void {
    this.#embeddedTexts.inc({ lane }, texts);
    this.#embeddingTokens.inc({ lane }, tokens);
  }

  queryVector(cacheHit: boolean): void {
    this.#queryVectors.inc({ cache: cacheHit ? 'hit' : 'miss' });
  }

  /** @param isDegraded is called at each scrape */
  watchDegraded(part: DegradablePart, isDegraded: () => boolean): void {
    this.#degraded.set(part, isDegraded);
  }

  /** Has each scrape read how something stands. Call it once for each name. */
  watch<Name extends GaugeName>(name: Name, read: () => Standing<Name>): void {
    this.#registry.gauge(name, GAUGES[name].help, 'state', read);
  }

  /** Shows, from now on, what the process uses, too: for a server, not for a command. */
  watchProcess(): void {
    this.#registry.watchProcess();
  }

  get contentType(): string {
    return this.#registry.contentType;
  }

  /** Returns all metrics in Prometheus's text format. */
  text(): Promise<string> {
    return this.#registry.text();
  }
}

/** Times proxied calls by how they ended. */
class CallMetrics {
  readonly #seconds: Histogram;
  readonly #observers: Record<CallKind, Map<string, Observer>> = {
    call: new Map(),
    list: new Map(),
    pass: new Map(),
  };

  constructor(registry: MetricsRegistry) {
    this.#seconds = registry.histogram(
      'switchboard_proxy_call_duration_seconds',
      'Time a proxied call took with its turn, by kind and outcome (ok, aborted by its caller, or the code of the error).',
      CALL_BUCKETS,
      ['kind', 'outcome'],
    );
  }

  /** @param outcome `ok`, `aborted`, or a code of the closed list of errors */
  ended(kind: CallKind, outcome: string, tookMs: number): void {
    const observers = this.#observers[kind];
    let observer = observers.get(outcome);
    if (!observer) observers.set(outcome, (observer = this.#seconds.labels(kind, outcome)));
    observer.observe(tookMs / 1000);
  }
}

/** Counts rare events. */
class EventMetrics {
  readonly #refusals: Counter;
  readonly #audited: Counter;
  readonly #tokenSets: Counter;
  readonly #providerRefreshes: Counter;
  readonly #probes: Counter;

  constructor(registry: MetricsRegistry) {
    this.#refusals = registry.counter(
      'switchboard_rate_limit_refusals_total',
      'Requests refused with 429, by the class of endpoint, the other bound, or the monthly quota.',
      ['class'],
    );
    this.#audited = registry.counter(
      'switchboard_audit_events_total',
      'Events of the audit log: sign-ins, connections, revocations, keys, the catalogue.',
      ['event', 'outcome'],
    );
    this.#tokenSets = registry.counter(
      'switchboard_identity_token_requests_total',
      'Requests for identity tokens, by what for them was presented (session, refresh_token).',
      ['grant', 'outcome'],
    );
    this.#providerRefreshes = registry.counter(
      'switchboard_provider_token_refreshes_total',
      'Tokens that identity providers were asked to renew, by how it ended.',
      ['outcome'],
    );
    this.#probes = registry.counter(
      'switchboard_probes_total',
      'Visits of servers of the catalogue, by what they found (no_verdict: nothing, such as HTTP 429).',
      ['outcome'],
    );
  }

  /** @param limit a class of endpoint, another bound, or `calls-per-month` and the like */
  rateLimited(limit: string): void {
    this.#refusals.inc({ class: limit });
  }

  audited(event: string, outcome: 'ok' | 'refused' | 'failed'): void {
    this.#audited.inc({ event, outcome });
  }

  /** @param outcome `pending`: the user has not finished the sign-in */
  tokensAsked(grant: 'session' | 'refresh_token', outcome: 'ok' | 'refused' | 'pending'): void {
    this.#tokenSets.inc({ grant, outcome });
  }

  /** @param outcome `ended`: only the user can mend it; `overtaken`: by a new sign-in or a revocation; `failed`: the provider's fault */
  providerRefreshed(outcome: 'ok' | 'ended' | 'overtaken' | 'failed'): void {
    this.#providerRefreshes.inc({ outcome });
  }

  probed(outcome: 'ok' | 'needs_sign_in' | 'not_mcp' | 'unreachable' | 'no_verdict'): void {
    this.#probes.inc({ outcome });
  }
}
