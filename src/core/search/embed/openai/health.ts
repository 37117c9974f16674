import type { Log } from '../../../../platform/telemetry/log.ts';
import { withoutSpan } from '../../../../platform/telemetry/tracing.ts';
import { EmbeddingFailure } from './failure.ts';
import type { EmbeddingLimits } from './limits.ts';

interface HealthParts {
  /** One request to see whether the API works. @throws EmbeddingFailure */
  readonly trial: () => Promise<unknown>;
  /** Called after each trial that got its vector. */
  readonly onWorking: () => void;
  readonly limits: EmbeddingLimits;
  readonly log: Log;
}

/**
 * What is known of the embedding API at the moment, for searches and for imports apart: it may be too slow for the one and
 * well enough for the other. After any failure a trial follows in the background, later and later, until one gets its
 * vector; no search has to be the one that finds out.
 */
export class Health {
  readonly #parts: HealthParts;
  #query: EmbeddingFailure | undefined;
  #bulk: EmbeddingFailure | undefined;
  #queryFailures = 0;
  #changes = 0;
  #timer: NodeJS.Timeout | undefined;
  #trialMs: number;
  #trialling: Promise<void> | undefined;
  #closed = false;
  /** What the log says of it. */
  #reported: string | undefined;

  constructor(parts: HealthParts) {
    this.#parts = parts;
    this.#trialMs = parts.limits.firstTrialMs;
  }

  /** Grows whenever a search would get another answer because of the API's state. */
  get changes(): number {
    return this.#changes;
  }

  /** In a few words that may be shown to anybody; undefined while all is well. */
  get degraded(): string | undefined {
    if (this.#query) return `${this.#query.inWords}: searching by keyword only`;
    if (this.#bulk) return `${this.#bulk.inWords}: new texts get no vectors for now`;
    return undefined;
  }

  /** Why queries are not sent now: several in a row have failed. */
  get queriesHeldBack(): EmbeddingFailure | undefined {
    return this.#query && this.#queryFailures >= this.#parts.limits.queryFailures ? this.#query : undefined;
  }

  /** Why texts of imports are not sent now. */
  get bulkHeldBack(): EmbeddingFailure | undefined {
    return this.#bulk;
  }

  querySucceeded(): void {
    this.#queryFailures = 0;
    this.#set({ query: undefined });
  }

  queryFailed(failure: EmbeddingFailure): void {
    if (failure.kind === 'other_model') return this.#otherModel(failure);
    // One query that is refused says nothing of the others, unless the trial is refused as well.
    if (failure.kind !== 'input_refused') {
      this.#queryFailures++;
      this.#set({ query: failure });
    }
    this.#schedule(failure);
  }

  bulkFailed(failure: EmbeddingFailure): void {
    if (failure.kind === 'other_model') return this.#otherModel(failure);
    this.#set({ bulk: failure });
    this.#schedule(failure);
  }

  /** Nothing can be embedded: what the start finds when the API is down. */
  allFailed(failure: EmbeddingFailure): void {
    this.#queryFailures = this.#parts.limits.queryFailures;
    this.#set({ query: failure, bulk: failure });
    this.#schedule(failure);
  }

  /** Nobody is to get vectors until it is clear which model there is: the trial is not put off. */
  #otherModel(failure: EmbeddingFailure): void {
    this.#queryFailures = this.#parts.limits.queryFailures;
    this.#set({ query: failure, bulk: failure });
    this.#schedule(failure, 0);
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    await this.#trialling;
  }

  #schedule(failure: EmbeddingFailure, atOnceMs?: number): void {
    if (this.#closed || this.#timer || this.#trialling) return;
    const { maxTrialMs } = this.#parts.limits;
    const waitMs = atOnceMs ?? Math.min(Math.max(this.#trialMs, failure.retryAfterMs ?? 0), maxTrialMs);
    if (atOnceMs === undefined) this.#trialMs = Math.min(this.#trialMs * 2, maxTrialMs);
    this.#timer = withoutSpan(() =>
      setTimeout(() => {
        this.#timer = undefined;
        this.#trialling = this.#try().finally(() => {
          this.#trialling = undefined;
          const left = this.#query ?? this.#bulk;
          if (left) this.#schedule(left);
          else this.#trialMs = this.#parts.limits.firstTrialMs;
        });
      }, waitMs),
    );
    this.#timer.unref();
  }

  async #try(): Promise<void> {
    const { trial, onWorking, limits } = this.#parts;
    const startedAt = performance.now();
    try {
      await trial();
      const isQuick = performance.now() - startedAt <= limits.queryWaitMs;
      if (isQuick) this.#queryFailures = 0;
      this.#set({
        bulk: undefined,
        query: isQuick ? undefined : this.#query && new EmbeddingFailure('timeout'),
      });
      onWorking();
    } catch (error) {
      const failure =
        error instanceof EmbeddingFailure ? error : new EmbeddingFailure('held_back', { cause: error });
      if (failure.kind !== 'closed') this.allFailed(failure);
    }
  }

  #set(now: { query?: EmbeddingFailure | undefined; bulk?: EmbeddingFailure | undefined }): void {
    const before = this.degraded;
    if ('query' in now) this.#query = now.query;
    if ('bulk' in now) this.#bulk = now.bulk;
    if (this.degraded !== before) this.#changes++;
    this.#report(now.query ?? now.bulk);
  }

  /** An outage and its end, each once; a query now and then that is too slow would fill the log. */
  #report(failure: EmbeddingFailure | undefined): void {
    const { degraded } = this;
    const { log } = this.#parts;
    if (degraded === undefined && this.#reported !== undefined) {
      this.#reported = undefined;
      log.info('the embedding API works again');
    } else if (failure && degraded !== this.#reported && (this.#bulk ?? this.queriesHeldBack)) {
      this.#reported = degraded;
      log.warn({ err: failure }, degraded);
    }
  }
}
