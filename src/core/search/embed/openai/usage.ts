import type { Log } from '../../../../platform/telemetry/log.ts';
import type { EmbeddingLane, Metrics } from '../../../metrics.ts';
import { withoutSpan } from '../../../../platform/telemetry/tracing.ts';
import type { FailureKind } from './failure.ts';

const LOG_EVERY_MS = 60_000;

interface EndedRequest {
  readonly lane: EmbeddingLane;
  readonly outcome: 'ok' | FailureKind;
  readonly tookMs: number;
  /** Texts that got their vectors, and what the API counts for them. */
  readonly texts: number;
  readonly tokens: number;
}

/** What the embedding API is used for and costs: each request in the metrics, their sum in the log once a minute at most. */
export class EmbeddingUsage {
  readonly #metrics: Metrics;
  readonly #log: Log;
  #sum = { requests: 0, failed: 0, texts: 0, tokens: 0 };
  #timer: NodeJS.Timeout | undefined;

  constructor(metrics: Metrics, log: Log) {
    this.#metrics = metrics;
    this.#log = log;
  }

  requested({ lane, outcome, tookMs, texts, tokens }: EndedRequest): void {
    this.#metrics.embeddingRequested({ lane, outcome, tookMs });
    this.#sum.requests++;
    if (outcome === 'ok') {
      this.#metrics.embedded({ lane, texts, tokens });
      this.#sum.texts += texts;
      this.#sum.tokens += tokens;
    } else this.#sum.failed++;
    this.#timer ??= withoutSpan(() => setTimeout(() => this.flush(), LOG_EVERY_MS).unref());
  }

  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#sum.requests === 0) return;
    this.#log.info(this.#sum, 'embedding API used');
    this.#sum = { requests: 0, failed: 0, texts: 0, tokens: 0 };
  }
}
