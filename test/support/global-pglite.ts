import { createHash } from 'node:crypto';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { mkdir, rename, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { PGlite } from '@electric-sql/pglite';
import { drizzle } from 'drizzle-orm/pglite';
import { migrate } from 'drizzle-orm/pglite/migrator';
import type { TestProject } from 'vitest/node';
import { MIGRATIONS } from '../../src/platform/database/migrations.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** An archive of a migrated embedded database without rows (see `openTestDatabase`). */
    pgliteTemplate: string;
  }
}

const CACHE = 'node_modules/.cache/switchboard';

/**
 * Creates the embedded database that the tests copy: creating one takes four times the processor time of a copy. The archive is kept
 * until the migrations or the dependencies change.
 */
export default async function setup(project: TestProject): Promise<void> {
  const sources = ['package-lock.json', ...globSync(`${MIGRATIONS}/*.sql`).sort()];
  const hash = createHash('sha256');
  for (const source of sources) hash.update(readFileSync(source));
  const template = path.resolve(CACHE, `pglite-${hash.digest('hex').slice(0, 16)}.tar`);
  if (!existsSync(template)) await createTemplate(template);
  project.provide('pgliteTemplate', template);
}

async function createTemplate(target: string): Promise<void> {
  const client = await PGlite.create();
  await migrate(drizzle(client), { migrationsFolder: MIGRATIONS });
  const archive = await client.dumpDataDir('none');
  await client.close();
  await mkdir(CACHE, { recursive: true });
  // Renamed when whole: test runs may begin at the same time.
  const unfinished = `${target}.${process.pid}`;
  await writeFile(unfinished, archive.stream());
  await rename(unfinished, target);
}
