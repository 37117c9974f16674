import { z } from 'zod';
import { DEFAULT_POSTGRES_LIMITS, type PostgresLimits } from '../platform/database/postgres-limits.ts';
import { ConfigError, setting, wholeNumber, withoutStrayPercent } from './setting.ts';

const HOUR_MS = 3_600_000;
const LIMITS = {
  DATABASE_POOL_SIZE: 'poolSize',
  DATABASE_STATEMENT_TIMEOUT_MS: 'statementTimeoutMs',
  DATABASE_IDLE_IN_TRANSACTION_TIMEOUT_MS: 'idleInTransactionTimeoutMs',
  DATABASE_CONNECT_TIMEOUT_MS: 'connectTimeoutMs',
} as const;

const limit = (name: keyof typeof LIMITS, min: number, max: number, description: string) =>
  setting(wholeNumber(min, max).optional(), description, `\`${DEFAULT_POSTGRES_LIMITS[LIMITS[name]]}\``);

export const databaseSettings = {
  DATABASE_URL: setting(
    withoutStrayPercent(
      z.url({ protocol: /^postgres(ql)?$/, error: 'must be a postgres:// or postgresql:// URL' }),
    ).optional(),
    'Postgres (15 or later) instead of the embedded database: [operations/postgres.md](operations/postgres.md).',
  ),
  DATABASE_POOL_SIZE: limit(
    'DATABASE_POOL_SIZE',
    1,
    1000,
    'Maximum Postgres connections per process (1 to 1000).',
  ),
  DATABASE_STATEMENT_TIMEOUT_MS: limit(
    'DATABASE_STATEMENT_TIMEOUT_MS',
    0,
    HOUR_MS,
    'Timeout of a Postgres statement. 0 leaves it to the role or the server.',
  ),
  DATABASE_IDLE_IN_TRANSACTION_TIMEOUT_MS: limit(
    'DATABASE_IDLE_IN_TRANSACTION_TIMEOUT_MS',
    0,
    HOUR_MS,
    'Timeout of an idle Postgres transaction. 0 leaves it to the role or the server.',
  ),
  DATABASE_CONNECT_TIMEOUT_MS: limit(
    'DATABASE_CONNECT_TIMEOUT_MS',
    1,
    HOUR_MS,
    'Timeout for connecting to Postgres, for its first answer, and for a connection from the pool.',
  ),
};

export interface DatabaseConfig {
  /** Postgres used instead of the embedded database. The URL contains a password and must never reach a log or an error. */
  readonly url: string | undefined;
  readonly limits: PostgresLimits;
}

/** @throws ConfigError for a limit without DATABASE_URL */
export function readDatabase(settings: z.output<z.ZodObject<typeof databaseSettings>>): DatabaseConfig {
  const limits = { ...DEFAULT_POSTGRES_LIMITS };
  for (const [name, key] of Object.entries(LIMITS) as [keyof typeof LIMITS, keyof PostgresLimits][]) {
    const value = settings[name];
    if (value === undefined) continue;
    if (settings.DATABASE_URL === undefined)
      throw new ConfigError(`${name}: applies to Postgres only and requires DATABASE_URL`);
    limits[key] = value;
  }
  return { url: settings.DATABASE_URL, limits };
}
