import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { sql } from 'drizzle-orm';
import { expect, it } from 'vitest';
import { openDatabase, rows } from '../../../src/platform/database/database.ts';
import { temporaryFolder } from '../../support/program.ts';

it('an embedded database is made anew where making it was killed, under the same number, too', async () => {
  await using folder = temporaryFolder();
  const { pid: dead } = spawnSync(process.execPath, ['--version']);
  // In a container every process has the number of the one before.
  for (const pid of [dead, process.pid]) {
    const half = path.join(folder.path, `pglite.new-${pid}`);
    await mkdir(path.join(half, 'base'), { recursive: true });
    await writeFile(path.join(half, 'PG_VERSION'), 'half');
  }
  const database = await openDatabase(folder.path);
  expect(await rows(database.db, sql`select 1 as one`)).toEqual([{ one: 1 }]);
  await database.close();
  expect(readdirSync(folder.path)).toEqual(['pglite']);
});
