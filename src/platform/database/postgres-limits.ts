/** Bounds on what a process takes of a Postgres server. A time of 0 leaves it to the server's own setting. */
export interface PostgresLimits {
  /** Connections of one process. */
  readonly poolSize: number;
  /** The time that connecting, or waiting for a free connection of the pool, may take. */
  readonly connectTimeoutMs: number;
  readonly statementTimeoutMs: number;
  /** After this long without a statement the server ends a transaction, whose locks others may wait for. */
  readonly idleInTransactionTimeoutMs: number;
}

export const DEFAULT_POSTGRES_LIMITS: PostgresLimits = {
  poolSize: 10,
  connectTimeoutMs: 5_000,
  statementTimeoutMs: 15_000,
  idleInTransactionTimeoutMs: 60_000,
};
