import { mkdir, stat } from 'node:fs/promises';
import { ConfigError, type Config } from './config/index.ts';
import { KeyFileError, WrongKeys } from './core/identity/vault/open.ts';
import { openDatabase, type Database, type OpenDatabase } from './platform/database/database.ts';
import { openFilesLimit } from './platform/open-files.ts';
import type { Log } from './platform/telemetry/log.ts';
import { connectionsAllowed, DatabaseUnreachable, openPostgres } from './platform/database/postgres.ts';

/**
 * Opens the configured database and applies pending migrations.
 * @param signal ends the wait for Postgres
 * @throws ConfigError if the Postgres of DATABASE_URL cannot be reached
 */
export async function openConfigured(
  { database: { url, limits }, dataDir }: Config,
  log?: Log,
  signal?: AbortSignal,
): Promise<OpenDatabase> {
  if (url === undefined) return openDatabase(dataDir);
  return reaching(openPostgres(url, limits, log, signal));
}

/** @throws ConfigError if the Postgres of DATABASE_URL cannot be reached */
export async function reaching<T>(opened: Promise<T>): Promise<T> {
  try {
    return await opened;
  } catch (error) {
    if (!(error instanceof DatabaseUnreachable)) throw error;
    throw new ConfigError(`DATABASE_URL: cannot connect: ${error.message}`);
  }
}

/** Returns a rejection handler that names the setting with the wrong keys. */
export const explainKeys = (config: Config) => (error: unknown) => {
  const source = config.identity.keks === undefined ? `vault.key in ${config.dataDir}` : 'SWITCHBOARD_KEKS';
  if (error instanceof WrongKeys) throw new ConfigError(`${source}: ${error.message}`);
  if (error instanceof KeyFileError) throw new ConfigError(`SWITCHBOARD_DATA_DIR: ${error.message}`);
  throw error;
};

const WHY_NO_FOLDER: Readonly<Record<string, string>> = {
  ENOENT: 'the parent folder does not exist',
  EEXIST: 'it is a file',
  ENOTDIR: 'the parent is a file',
};

/**
 * Creates the data folder if it does not exist. Parents are not created, so that a mistyped path fails. (A
 * recursive mkdir below /proc would also never return.)
 * @throws ConfigError
 */
export async function makeDataDir(folder: string): Promise<void> {
  try {
    await mkdir(folder, { mode: 0o700 });
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    if (code === 'EEXIST' && (await stat(folder)).isDirectory()) return;
    const reason = WHY_NO_FOLDER[String(code)] ?? String(code);
    throw new ConfigError(`SWITCHBOARD_DATA_DIR: ${folder} cannot be created: ${reason}`);
  }
}

/** Warns of settings that nothing reads, and of a limit of open files that the open streams may exceed. */
export function warnOfSettings({ unknownVariables, proxy: { maxStreams } }: Config, log: Log): void {
  for (const variable of unknownVariables) log.warn(variable, 'ignored an unknown environment variable');
  const openFiles = openFilesLimit();
  if (openFiles !== undefined && openFiles < 2 * maxStreams)
    log.warn(
      { openFiles, SWITCHBOARD_MAX_STREAMS: maxStreams },
      'the limit of open files (ulimit -n) is too low: an open stream takes two',
    );
}

/** Warns if all workers together may need more connections than Postgres allows. */
export async function warnOfConnections(
  { http: { workers }, database: { url, limits } }: Config,
  db: Database,
  log: Log,
): Promise<void> {
  if (url === undefined) return;
  const allowed = await connectionsAllowed(db);
  // Each has its pool and a connection that listens for changes.
  const needed = workers * (limits.poolSize + 1);
  if (needed > allowed)
    log.warn(
      { needed, allowed },
      'Postgres allows too few connections: lower DATABASE_POOL_SIZE or SWITCHBOARD_WORKERS, or raise max_connections',
    );
}
