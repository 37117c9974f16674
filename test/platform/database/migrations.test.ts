import { cp, readFile, writeFile } from 'node:fs/promises';
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { sql } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/node-postgres';
import { migrate } from 'drizzle-orm/node-postgres/migrator';
import { describe, expect, inject, it } from 'vitest';
import { rows } from '../../../src/platform/database/database.ts';
import { MIGRATIONS } from '../../../src/platform/database/migrations.ts';
import { migratePostgres } from '../../../src/platform/database/postgres.ts';
import { createDatabase } from '../../support/postgres.ts';
import { temporaryFolder } from '../../support/program.ts';

/** A rollback runs the former program on the newer tables, and an upgrade both at once. */
const ADDS = [
  /^CREATE (UNLOGGED )?TABLE "\w+" \(/,
  /^CREATE (UNIQUE )?INDEX "\w+" ON /,
  /^ALTER TABLE "\w+" ADD CONSTRAINT /,
  /^ALTER TABLE "\w+" ADD COLUMN (?!.*NOT NULL)/,
  /^ALTER TABLE "\w+" ADD COLUMN .* DEFAULT .*NOT NULL/,
  // They fill in by themselves.
  /^CREATE (FUNCTION|TRIGGER) "\w+"/,
];

describe('migrations', () => {
  it('only add, and nothing that a program from before them would have to fill in', () => {
    const statements = globSync('drizzle/*.sql').flatMap(file =>
      readFileSync(file, 'utf8')
        .split('--> statement-breakpoint')
        .map(one => one.replace(/^\s*(--.*\n)+/, '').trim())
        .filter(one => one !== ''),
    );
    expect(statements.length).toBeGreaterThan(50);
    expect(statements.filter(one => !ADDS.some(form => form.test(one)) && !isReplaced(one))).toEqual([]);

    /** A check may be replaced by one that allows more: its name is dropped and added again. */
    function isReplaced(statement: string): boolean {
      const [, table, name] = /^ALTER TABLE "(\w+)" DROP CONSTRAINT "(\w+)";?$/.exec(statement) ?? [];
      const added = `ALTER TABLE "${table}" ADD CONSTRAINT "${name}" CHECK`;
      const later = statements.slice(statements.indexOf(statement) + 1);
      return name !== undefined && later.some(one => one.startsWith(added));
    }
  });
});

describe.skipIf(inject('postgresUrl') === undefined)('migratePostgres', () => {
  interface Journal {
    entries: { tag: string; when: number }[];
  }
  const journalOf = async (folder: string): Promise<Journal> =>
    JSON.parse(await readFile(path.join(folder, 'meta/_journal.json'), 'utf8'));

  it('says which were missing on a database of an older version', async () => {
    await using folder = temporaryFolder();
    await using database = await createDatabase();
    await cp(MIGRATIONS, folder.path, { recursive: true });
    const journal = await journalOf(folder.path);
    const tags = journal.entries.map(({ tag }) => tag);
    const older = { ...journal, entries: journal.entries.slice(0, 2) };
    await writeFile(path.join(folder.path, 'meta/_journal.json'), JSON.stringify(older));
    const db = drizzle(database.url);
    await migrate(db, { migrationsFolder: folder.path });

    expect(await migratePostgres(database.url)).toEqual({
      applied: tags.slice(2),
      latest: tags.at(-1),
      unknown: 0,
    });
    expect(await migratePostgres(database.url)).toMatchObject({ applied: [] });

    // As if one had come from another branch, after which this version's were skipped in silence.
    await rows(
      db,
      sql`delete from drizzle.__drizzle_migrations where created_at = ${journal.entries[1]?.when ?? 0}`,
    );
    await expect(migratePostgres(database.url)).rejects.toThrow(
      `The database has later migrations but lacks ${tags[1]}, so another branch of Switchboard has changed it.`,
    );
    await db.$client.end();
  });
});
