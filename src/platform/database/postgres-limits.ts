/** Limits on a process's use of a Postgres server. A time of 0 leaves it to the server's own setting. */
export interface PostgresLimits {
  /** The maximum number of connections per process. */
  readonly poolSize: number;
  /** The timeout for connecting or waiting for a free connection. */
  readonly connectTimeoutMs: number;
  readonly statementTimeoutMs: number;
  /** The server ends a transaction that is idle for this long, because others may wait for its locks. */
  readonly idleInTransactionTimeoutMs: number;
}

export const DEFAULT_POSTGRES_LIMITS: PostgresLimits = {
  poolSize: 10,
  connectTimeoutMs: 5_000,
  statementTimeoutMs: 15_000,
  idleInTransactionTimeoutMs: 60_000,
};
