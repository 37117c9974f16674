import { readFile } from 'node:fs/promises';
import type { PGlite } from '@electric-sql/pglite';
import { sanitise } from '../sanitize.ts';

/** For any role and any server: rows as INSERT statements, without the rows of UNLOGGED tables, which are caches. */
const ARGUMENTS = [
  '--no-owner',
  '--no-privileges',
  '--no-unlogged-table-data',
  '--inserts',
  '--rows-per-insert=100',
];

/**
 * Returns the tables and rows of an embedded database as SQL. All of it is held in memory more than once.
 * Close the database afterwards.
 */
export async function dumpOf(pg: PGlite): Promise<string> {
  // Makes pg_dump double backslashes in strings. pglite-tools removes every line that starts with
  // `\restrict`, even inside a string, which would end the string elsewhere and let stored text run as SQL.
  await pg.exec('set standard_conforming_strings = off');
  const { pgDump } = await import('@electric-sql/pglite-tools/pg_dump');
  const dump = await pgDump({ pg, args: ARGUMENTS });
  // Servers before Postgres 17 do not know this setting.
  return (await dump.text()).replace('SET transaction_timeout = 0;\n', '');
}

/**
 * Reads a plain SQL dump, without the two `psql` commands that newer versions of pg_dump put around it.
 * @throws Error for an unreadable file or one that is not such a dump
 */
export async function readDump(file: string): Promise<string> {
  const text = await readFile(file, 'utf8').catch((error: unknown) => {
    throw new Error(`${file} cannot be read: ${(error as Error).message}`, { cause: error });
  });
  if (!text.startsWith('--\n-- PostgreSQL database dump\n'))
    throw new Error(`${file} is not a plain SQL dump. Create one with switchboard database dump or pg_dump.`);
  if (!/\n-- PostgreSQL database dump complete\n/.test(text.slice(-500)))
    throw new Error(`${file} is truncated. Nothing was restored.`);
  return text
    .replace(/^(--\n-- .*\n--\n\n)\\restrict \w+\n/, '$1')
    .replace(/\n\\unrestrict \w+\n*$/, '\n')
    .replace(/^((?:--.*\n|SET .*\n|\n)*?)SET transaction_timeout = 0;\n/, '$1');
}

/** Runs the statements of a dump, then restores the session's own settings. */
export async function restoreInto(execute: (sql: string) => Promise<unknown>, dump: string): Promise<void> {
  // Statements sent together are parsed before the first one runs, which sets how backslashes are read.
  const [strings = ''] = /^SET standard_conforming_strings = \w+;/m.exec(dump) ?? [];
  try {
    await execute(strings);
    await execute(dump);
  } catch (error) {
    const { message } = error as Error;
    throw new Error(
      `The dump cannot be restored: ${sanitise(message)}. Nothing was restored. pg_dump needs --inserts --no-owner --no-privileges.`,
      { cause: error },
    );
  }
  await execute('reset all');
}
