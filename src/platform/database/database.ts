import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync } from 'node:fs';
import { rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { PGlite, type PGliteOptions } from '@electric-sql/pglite';
import type { Filesystem } from '@electric-sql/pglite/basefs';
import { DrizzleQueryError, type SQL } from 'drizzle-orm';
import type { PgDatabase, PgQueryResultHKT } from 'drizzle-orm/pg-core';
import { drizzle } from 'drizzle-orm/pglite';
import { migrate } from 'drizzle-orm/pglite/migrator';
import { databaseFolderOf } from './data-folder.ts';
import { keepBaseline } from '../wasm.ts';
import { asideOf } from './temp-path.ts';
import { dumpOf, restoreInto } from './dump.ts';
import { MIGRATIONS, migrated, type Migrated } from './migrations.ts';

/** Drizzle over the embedded PGlite or Postgres (`postgres.ts`): callers see only what both support. */
export type Database = PgDatabase<PgQueryResultHKT>;

export interface OpenDatabase {
  readonly db: Database;
  /**
   * Takes a lock that is exclusive across all processes on the database; returns undefined if another process has it.
   * @param lock a fixed number for each purpose
   * @throws NoConnection
   */
  readonly hold: (lock: number) => Promise<Hold | undefined>;
  /** Counts its connections; absent if it has none. */
  readonly pool?: () => { busy: number; idle: number; waiting: number };
  /** Returns why it is unavailable, in a few words; undefined if it is available. Absent if it cannot be unavailable. */
  readonly trouble?: () => string | undefined;
  close(): Promise<void>;
}

/** A database with a report of the migrations applied when it was opened. */
export interface MigratedDatabase extends OpenDatabase {
  readonly migrated: Migrated;
}

export interface EmbeddedDatabase extends MigratedDatabase {
  /** Returns all tables and rows as SQL, except caches. */
  dump(): Promise<string>;
}

/** A lock that is held until it is disposed of or its process dies. */
export interface Hold extends AsyncDisposable {
  /** Aborts when the lock is lost: another process may have it then. */
  readonly lost: AbortSignal;
}

/** One process uses the database, on top of the system's page cache: the usual 128 MB of buffers would only be a second copy. */
const BUFFERS = ['-c', 'shared_buffers=16MB'];
const START = [...PGlite.defaultStartParams, ...BUFFERS];

function start(options: PGliteOptions): Promise<PGlite> {
  keepBaseline();
  return PGlite.create({ ...options, startParams: START });
}

/**
 * Opens the embedded Postgres in `dataDir/pglite`, creating it if necessary, and applies the migrations. The caller must hold the
 * data folder's lock: PGlite has none, and two processes would corrupt the folder. Without a folder, the database is in memory, for
 * tests. The child that creates it is started before the first await, so that the caller can go on meanwhile.
 * @param memory the file system of an in-memory database, empty by default
 */
export async function openDatabase(dataDir?: string, memory?: Filesystem): Promise<EmbeddedDatabase> {
  const folder = dataDir === undefined ? undefined : databaseFolderOf(dataDir);
  if (folder !== undefined && !existsSync(folder)) await createWhole(folder, initialise);
  const client = await start({
    ...(folder === undefined ? {} : { dataDir: folder }),
    ...(memory === undefined ? {} : { fs: memory }),
  });
  const db = drizzle(client);
  const report = await migrated(
    statement => rows(db, statement),
    () => migrate(db, { migrationsFolder: MIGRATIONS }),
  );
  return {
    db,
    migrated: report,
    hold: heldHere(),
    dump: () => dumpOf(client),
    close: () => client.close(),
  };
}

/**
 * Creates the embedded database in an empty data folder from a dump of this or any earlier version. If the process is killed,
 * nothing that looks like a database remains. The caller must hold the data folder's lock.
 * @param approve checks the restored data; if it rejects, nothing is kept
 */
export async function restoreDatabase<T>(
  dataDir: string,
  dump: string,
  approve: (db: Database) => Promise<T>,
): Promise<T> {
  return createWhole(databaseFolderOf(dataDir), async folder => {
    await initialise(folder);
    await using client = await start({ dataDir: folder });
    await restoreInto(sql => client.exec(sql), dump);
    return await approve(drizzle(client));
  });
}

/** Creates locks within this process: the embedded database has only one. */
function heldHere(): OpenDatabase['hold'] {
  const held = new Set<number>();
  return lock => {
    if (held.has(lock)) return Promise.resolve(undefined);
    held.add(lock);
    const free = () => Promise.resolve(void held.delete(lock));
    return Promise.resolve({ lost: new AbortController().signal, [Symbol.asyncDispose]: free });
  };
}

/**
 * Creates a folder under a temporary name and renames it when it is complete. If the process is killed, nothing that looks
 * like a database remains, and a surviving child does no harm. Calls `make` before its first await.
 */
async function createWhole<T>(target: string, make: (folder: string) => Promise<T>): Promise<T> {
  const folder = asideOf(target);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  try {
    const made = await make(folder);
    await rename(folder, target);
    return made;
  } catch (error) {
    await rm(folder, { recursive: true, force: true });
    throw error;
  }
}

/** Its stdin closes when the parent dies; then it exits too. */
const INITDB = `
import { PGlite } from '@electric-sql/pglite';
process.stdin.on('close', () => process.exit(1)).resume();
try {
  await (await PGlite.create(JSON.parse(process.argv[1]))).close();
  process.exit();
} catch (error) {
  // Emscripten's errors have neither message nor stack; this one is ENOSPC.
  const reason = error.errno === 51 ? 'no space is left there' : (error.stack ?? 'error ' + error.errno);
  process.stderr.write(reason, () => process.exit(1));
}`;

/**
 * Runs initdb in a short-lived child, because it takes hundreds of megabytes that a process never gives back. It is over before
 * optimising its WebAssembly would pay: that took half as much memory again, and a third more processor time. The child is
 * detached from the terminal, so that Ctrl-C reaches only this process.
 */
async function initialise(folder: string): Promise<void> {
  const options: PGliteOptions = { dataDir: folder, startParams: START, initDbStartParams: BUFFERS };
  const script = ['--input-type=module', '-e', INITDB, JSON.stringify(options)];
  const child = spawn(process.execPath, ['--liftoff-only', ...script], {
    cwd: path.dirname(MIGRATIONS),
    stdio: ['pipe', 'ignore', 'pipe'],
    detached: true,
  });
  let stderr = '';
  child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
  // Rejects if the child could not be started.
  const [code, signal] = (await once(child, 'close')) as [number | null, NodeJS.Signals | null];
  if (code !== 0) {
    const reason = stderr.trim().slice(-500) || `initdb exited with ${signal ?? `exit code ${code}`}`;
    throw new Error(`Could not create the embedded database in ${folder}: ${reason}`);
  }
}

/**
 * Returns the rows of a statement that the query builder cannot express, also within a transaction. Both drivers return the
 * same types:
 * - int2, int4, float: number; int8 (so `count(*)`): number, or bigint beyond 2^53; numeric: string
 * - boolean, text, null unchanged; json, jsonb: parsed
 * - bytea: a Uint8Array with its own buffer
 * - timestamptz, timestamp, date, interval: Postgres' text, in UTC (`2026-01-02 03:04:05.678+00`), never a Date
 * - text[]: an array of strings; other arrays differ, so cast them in the statement (`to_json`)
 *
 * Parameters may be a Date (for timestamptz), a Uint8Array, a bigint; for jsonb an object in `sql.param()`, or JSON text.
 */
export async function rows<Row extends Record<string, unknown>>(
  db: Pick<Database, 'execute'>,
  statement: SQL,
): Promise<Row[]> {
  const result = (await db.execute(statement)) as { readonly rows: readonly Row[] };
  return [...result.rows];
}

/** Returns whether a row was refused because its key exists, the only constraint violation that callers expect. */
export const isUniqueViolation = (error: unknown): boolean =>
  causesOf(error).some(cause => cause.code === '23505');

/** No database connection was available. */
export class NoConnection extends Error {
  override readonly name = 'NoConnection';
}

/** SQLSTATE: connection lost, server stopping or starting, no connection left. */
const UNAVAILABLE = /^(08\w{3}|57P0[123]|53300)$/;
const UNREACHABLE = /^(ECONN(REFUSED|RESET|ABORTED)|E(HOST|NET)UNREACH|ETIMEDOUT|EPIPE|ENOTFOUND|EAI_AGAIN)$/;
/** Messages of pg without a code: a connection lost during a query, and a closed pool. */
const LOST = /^(Connection terminated|Client has encountered a connection error|Cannot use a pool after)/;

/**
 * Returns whether the database is currently unreachable, so that the same call may succeed later. A system error counts only
 * below a query's error: a connection refused by another server is unrelated.
 */
export function isDatabaseUnavailable(error: unknown): boolean {
  const chain = causesOf(error);
  const isOurs = chain.some(one => one instanceof DrizzleQueryError);
  return chain.some(
    one =>
      one instanceof NoConnection ||
      UNAVAILABLE.test(one.code ?? '') ||
      (isOurs && (UNREACHABLE.test(one.code ?? '') || LOST.test(one.message))),
  );
}

/** Returns fields for a log line. If the database is unavailable, which is logged elsewhere, statement and stack are omitted. */
export const whyFailed = (error: unknown): { readonly reason: string } | { readonly err: unknown } =>
  isDatabaseUnavailable(error) ? { reason: 'database unavailable' } : { err: error };

/** Drizzle wraps the error of a query, but not the error of starting a transaction. */
function causesOf(error: unknown): (Error & { readonly code?: string })[] {
  return error instanceof Error ? [error, ...causesOf(error.cause)] : [];
}
