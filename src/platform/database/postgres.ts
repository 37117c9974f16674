import { Socket } from 'node:net';
import { sql } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/node-postgres';
import { migrate } from 'drizzle-orm/node-postgres/migrator';
import { Client, Pool, types, type ClientConfig, type PoolClient, type PoolConfig } from 'pg';
import type { Log } from '../telemetry/log.ts';
import { OutageLog, reasonOf } from '../telemetry/throttled-log.ts';
import { settledWithin } from '../time.ts';
import { restoreInto } from './dump.ts';
import {
  NoConnection,
  rows,
  type Database,
  type Hold,
  type MigratedDatabase,
  type OpenDatabase,
} from './database.ts';
import { MIGRATIONS, migrated, type Migrated } from './migrations.ts';
import { DEFAULT_POSTGRES_LIMITS, type PostgresLimits } from './postgres-limits.ts';

/** How long a start waits for another process that is migrating, or for the tables to be changed. */
const MIGRATION_LOCK_TIMEOUT_MS = 60_000;
/** Well below the idle timeouts of firewalls and load balancers, which drop connections silently. */
const IDLE_TIMEOUT_MS = 60_000;

const APPLICATION_NAME = 'switchboard';

/** Arbitrary but fixed, and different from all other locks (`hold`): advisory locks belong to a database. */
const MIGRATION_LOCK = 0x5b_0a_4d;

/** The database was unreachable at startup. The message gives the reason in one line, without the password. */
export class DatabaseUnreachable extends Error {
  override readonly name = 'DatabaseUnreachable';
}

/**
 * Connects to Postgres and applies the migrations; processes that start together wait for each other. The
 * pool connects on demand and reconnects after an outage: only queries during the outage fail (see
 * `isDatabaseUnavailable`). Parameters in the URL (`sslmode`, …) take precedence.
 * @param signal ends the wait and the migrations, with an error
 * @throws DatabaseUnreachable
 */
export async function openPostgres(
  url: string,
  given: Partial<PostgresLimits> = {},
  log?: Log,
  signal?: AbortSignal,
): Promise<MigratedDatabase> {
  const limits = { ...DEFAULT_POSTGRES_LIMITS, ...given };
  const report = await migratePostgres(url, limits, signal);
  return { ...openPool(url, limits, log), migrated: report };
}

function openPool(url: string, limits: PostgresLimits, log?: Log): OpenDatabase {
  const pool = new ReportingPool(log, {
    ...connection(url, limits),
    statement_timeout: limits.statementTimeoutMs,
    idle_in_transaction_session_timeout: limits.idleInTransactionTimeoutMs,
    max: limits.poolSize,
    idleTimeoutMillis: IDLE_TIMEOUT_MS,
  });
  // A lost connection rejects its query; without these listeners it would also end the process.
  pool.on('error', () => {});
  pool.on('connect', client => client.on('error', () => {}));
  return {
    db: drizzle(pool),
    hold: lock => hold(url, limits, lock),
    pool: () => ({
      busy: pool.totalCount - pool.idleCount,
      idle: pool.idleCount,
      waiting: pool.waitingCount,
    }),
    trouble: () => pool.trouble,
    close: () => pool.end(),
  };
}

/** Takes a lock on a separate connection, because a lock lives as long as its session. */
async function hold(url: string, limits: PostgresLimits, lock: number): Promise<Hold | undefined> {
  const client = new Client(connection(url, limits));
  const losing = new AbortController();
  const lose = (cause?: Error) =>
    losing.abort(new NoConnection('the connection with the lock was lost', { cause }));
  client.on('error', lose).on('end', lose);
  try {
    await client.connect();
    const tried = await client.query<{ held: boolean }>('select pg_try_advisory_lock($1) as held', [lock]);
    if (tried.rows[0]?.held) return { lost: losing.signal, [Symbol.asyncDispose]: () => client.end() };
  } catch (cause) {
    await client.end().catch(() => {});
    throw new NoConnection('no connection to the database', { cause });
  }
  await client.end();
  return undefined;
}

type Connected = (
  error: Error | undefined,
  client: PoolClient | undefined,
  done: (release?: unknown) => void,
) => void;

/**
 * A pool that tracks and logs once when it has no connection to give. A transaction takes its connection
 * outside a query, whose error would identify the database as the cause.
 */
class ReportingPool extends Pool {
  readonly #outage: OutageLog;

  constructor(log: Log | undefined, config: PoolConfig) {
    super(config);
    this.#outage = new OutageLog(log, 'database connection recovered');
  }

  get trouble(): string | undefined {
    return this.#outage.trouble;
  }

  override connect(): Promise<PoolClient>;
  override connect(callback: Connected): void;
  override connect(callback?: Connected): Promise<PoolClient> | void {
    if (callback)
      return super.connect((error, client, done) => {
        this.#tried(error);
        callback(error, client, done);
      });
    return super.connect().then(
      client => {
        this.#tried(undefined);
        return releasedIfFirstFails(client);
      },
      (cause: unknown) => {
        this.#tried(cause);
        throw new NoConnection('no connection to the database', { cause });
      },
    );
  }

  #tried(error: unknown): void {
    if (this.ending) return;
    if (error === undefined) this.#outage.succeeded();
    else this.#outage.failed('database unavailable', { reason: reasonOf(error) }, 'database unreachable');
  }
}

/** Drizzle never releases a connection on which `begin` failed; after ten of them the pool would stay empty. */
function releasedIfFirstFails(client: PoolClient): PoolClient {
  const query = client.query.bind(client) as (...args: unknown[]) => Promise<unknown>;
  Object.assign(client, {
    query: async (...args: unknown[]) => {
      Reflect.deleteProperty(client, 'query');
      try {
        return await query(...args);
      } catch (error) {
        client.release(error instanceof Error ? error : true);
        throw error;
      }
    },
  });
  return client;
}

/** Returns how many connections the server allows to roles other than superusers. */
export async function connectionsAllowed(db: Database): Promise<number> {
  const [server] = await rows<{ allowed: number }>(
    db,
    sql`select current_setting('max_connections')::int - sum(setting::int)::int as allowed from pg_settings
      where name in ('superuser_reserved_connections', 'reserved_connections')`,
  );
  return server?.allowed ?? Infinity;
}

/**
 * Applies pending migrations on one connection, because the lock lives as long as its session. Servers of
 * this or an older version may run meanwhile.
 * @param signal closes the connection, and so rolls back
 * @throws DatabaseUnreachable
 */
export async function migratePostgres(
  url: string,
  limits: PostgresLimits = DEFAULT_POSTGRES_LIMITS,
  signal?: AbortSignal,
): Promise<Migrated> {
  await using connected = await connect(url, limits, signal);
  const { client } = connected;
  await client.query(`set lock_timeout = ${MIGRATION_LOCK_TIMEOUT_MS}`);
  await client.query('select pg_advisory_lock($1)', [MIGRATION_LOCK]);
  const db = drizzle(client);
  return await migrated(
    statement => rows(db, statement),
    () => migrate(db, { migrationsFolder: MIGRATIONS }),
  );
}

/**
 * Fills an empty database from a dump of this or any earlier version, in one transaction.
 * @param approve checks the restored data; if it rejects, nothing is kept
 * @throws DatabaseUnreachable; Error for a database that has tables
 */
export async function restorePostgres<T>(
  url: string,
  dump: string,
  approve: (db: Database) => Promise<T>,
  limits: PostgresLimits = DEFAULT_POSTGRES_LIMITS,
): Promise<T> {
  await using connected = await connect(url, limits);
  const { client } = connected;
  const db = drizzle(client);
  // Keeps servers from migrating meanwhile.
  await client.query('begin');
  await client.query('select pg_advisory_xact_lock($1)', [MIGRATION_LOCK]);
  const [tables] = await rows<{ count: number }>(
    db,
    sql`select count(*) from pg_class where relkind = 'r' and relnamespace::regnamespace::text in ('public', 'drizzle')`,
  );
  if (tables?.count !== 0)
    throw new Error(
      'The database already has tables. Nothing was restored. Restore into a new database, before starting a server on it.',
    );
  await restoreInto(statements => client.query(statements), dump);
  const approved = await approve(db);
  await client.query('commit');
  return approved;
}

/**
 * Opens a single connection outside any pool, for long statements.
 * @param signal closes it, so that its statements fail here; on the server, one that waits for a lock ends with the wait
 */
async function connect(
  url: string,
  limits: PostgresLimits,
  signal?: AbortSignal,
): Promise<AsyncDisposable & { readonly client: Client }> {
  await using opened = new AsyncDisposableStack();
  try {
    // This already reads the files named in the URL (`sslrootcert`, …).
    const client = new Client({ ...connection(url, limits), stream: () => new Socket({ signal }) });
    client.on('error', () => {});
    await client.connect();
    opened.defer(() => client.end());
    // A role's own timeouts are meant for its usual statements.
    const set = client.query('set statement_timeout = 0; set lock_timeout = 0');
    // A pooler without a connection to Postgres lets one sign in.
    if (!(await settledWithin(set, limits.connectTimeoutMs)))
      throw new Error(`signed in, but no answer within ${limits.connectTimeoutMs} ms`);
    await set;
    const open = opened.move();
    return { client, [Symbol.asyncDispose]: () => open.disposeAsync() };
  } catch (error) {
    throw new DatabaseUnreachable(reasonOf(error), { cause: error });
  }
}

const connection = (url: string, { connectTimeoutMs }: PostgresLimits): ClientConfig => ({
  connectionString: url,
  connectionTimeoutMillis: connectTimeoutMs,
  application_name: APPLICATION_NAME,
  keepAlive: true,
  keepAliveInitialDelayMillis: 10_000,
  // UTC, like PGlite: otherwise `current_date` and the text of timestamps would depend on the server's settings.
  options: '-c TimeZone=UTC',
});

// The same types as PGlite: numbers while they are exact, a separate buffer instead of a view into Node's
// shared pool, text for instants.
const toInteger = (text: string) => {
  const number = Number(text);
  return Number.isSafeInteger(number) ? number : BigInt(text);
};
const toBytes = (text: string) => new Uint8Array(Buffer.from(text.slice(2), 'hex'));
// Set for the whole process: Drizzle gives each query its own parsers, which fall back to these and never to a pool's.
types.setTypeParser(types.builtins.INT8, toInteger);
types.setTypeParser(types.builtins.BYTEA, toBytes);
