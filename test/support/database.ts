import { createHash } from 'node:crypto';
import { existsSync, globSync, openAsBlob, readFileSync } from 'node:fs';
import { mkdir, rename, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { PGlite } from '@electric-sql/pglite';
import { drizzle } from 'drizzle-orm/pglite';
import { migrate } from 'drizzle-orm/pglite/migrator';
import { openDatabase, type MigratedDatabase } from '../../src/platform/database/database.ts';
import { MIGRATIONS } from '../../src/platform/database/migrations.ts';

const CACHE = path.resolve(import.meta.dirname, '../../node_modules/.cache/switchboard');

/** Opens an embedded database in memory with all tables and no rows. */
export const openTestDatabase = async (): Promise<MigratedDatabase> =>
  openDatabase(undefined, await openAsBlob(await template()));

/**
 * Returns the archive of a migrated database, which is made once: making one takes four times the processor time of copying it. It is
 * kept until the migrations or the dependencies change.
 */
export async function template(): Promise<string> {
  const hash = createHash('sha256');
  const lockFile = path.join(path.dirname(MIGRATIONS), 'package-lock.json');
  for (const source of [lockFile, ...globSync(`${MIGRATIONS}/*.sql`).sort()])
    hash.update(readFileSync(source));
  const file = path.join(CACHE, `pglite-${hash.digest('hex').slice(0, 16)}.tar`);
  if (!existsSync(file)) await createTemplate(file);
  return file;
}

async function createTemplate(file: string): Promise<void> {
  const client = await PGlite.create();
  await migrate(drizzle(client), { migrationsFolder: MIGRATIONS });
  const archive = await client.dumpDataDir('none');
  await client.close();
  await mkdir(CACHE, { recursive: true });
  // Renamed when whole: test runs may begin at the same time.
  const unfinished = `${file}.${process.pid}`;
  await writeFile(unfinished, archive.stream());
  await rename(unfinished, file);
}
