import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import { CallMetrics } from './metrics-calls.ts';
import { EventMetrics } from './metrics-events.ts';
import { watch, type GaugeName, type Standing } from './metrics-gauges.ts';
import { HttpMetrics } from './metrics-http.ts';

/** Seconds: an answer from the cache takes a few thousandths, one that waits for an embedding API up to one. */
const SEARCH_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1, 2.5];
const EMBEDDING_BUCKETS = [0.05, 0.1, 0.2, 0.4, 0.7, 1, 2.5, 5, 10, 30];

/** Who asks an embedding API for vectors: a search, an import, or the program itself to see whether the API works. */
export type EmbeddingLane = 'query' | 'bulk' | 'trial';

/** The parts of the program whose failure leaves it running, only worse. */
export type DegradablePart = 'database' | 'embedder' | 'index' | 'rate_limits' | 'probing';

/** Of the process: CPU, memory, event loop, garbage collection. One for all, as its observers cannot be taken away again. */
let ofProcess: Registry | undefined;

function processRegistry(): Registry {
  if (ofProcess) return ofProcess;
  ofProcess = new Registry();
  collectDefaultMetrics({ register: ofProcess });
  return ofProcess;
}

/**
 * What operators count and draw, in one place. Labels have a handful of values each, all written here or in a closed list of
 * the code: never a name, an id or a text from outside.
 */
export class Metrics {
  readonly #registry = new Registry();
  readonly #degraded = new Map<DegradablePart, () => boolean>();
  #process: Registry | undefined;
  readonly http = new HttpMetrics(this.#registry);
  readonly calls = new CallMetrics(this.#registry);
  readonly events = new EventMetrics(this.#registry);

  readonly #searches = new Histogram({
    name: 'switchboard_search_duration_seconds',
    help: 'Time a search took, by whether its ranking came from the cache.',
    labelNames: ['cache'],
    buckets: SEARCH_BUCKETS,
    registers: [this.#registry],
  });
  readonly #hits = this.#searches.labels({ cache: 'hit' });
  readonly #misses = this.#searches.labels({ cache: 'miss' });
  readonly #empty = new Counter({
    name: 'switchboard_search_empty_total',
    help: 'Searches answered with no server.',
    registers: [this.#registry],
  });
  readonly #embeddingRequests = new Histogram({
    name: 'switchboard_embedding_request_duration_seconds',
    help: 'Time a request to the embedding API took, by who asked and how it ended (ok or the kind of failure).',
    labelNames: ['lane', 'outcome'],
    buckets: EMBEDDING_BUCKETS,
    registers: [this.#registry],
  });
  readonly #embeddedTexts = new Counter({
    name: 'switchboard_embedding_texts_total',
    help: 'Texts that the embedding API gave vectors for.',
    labelNames: ['lane'],
    registers: [this.#registry],
  });
  readonly #embeddingTokens = new Counter({
    name: 'switchboard_embedding_tokens_total',
    help: 'Tokens that the embedding API says it counted.',
    labelNames: ['lane'],
    registers: [this.#registry],
  });
  readonly #queryVectors = new Counter({
    name: 'switchboard_embedding_query_cache_total',
    help: 'Query texts whose vector was asked for, by whether it was in memory.',
    labelNames: ['cache'],
    registers: [this.#registry],
  });

  constructor() {
    const degraded = this.#degraded;
    void new Gauge({
      name: 'switchboard_degraded',
      help: '1 while a part works worse than it should (see /readyz), else 0.',
      labelNames: ['part'],
      registers: [this.#registry],
      collect() {
        for (const [part, isDegraded] of degraded) this.set({ part }, isDegraded() ? 1 : 0);
      },
    });
  }

  searched({ cacheHit, latencyMs, empty }: { cacheHit: boolean; latencyMs: number; empty: boolean }): void {
    (cacheHit ? this.#hits : this.#misses).observe(latencyMs / 1000);
    if (empty) this.#empty.inc();
  }

  /** @param outcome `ok`, or the kind of failure from a closed list */
  embeddingRequested({
    lane,
    outcome,
    tookMs,
  }: {
    lane: EmbeddingLane;
    outcome: string;
    tookMs: number;
  }): void {
    this.#embeddingRequests.observe({ lane, outcome }, tookMs / 1000);
  }

  embedded({ lane, texts, tokens }: { lane: EmbeddingLane; texts: number; tokens: number }): void {
    this.#embeddedTexts.inc({ lane }, texts);
    this.#embeddingTokens.inc({ lane }, tokens);
  }

  queryVector(cacheHit: boolean): void {
    this.#queryVectors.inc({ cache: cacheHit ? 'hit' : 'miss' });
  }

  /** Asked at each scrape. */
  watchDegraded(part: DegradablePart, isDegraded: () => boolean): void {
    this.#degraded.set(part, isDegraded);
  }

  /** Has each scrape ask how something stands. Once for each. */
  watch<Name extends GaugeName>(name: Name, read: () => Standing<Name>): void {
    watch(this.#registry, name, read);
  }

  /** From now on what the process uses is measured and shown, too: for a server, not for a command. */
  watchProcess(): void {
    this.#process = processRegistry();
  }

  get contentType(): string {
    return this.#registry.contentType;
  }

  /** All of it in Prometheus's text format. */
  async text(): Promise<string> {
    const [own, process = ''] = await Promise.all([this.#registry.metrics(), this.#process?.metrics()]);
    return own + process;
  }
}
