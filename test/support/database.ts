import { createHash } from 'node:crypto';
import { existsSync, globSync, readdirSync, readFileSync } from 'node:fs';
import { mkdir, mkdtemp, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { PGlite } from '@electric-sql/pglite';
import { EmscriptenBuiltinFilesystem } from '@electric-sql/pglite/basefs';
import { drizzle } from 'drizzle-orm/pglite';
import { migrate } from 'drizzle-orm/pglite/migrator';
import { openDatabase, type MigratedDatabase } from '../../src/platform/database/database.ts';
import { MIGRATIONS } from '../../src/platform/database/migrations.ts';

const CACHE = path.resolve(import.meta.dirname, '../../node_modules/.cache/switchboard');

/** Opens an embedded database in memory with all tables and no rows. */
export const openTestDatabase = async (): Promise<MigratedDatabase> =>
  openDatabase(undefined, new CopyInMemory(await template()));

/**
 * Returns the folder of a migrated database, which is made once: making one takes many times the processor time of copying it.
 * It is kept until the migrations or the dependencies change.
 */
export async function template(): Promise<string> {
  const hash = createHash('sha256');
  const lockFile = path.join(path.dirname(MIGRATIONS), 'package-lock.json');
  for (const source of [lockFile, ...globSync(`${MIGRATIONS}/*.sql`).sort()])
    hash.update(readFileSync(source));
  const folder = path.join(CACHE, `pglite-${hash.digest('hex').slice(0, 16)}`);
  if (!existsSync(folder)) await createTemplate(folder);
  return folder;
}

async function createTemplate(folder: string): Promise<void> {
  await mkdir(CACHE, { recursive: true });
  const unfinished = await mkdtemp(path.join(CACHE, 'unfinished-'));
  const client = await PGlite.create(unfinished);
  await migrate(drizzle(client), { migrationsFolder: MIGRATIONS });
  await client.close();
  // Renamed when whole: test runs may begin at the same time. Another's is as good.
  await rename(unfinished, folder).catch(async (error: unknown) => {
    await rm(unfinished, { recursive: true });
    if (!existsSync(folder)) throw error;
  });
}

const PGDATA = '/pglite/data';

/** A file system in memory that begins with the files of a folder. PGlite's own way, an archive, takes twice the processor time. */
class CopyInMemory extends EmscriptenBuiltinFilesystem {
  readonly #folder: string;

  constructor(folder: string) {
    super();
    this.#folder = folder;
  }

  override initialSyncFs(): Promise<void> {
    this.#copy(this.#folder, PGDATA);
    return Promise.resolve();
  }

  #copy(from: string, to: string): void {
    const files = this.pg?.Module.FS;
    if (!files) throw new Error('PGlite calls init() first');
    files.mkdirTree(to);
    for (const entry of readdirSync(from, { withFileTypes: true })) {
      const [source, target] = [`${from}/${entry.name}`, `${to}/${entry.name}`];
      if (entry.isDirectory()) this.#copy(source, target);
      else files.writeFile(target, readFileSync(source), { canOwn: true });
    }
  }
}
