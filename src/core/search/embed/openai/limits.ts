/** How long and how much the embedding API is asked. Times in milliseconds. */
export interface EmbeddingLimits {
  /** A search waits this long for its query's vector, then answers from keywords: within a second in all. */
  readonly queryWaitMs: number;
  /** An answer that comes later is kept for the next search with that query. */
  readonly queryLimitMs: number;
  /** Queries in a row that fail until the next ones no longer wait. */
  readonly queryFailures: number;
  readonly bulkLimitMs: number;
  readonly bulkAttempts: number;
  /** Requests of imports at a time, and texts in each. */
  readonly bulkRequests: number;
  readonly bulkTexts: number;
  /** The wait before the second attempt; doubled for each further one. */
  readonly firstBackOffMs: number;
  readonly maxBackOffMs: number;
  /** A longer `Retry-After` is an outage for an import, not a wait. */
  readonly maxRetryAfterMs: number;
  /** A request on its own at the start and while the API fails, to see whether it works. */
  readonly trialLimitMs: number;
  /** The wait before the first trial; doubled after each that fails. */
  readonly firstTrialMs: number;
  readonly maxTrialMs: number;
  /**
   * Between two requests of queries that carry the probe (about 15 tokens), to see that the model is still the same one: none is
   * sent while nobody asks. Requests of imports all carry it, as their vectors are kept.
   */
  readonly verifyEveryMs: number;
  /** Trials in a row that must find the same other model before all vectors are made anew with it. */
  readonly otherModelTrials: number;
}

export const EMBEDDING_LIMITS: EmbeddingLimits = {
  queryWaitMs: 650,
  queryLimitMs: 5_000,
  queryFailures: 3,
  bulkLimitMs: 30_000,
  bulkAttempts: 4,
  bulkRequests: 4,
  bulkTexts: 64,
  firstBackOffMs: 500,
  maxBackOffMs: 8_000,
  maxRetryAfterMs: 60_000,
  trialLimitMs: 3_000,
  firstTrialMs: 5_000,
  maxTrialMs: 60_000,
  verifyEveryMs: 5 * 60_000,
  otherModelTrials: 3,
};
