import { mkdir, stat } from 'node:fs/promises';
import path from 'node:path';
import { ConfigError, type Config } from './config/index.ts';
import { KeyFileError, WrongKeys } from './core/identity/vault/open.ts';
import { openDatabase, type OpenDatabase } from './platform/database/database.ts';
import type { Log } from './platform/telemetry/log.ts';
import { DatabaseUnreachable, openPostgres } from './platform/database/postgres.ts';

/** Returns the path of the control socket, which is also the lock of the data folder. */
export const controlSocketOf = (dataDir: string): string => path.join(dataDir, 'control.sock');

/**
 * Opens the configured database and applies pending migrations.
 * @throws ConfigError if the Postgres of DATABASE_URL cannot be reached
 */
export async function openConfigured(
  { database: { url, limits }, dataDir }: Config,
  log?: Log,
): Promise<OpenDatabase> {
  if (url === undefined) return openDatabase(dataDir);
  return reaching(openPostgres(url, limits, log));
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
