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
import {
  hasDatabase,
  openDatabase,
  restoreDatabase,
  rows,
  type Database,
} from '../platform/database/database.ts';
import { readDump } from '../platform/database/dump.ts';
import { migrationState, type Migrated } from '../platform/database/migrations.ts';
import { migratePostgres, restorePostgres } from '../platform/database/postgres.ts';
import { closeServer, listenExclusively, SocketInUse } from '../platform/server-lifecycle.ts';
import { openLog } from '../platform/telemetry/log.ts';
import { writeWhole } from '../platform/database/temp-path.ts';
import { controlSocketOf, makeDataDir, reaching } from '../stores.ts';

/** Work on the database itself; nothing else of Switchboard runs in this process. Each may throw ConfigError. */

/** Applies the migrations that are missing. On Postgres servers may run meanwhile; on the embedded database none may. */
export async function migrateDatabase(config: Config): Promise<Migrated> {
  if (config.database.url !== undefined)
    return reaching(migratePostgres(config.database.url, config.database.limits));
  await using _folder = await holdDataDir(
    config,
    'Nothing to do: the running server has applied its migrations.',
  );
  const database = await openDatabase(config.dataDir);
  await database.close();
  return database.migrated;
}

export interface Transferred {
  readonly file: string;
  /** The id of the vault's key, without which nothing sealed can be read: it is never in the file. Undefined: nothing is sealed. */
  readonly vaultKey: string | undefined;
  /** Where that key is kept here. */
  readonly keptIn: string;
}

/**
 * Writes the whole embedded database to a file. It belongs to one process, so no server may run on it.
 * @param mayReplace writes over a file that exists
 */
export async function dumpDatabase(
  config: Config,
  file: string,
  { mayReplace = false }: { readonly mayReplace?: boolean } = {},
): Promise<Transferred> {
  if (config.database.url !== undefined)
    throw new ConfigError(
      `DATABASE_URL: a Postgres is dumped by its own tool: pg_dump --inserts --no-owner --no-privileges --no-unlogged-table-data -d "$DATABASE_URL" -f ${file}`,
    );
  if (!hasDatabase(config.dataDir))
    throw new Error(
      `There is no database in ${config.dataDir}: nothing to dump. Set SWITCHBOARD_DATA_DIR as your server has it.`,
    );
  if (!mayReplace && existsSync(file))
    throw new Error(
      `${file} exists already. Nothing was written. Choose another name, or give --force to replace it.`,
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

/** Makes a new database of such a file, or of one by pg_dump; nothing is made without the vault's key. */
export async function restoreFile(config: Config, file: string): Promise<Transferred> {
  const dump = await readDump(file);
  const keys = { config: config.identity, dataDir: config.dataDir, log: openLog(config.log) };
  const approve = async (db: Database) => {
    const { applied, unknown } = await migrationState(statement => rows(db, statement));
    if (applied === 0) throw new Error(`${file} holds no database of Switchboard. Nothing was restored.`);
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
    'A restore makes a new database: set SWITCHBOARD_DATA_DIR to a new folder.',
  );
  if (hasDatabase(config.dataDir))
    throw new Error(
      `${config.dataDir} has a database already. Nothing was restored. Set SWITCHBOARD_DATA_DIR to a new folder.`,
    );
  return { file, vaultKey: await restoreDatabase(config.dataDir, dump, approve), keptIn: keySource(config) };
}

const LATER_VERSION =
  'A later version has changed this database in ways that this one does not know. Use that version.';

const isAboutKeys = (error: unknown) => error instanceof WrongKeys || error instanceof KeyFileError;

function withoutKey({ identity, dataDir }: Config, keyId: string, error: unknown): ConfigError {
  const needed = `The dump needs the vault key \`${keyId}\``;
  if (identity.keks !== undefined)
    return new ConfigError(
      `${needed}, which is missing or different in SWITCHBOARD_KEKS. Set it as it was. Nothing was restored.`,
    );
  const isUnusable = error instanceof KeyFileError && !(error instanceof KeyFileMissing);
  const detail = isUnusable ? ` ${error.message}.` : '';
  return new ConfigError(
    `${needed}.${detail} Set SWITCHBOARD_KEKS to its value, or copy vault.key into ${dataDir}. Nothing was restored.`,
  );
}

const keySource = ({ identity, dataDir }: Config) =>
  identity.keks === undefined ? `${dataDir}/vault.key` : 'SWITCHBOARD_KEKS';

/**
 * Keeps everything else off the data folder meanwhile; commands that try are told so.
 * @param advice what to do where a server runs on it
 */
async function holdDataDir({ dataDir }: Config, advice: string): Promise<AsyncDisposable> {
  await makeDataDir(dataDir);
  const detail =
    'A migration, a dump or a restore is at work on this data folder. Try again once it has ended.';
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
