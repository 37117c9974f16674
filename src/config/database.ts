import { z } from 'zod';
import { ConfigError } from './error.ts';
import { DEFAULT_POSTGRES_LIMITS, type PostgresLimits } from '../platform/database/postgres-limits.ts';

/** A whole number, from text. */
const within = (smallest: number, largest: number) => (text: string, context: z.RefinementCtx<string>) => {
  const value = Number(text);
  if (/^\d{1,9}$/.test(text) && value >= smallest && value <= largest) return value;
  context.addIssue({ code: 'custom', message: `must be a whole number from ${smallest} to ${largest}` });
  return z.NEVER;
};
const HOUR_MS = 3_600_000;

export const databaseEnvironment = {
  DATABASE_URL: z
    .url({ protocol: /^postgres(ql)?$/, error: 'must be a postgres:// or postgresql:// URL' })
    .regex(/^([^%]|%[\da-f]{2})*$/i, 'must write a % that is not an escape as %25')
    .optional(),
  DATABASE_POOL_SIZE: z.string().transform(within(1, 1000)).optional(),
  DATABASE_CONNECT_TIMEOUT_MS: z.string().transform(within(1, HOUR_MS)).optional(),
  DATABASE_STATEMENT_TIMEOUT_MS: z.string().transform(within(0, HOUR_MS)).optional(),
  DATABASE_IDLE_IN_TRANSACTION_TIMEOUT_MS: z.string().transform(within(0, HOUR_MS)).optional(),
};
type Settings = z.output<z.ZodObject<typeof databaseEnvironment>>;

const LIMITS = {
  poolSize: 'DATABASE_POOL_SIZE',
  connectTimeoutMs: 'DATABASE_CONNECT_TIMEOUT_MS',
  statementTimeoutMs: 'DATABASE_STATEMENT_TIMEOUT_MS',
  idleInTransactionTimeoutMs: 'DATABASE_IDLE_IN_TRANSACTION_TIMEOUT_MS',
} as const;

/** @throws ConfigError for a limit of a Postgres that is not there. */
export function readPostgresLimits(settings: Settings): PostgresLimits {
  const limits = { ...DEFAULT_POSTGRES_LIMITS };
  for (const [limit, name] of Object.entries(LIMITS) as [keyof PostgresLimits, keyof Settings][]) {
    const value = settings[name];
    if (typeof value !== 'number') continue;
    if (settings.DATABASE_URL === undefined)
      throw new ConfigError(`${name}: must be set together with DATABASE_URL: it is for Postgres only`);
    limits[limit] = value;
  }
  return limits;
}
