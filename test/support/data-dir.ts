import { cp, mkdir } from 'node:fs/promises';
import path from 'node:path';
import { inject } from 'vitest';

/**
 * Makes a data folder whose database has all tables and no rows. A start on it takes a third of the processor time of a first
 * start, which has the database made.
 */
export async function makeDataDir(folder: string): Promise<string> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  await cp(inject('pgliteTemplate'), path.join(folder, 'pglite'), { recursive: true });
  return folder;
}
