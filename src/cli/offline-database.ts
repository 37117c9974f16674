import { existsSync } from 'node:fs';
import { createServer } from 'node:http';
import { ConfigError, type Config } from '../config/index.ts';
import {
  isSealed,
  KeyFileError,
  KeyFileMissing,
  keyIdOfCanary,
  requireKeys,
  WrongKeys,
} from '../core/identity/vault/open.ts';
import { controlSocketOf, hasDatabase } from '../platform/database/data-folder.ts';
import { openDatabase, restoreDatabase, rows, type Database } from '../platform/database/database.ts';
import { readDump } from '../platform/database/dump.ts';
import { migrationState, type Migrated } from '../platform/database/migrations.ts';
import { migratePostgres, restorePostgres } from '../platform/database/postgres.ts';
import { closeServer, listenExclusively, SocketInUse } from '../platform/server-lifecycle.ts';
import { openLog } from '../platform/telemetry/log.ts';
import { writeWhole } from '../platform/database/temp-path.ts';
import { makeDataDir, reaching } from '../stores.ts';

/** Works directly on the database, without a server. All functions may throw ConfigError. */

/** Applies pending migrations. On Postgres, servers may run meanwhile; the embedded database must not be in use. */
export async function migrateDatabase(config: Config): Promise<Migrated> {
  if (config.database.url !== undefined)
    return reaching(migratePostgres(config.database.url, config.database.limits));
  await using _folder = await holdDataDir(
    config,
    'It applied its migrations when it started. To apply newer ones, stop it first.',
  );
  const database = await openDatabase(config.dataDir);
  await database.close();
  return database.migrated;
}

export interface Transferred {
  readonly file: string;
  /** The id of the vault key, which is never in the file. Undefined: nothing is encrypted. */
  readonly vaultKey: string | undefined;
  /** The place where this installation keeps the vault key. */
  readonly keptIn: string;
}

/**
 * Writes the embedded database to a file. Only one process can use that database, so no server may be running.
 * @param mayReplace overwrites an existing file
 */
export async function dumpDatabase(
  config: Config,
  file: string,
  { mayReplace = false }: { readonly mayReplace?: boolean } = {},
): Promise<Transferred> {
  if (config.database.url !== undefined)
    throw new ConfigError(
      `DATABASE_URL: dump Postgres with its own tool: pg_dump --inserts --no-owner --no-privileges --no-unlogged-table-data -d "$DATABASE_URL" -f ${file}`,
    );
  if (!hasDatabase(config.dataDir))
    throw new Error(
      `There is no database in ${config.dataDir}. Set SWITCHBOARD_DATA_DIR to the same folder as your server.`,
    );
  if (!mayReplace && existsSync(file))
    throw new Error(
      `${file} already exists. Nothing was written. Choose another name, or use --force to overwrite it.`,
    );
  await using opened = new AsyncDisposableStack();
  opened.use(await holdDataDir(config, 'Stop the server first: it writes its counters when it stops.'));
  const database = await openDatabase(config.dataDir);
  opened.defer(() => database.close());
  const { db, migrated } = database;
  if (migrated.unknown > 0) throw new Error(LATER_VERSION);
  await writeWhole(file, await database.dump());
  const vaultKey = (await isSealed(db)) ? await keyIdOfCanary(db) : undefined;
  return { file, vaultKey, keptIn: keySource(config) };
}

/** Creates a new database from a dump. Creates nothing if the vault key is missing. */
export async function restoreFile(config: Config, file: string): Promise<Transferred> {
  const dump = await readDump(file);
  const keys = { config: config.identity, dataDir: config.dataDir, log: openLog(config.log) };
  const approve = async (db: Database) => {
    const { applied, unknown } = await migrationState(statement => rows(db, statement));
    if (applied === 0)
      throw new Error(`${file} does not contain a Switchboard database. Nothing was restored.`);
    if (unknown > 0) throw new Error(`${LATER_VERSION} Nothing was restored.`);
    return requireKeys({ db, ...keys }).catch(async (error: unknown) => {
      throw isAboutKeys(error) ? withoutKey(config, await keyIdOfCanary(db), error) : error;
    });
  };
  if (config.database.url !== undefined) {
    const restored = restorePostgres(config.database.url, dump, approve, config.database.limits);
    return { file, vaultKey: await reaching(restored), keptIn: keySource(config) };
  }
  await using _folder = await holdDataDir(
    config,
    'A restore creates a new database: set SWITCHBOARD_DATA_DIR to a new folder.',
  );
  if (hasDatabase(config.dataDir))
    throw new Error(
      `${config.dataDir} already contains a database. Nothing was restored. Set SWITCHBOARD_DATA_DIR to a new folder.`,
    );
  return { file, vaultKey: await restoreDatabase(config.dataDir, dump, approve), keptIn: keySource(config) };
}

const LATER_VERSION =
  'A later version has changed this database in a way that this version does not know. Use the later version.';

const isAboutKeys = (error: unknown) => error instanceof WrongKeys || error instanceof KeyFileError;

function withoutKey({ identity, dataDir }: Config, keyId: string, error: unknown): ConfigError {
  const needed = `The dump needs the vault key \`${keyId}\``;
  if (identity.keks !== undefined)
    return new ConfigError(
      `${needed}, which is missing or different in SWITCHBOARD_KEKS. Set it to the original value. Nothing was restored.`,
    );
  const isUnusable = error instanceof KeyFileError && !(error instanceof KeyFileMissing);
  const detail = isUnusable ? ` ${error.message}.` : '';
  return new ConfigError(
    `${needed}.${detail} Set SWITCHBOARD_KEKS to it, or copy vault.key into ${dataDir}. Nothing was restored.`,
  );
}

const keySource = ({ identity, dataDir }: Config) =>
  identity.keks === undefined ? `${dataDir}/vault.key` : 'SWITCHBOARD_KEKS';

/**
 * Locks the data folder; commands that try to use it are told why.
 * @param advice what to do if a server is running
 */
async function holdDataDir({ dataDir }: Config, advice: string): Promise<AsyncDisposable> {
  await makeDataDir(dataDir);
  const detail =
    'A migration, dump or restore is running on this data folder. Try again when it has finished.';
  const server = createServer((_request, response) => {
    response.writeHead(503, { 'content-type': 'application/json' }).end(JSON.stringify({ detail }));
  });
  try {
    await listenExclusively(server, controlSocketOf(dataDir));
  } catch (error) {
    if (!(error instanceof SocketInUse)) throw error;
    throw new Error(`A server is running on ${dataDir}. ${advice}`, { cause: error });
  }
  return {
    [Symbol.asyncDispose]: () => closeServer(server),
  };
}
