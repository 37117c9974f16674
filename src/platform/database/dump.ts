import { readFile } from 'node:fs/promises';
import type { PGlite } from '@electric-sql/pglite';
import { sanitise } from '../sanitize.ts';

/** For any role and any server: rows as INSERT statements, and no rows of UNLOGGED tables, which are caches. */
const ARGUMENTS = [
  '--no-owner',
  '--no-privileges',
  '--no-unlogged-table-data',
  '--inserts',
  '--rows-per-insert=100',
];

/** Returns the tables and rows of an embedded database as SQL. All of it is in memory, more than once. Close it afterwards. */
export async function dumpOf(pg: PGlite): Promise<string> {
  // Has backslashes in strings doubled. pglite-tools takes every line away that begins with `\restrict`, also within a text,
  // where it would end the text's literal elsewhere, and have what others wrote run as SQL.
  await pg.exec('set standard_conforming_strings = off');
  const { pgDump } = await import('@electric-sql/pglite-tools/pg_dump');
  const dump = await pgDump({ pg, args: ARGUMENTS });
  // Servers before Postgres 17 do not know the setting.
  return (await dump.text()).replace('SET transaction_timeout = 0;\n', '');
}

/**
 * Reads a plain SQL dump without the two commands to `psql` that newer versions of pg_dump put around it.
 * @throws Error for a file that cannot be read, or that is no such dump
 */
export async function readDump(file: string): Promise<string> {
  const text = await readFile(file, 'utf8').catch((error: unknown) => {
    throw new Error(`${file} cannot be read: ${(error as Error).message}`, { cause: error });
  });
  if (!text.startsWith('--\n-- PostgreSQL database dump\n'))
    throw new Error(
      `${file} is no plain SQL dump. Make one with switchboard database dump, or with pg_dump.`,
    );
  if (!/\n-- PostgreSQL database dump complete\n/.test(text.slice(-500)))
    throw new Error(`${file} is cut short: its end is missing. Nothing was restored.`);
  return text
    .replace(/^(--\n-- .*\n--\n\n)\\restrict \w+\n/, '$1')
    .replace(/\n\\unrestrict \w+\n*$/, '\n')
    .replace(/^((?:--.*\n|SET .*\n|\n)*?)SET transaction_timeout = 0;\n/, '$1');
}

/** Runs the statements of a dump, and gives the session its own settings back. */
export async function restoreInto(execute: (sql: string) => Promise<unknown>, dump: string): Promise<void> {
  // Statements that come together are all read before the first is run, which says how backslashes are to be read.
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
