import { createServer } from 'node:http';
import { ConfigError, type Config } from '../config/index.ts';
import {
  isSealed,
  KeyFileError,
  keyIdOfCanary,
  requireKeys,
  WrongKeys,
} from '../core/identity/vault/open.ts';
import {
  hasDatabase,
  openDatabase,
  rows,
  type Database,
  type OpenDatabase,
} from '../platform/database/database.ts';
import { ImportRefused, rowsIn, type Header, type OnRows } from '../platform/database/dump/format.ts';
import { openDump, readDump } from '../platform/database/dump/read.ts';
import { writeDump } from '../platform/database/dump/write.ts';
import { listenExclusively, SocketInUse } from '../platform/exclusive-socket.ts';
import { closeServer } from '../platform/deferred-server.ts';
import { createLog } from '../platform/telemetry/log.ts';
import { migrationState, type Migrated } from '../platform/database/migrations.ts';
import { packageVersion } from '../platform/package-version.ts';
import { connectPostgres, migratePostgres, otherSessions } from '../platform/database/postgres.ts';
import { controlSocketOf, makeDataDir, openConfigured, reaching } from '../stores.ts';

/** Work on the database itself; nothing else of Switchboard runs in this process. Each may throw ConfigError. */

/** Applies the migrations that are missing. On Postgres servers may run meanwhile; on the embedded database none may. */
export async function migrateDatabase(config: Config): Promise<Migrated> {
  if (config.database.url !== undefined)
    return reaching(migratePostgres(config.database.url, config.database.limits));
  await using _folder = await holdDataDir(
    config,
    'Its server applied the migrations of its version at its start.',
  );
  const database = await openDatabase(config.dataDir);
  await database.close();
  return database.migrated;
}

export interface Transferred {
  readonly file: string;
  readonly header: Header;
  readonly rows: number;
  /** The id of the vault's key, without which nothing sealed can be read: it is never in the file. Undefined: nothing is sealed. */
  readonly vaultKey: string | undefined;
  /** Where that key is kept here. */
  readonly keptIn: string;
  /** Connections of other processes to the same database: what these write from then on is not in the file. */
  readonly others: number;
}

/**
 * Writes the whole database to a file, as of one moment. Of Postgres while servers run, as a dump; the embedded database
 * belongs to one process.
 */
export async function exportDatabase(config: Config, file: string, onRows?: OnRows): Promise<Transferred> {
  await using opened = new AsyncDisposableStack();
  if (config.database.url === undefined) {
    if (!hasDatabase(config.dataDir))
      throw new Error(
        `There is no database in ${config.dataDir}: nothing to export. Set SWITCHBOARD_DATA_DIR (or DATABASE_URL) as your server has it.`,
      );
    opened.use(await holdDataDir(config, 'What it has counted is written at its stop.'));
  }
  const database = await openAsItIs(config);
  opened.defer(() => database.close());
  const { db } = database;
  const { latest } = await requireCurrent(db);
  const about = { version: await packageVersion(), migration: latest };
  const look = async (tx: Database) => ({
    vaultKey: (await isSealed(tx)) ? await keyIdOfCanary(tx) : undefined,
    others: config.database.url === undefined ? 0 : await otherSessions(tx),
  });
  const { header, seen } = await writeDump(db, file, about, look, onRows);
  return { file, header, rows: rowsIn(header), keptIn: keySource(config), ...seen };
}

/** Fills a new database with all that such a file has, or leaves it empty. Refused without the vault's key. */
export async function importDatabase(config: Config, file: string, onRows?: OnRows): Promise<Transferred> {
  const dump = await openDump(file);
  await using opened = new AsyncDisposableStack();
  opened.defer(async () => void (await dump.lines.return(undefined)));
  if (config.database.url === undefined)
    opened.use(await holdDataDir(config, 'An import goes into a new database.'));
  const database = await openConfigured(config);
  opened.defer(() => database.close());
  const { db } = database;
  const { latest } = await requireCurrent(db);
  const { header } = dump;
  if (header.migration !== latest)
    throw new ImportRefused(
      `${file} was exported at ${header.migration} (version ${header.version}), and this version's database is at ${latest}: nothing was imported. Use the same version for both.`,
    );
  const keys = { config: config.identity, dataDir: config.dataDir, log: createLog(config.log.level) };
  const approve = (tx: Database) =>
    requireKeys({ db: tx, ...keys }).catch(async (error: unknown) => {
      throw isAboutKeys(error) ? withoutKey(config, file, await keyIdOfCanary(tx), error) : error;
    });
  const vaultKey = await readDump(db, dump, approve, onRows);
  return { file, header, rows: rowsIn(header), vaultKey, keptIn: keySource(config), others: 0 };
}

const isAboutKeys = (error: unknown) => error instanceof WrongKeys || error instanceof KeyFileError;

function withoutKey(config: Config, file: string, keyId: string, error: unknown): ConfigError {
  const detail = error instanceof KeyFileError ? ` (${error.message})` : '';
  return new ConfigError(
    `SWITCHBOARD_KEKS: the vault in ${file} was sealed with a key ${JSON.stringify(keyId)} that is not the one in ${keySource(config)}${detail}. Nothing was imported. Take the key along: it is SWITCHBOARD_KEKS where the file comes from, or else the text of vault.key in its data folder.`,
  );
}

const keySource = ({ identity, dataDir }: Config) =>
  identity.keks === undefined ? `${dataDir}/vault.key` : 'SWITCHBOARD_KEKS';

/** Without applying migrations on Postgres: others may be working there. */
async function openAsItIs(config: Config): Promise<OpenDatabase> {
  if (config.database.url === undefined) return openDatabase(config.dataDir);
  return reaching(connectPostgres(config.database.url, config.database.limits));
}

async function requireCurrent(db: Database) {
  const state = await migrationState(statement => rows(db, statement));
  if (state.unknown > 0)
    throw new Error(
      'A later version has changed this database in ways that this one does not know. Use that version.',
    );
  if (state.missing.length > 0)
    throw new Error(`The database lacks ${state.missing.join(', ')}: run switchboard migrate first.`);
  return state;
}

/** Nothing else may use the data folder meanwhile; commands that try are told so. */
async function holdDataDir({ dataDir }: Config, why: string): Promise<AsyncDisposable> {
  await makeDataDir(dataDir);
  const detail =
    'A migration, an export or an import is at work on this data folder. Try again once it has ended.';
  const server = createServer((_request, response) => {
    response.writeHead(503, { 'content-type': 'application/json' }).end(JSON.stringify({ detail }));
  });
  try {
    await listenExclusively(server, controlSocketOf(dataDir));
  } catch (error) {
    if (!(error instanceof SocketInUse)) throw error;
    throw new Error(
      `A server is running on ${dataDir}, and the embedded database belongs to one process. ${why} Stop it first.`,
      { cause: error },
    );
  }
  return {
    [Symbol.asyncDispose]: () => closeServer(server),
  };
}
