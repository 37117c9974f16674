import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, rename } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { PGlite } from '@electric-sql/pglite';
import type { PgDatabase, PgQueryResultHKT } from 'drizzle-orm/pg-core';
import { drizzle } from 'drizzle-orm/pglite';
import { migrate } from 'drizzle-orm/pglite/migrator';

/** Drizzle over PGlite now and Postgres later: callers see only what both have. */
export type Database = PgDatabase<PgQueryResultHKT>;

export interface OpenDatabase {
  readonly db: Database;
  close(): Promise<void>;
}

/** One process uses the database, over the system's page cache: the usual 128 MB of buffers would only be a second copy. */
const START = [...PGlite.defaultStartParams, '-c', 'shared_buffers=16MB'];

const MIGRATIONS = fileURLToPath(new URL('../../drizzle', import.meta.url));

/**
 * Opens (and at first creates) the embedded Postgres in `dataDir/pglite` and applies the migrations.
 * The caller must hold the data folder's lock: PGlite has none of its own, and two processes corrupt a folder.
 * Pass no folder for a database in memory, for tests.
 */
export async function openDatabase(dataDir?: string): Promise<OpenDatabase> {
  const folder = dataDir === undefined ? undefined : path.join(dataDir, 'pglite');
  if (folder !== undefined && !existsSync(folder)) await initialise(folder);
  const client = await PGlite.create({
    ...(folder === undefined ? {} : { dataDir: folder }),
    startParams: START,
  });
  const db = drizzle(client);
  await migrate(db, { migrationsFolder: MIGRATIONS });
  return { db, close: () => client.close() };
}

/**
 * Runs initdb in a short-lived child: it takes over 100 MB that its process never gives back. It works in a folder of
 * its own, renamed when whole: a kill half-way leaves nothing that looks like a database, and a child that outlives the kill
 * disturbs nobody.
 */
async function initialise(target: string): Promise<void> {
  const folder = `${target}.new-${process.pid}`;
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const script = `import { PGlite } from '@electric-sql/pglite'; await (await PGlite.create(process.argv[1])).close();`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script, folder], {
    cwd: path.dirname(MIGRATIONS),
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let stderr = '';
  child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', resolve);
  });
  if (code !== 0)
    throw new Error(`Could not create the embedded database in ${target}: ${stderr.trim().slice(-500)}`);
  await rename(folder, target);
}
