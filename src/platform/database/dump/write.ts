import { rm, rename, open } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import { sql } from 'drizzle-orm';
import { asideOfShared } from '../../temp-path.ts';
import { rows, type Database } from '../database.ts';
import { FORMAT, rowsIn, type Header, type OnRows } from './format.ts';
import { countOf, nameOf, sequencesOf, settleSession, tablesOf, type Table } from './tables.ts';

/** So many rows are in memory at a time. */
const ROWS_AT_A_TIME = 200;

/**
 * Writes every table of the database, as of one moment, to a file that only its owner can read. It is written aside and
 * takes its name when it is whole; a file of that name is replaced then.
 * @param look at the database as of that moment
 * @param onRows hears how many rows are written
 */
export async function writeDump<Seen>(
  db: Database,
  file: string,
  about: Pick<Header, 'version' | 'migration'>,
  look: (tx: Database) => Promise<Seen>,
  onRows?: OnRows,
): Promise<{ readonly header: Header; readonly seen: Seen }> {
  const aside = await asideOfShared(file);
  const handle = await open(aside, 'wx', 0o600).catch((error: unknown) => {
    throw new Error(`${file} cannot be written: ${error instanceof Error ? error.message : String(error)}`, {
      cause: error,
    });
  });
  try {
    const written = await db.transaction(
      async tx => {
        await settleSession(tx);
        const seen = await look(tx);
        const tables = await tablesOf(tx);
        const header = await headerOf(tx, tables, about);
        await pipeline(
          Readable.from(dumpLines(tx, header, tables, onRows)),
          createGzip(),
          handle.createWriteStream({ flush: true }),
        );
        return { header, seen };
      },
      { isolationLevel: 'repeatable read', accessMode: 'read only' },
    );
    await rename(aside, file);
    return written;
  } catch (error) {
    await handle.close().catch(() => {});
    await rm(aside, { force: true });
    throw error;
  }
}

async function headerOf(
  tx: Database,
  tables: readonly Table[],
  about: Pick<Header, 'version' | 'migration'>,
): Promise<Header> {
  const counted: Header['tables'] = [];
  for (const { name, columns } of tables)
    counted.push({ name, columns: columns.map(column => column.name), rows: await countOf(tx, name) });
  return {
    switchboard_export: FORMAT,
    ...about,
    exported_at: new Date().toISOString(),
    tables: counted,
    sequences: await sequencesOf(tx),
  };
}

async function* dumpLines(
  tx: Database,
  header: Header,
  tables: readonly Table[],
  onRows: OnRows = () => {},
): AsyncGenerator<string> {
  const of = rowsIn(header);
  let done = 0;
  yield `${JSON.stringify(header)}\n`;
  for (const table of tables) {
    yield `${JSON.stringify({ table: table.name })}\n`;
    for await (const lines of rowsOf(tx, table)) {
      yield lines.join('');
      done += lines.length;
      onRows({ done, of });
    }
  }
  yield `${JSON.stringify({ end: of })}\n`;
}

async function* rowsOf(tx: Database, { name, columns }: Table): AsyncGenerator<string[]> {
  const values = columns.map(column => sql`${sql.identifier(column.name)}::text`);
  await tx.execute(
    sql`declare dump_rows no scroll cursor for
        select json_build_array(${sql.join(values, sql`, `)})::text line from ${nameOf(name)}`,
  );
  for (;;) {
    const found = await rows<{ line: string }>(
      tx,
      sql`fetch ${sql.raw(String(ROWS_AT_A_TIME))} from dump_rows`,
    );
    if (found.length === 0) break;
    yield found.map(({ line }) => `${line}\n`);
  }
  await tx.execute(sql`close dump_rows`);
}
