import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { PGlite } from '@electric-sql/pglite';
import { sql } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/pglite';
import { migrate } from 'drizzle-orm/pglite/migrator';
import { describe, expect, it } from 'vitest';
import { openCatalogue } from '../../../src/core/catalogue/shipped.ts';
import type { Database } from '../../../src/platform/database/database.ts';
import { openTestDatabase } from '../../support/database.ts';
import { MIGRATIONS } from '../../../src/platform/database/migrations.ts';
import { createLog } from '../../../src/platform/telemetry/log.ts';
import { temporaryFolder } from '../../support/program.ts';
import { recordingLog } from '../search/support.ts';

const LINE = JSON.stringify({
  id: 'mail',
  name: 'Mail',
  description: 'Reads and sends mail.',
  remote_url: 'https://mail.example/mcp',
});

describe('two processes that start together on a new database', () => {
  // A start has two reads and two writes, those in the middle in transactions: one pause before each.
  it.each([1, 2, 3, 4])(
    'both have the catalogue, the second started whole before query %i of the first',
    async at => {
      await using client = await PGlite.create();
      await migrate(drizzle(client), { migrationsFolder: MIGRATIONS });
      await using folder = temporaryFolder();
      const file = path.join(folder.path, 'catalogue.jsonl');
      await writeFile(file, LINE);
      const start = (db: Database) =>
        openCatalogue({
          db,
          log: createLog('silent'),
          file,
          allowHttp: false,
          onlyFirst: false,
          shared: false,
        });

      let second: Awaited<ReturnType<typeof start>> | undefined;
      let queries = 0;
      const interrupted = drizzle(
        new Proxy(client, {
          get(target, key) {
            const value: unknown = Reflect.get(target, key, target);
            if (typeof value !== 'function') return value;
            if (key !== 'query' && key !== 'transaction') return value.bind(target);
            return async (...args: unknown[]) => {
              if (++queries === at) second = await start(drizzle(client));
              return value.apply(target, args);
            };
          },
        }),
      );
      const first = await start(interrupted);
      expect([first, second].map(one => one?.activeCount)).toEqual([1, 1]);
    },
  );
});

describe('a server of the id that is reserved, from an older version', () => {
  it('is deactivated at the start, which says so once', async () => {
    const { db, close } = await openTestDatabase();
    await using folder = temporaryFolder();
    const file = path.join(folder.path, 'catalogue.jsonl');
    await writeFile(file, `${LINE}\n${JSON.stringify({ ...JSON.parse(LINE), id: 'switchboard' })}`);
    const { log, text } = recordingLog();
    const start = () => openCatalogue({ db, log, file, allowHttp: false, onlyFirst: false, shared: false });
    expect((await start()).get('switchboard')).toBeUndefined();
    expect(text()).toContain('id: must not be \\"switchboard\\", which is reserved for Switchboard itself');
    await db.execute(sql`insert into servers (id, name, description, remote_url, auth, categories, tools, origin, active)
      select 'switchboard', name, description, remote_url, auth, categories, tools, 'operator', true from servers`);
    const said = () => text().split('id is now reserved').length - 1;
    for (let round = 0; round < 2; round++) {
      const catalogue = await start();
      expect(catalogue.get('switchboard')?.active).toBe(false);
      expect(catalogue.get('mail')?.active).toBe(true);
      expect(said()).toBe(1);
    }
    await close();
  });
});
