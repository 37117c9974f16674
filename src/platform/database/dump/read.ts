import { sql } from 'drizzle-orm';
import { isDatabaseUnavailable, type Database } from '../database.ts';
import { headerSchema, ImportRefused, rowsIn, type Header, type OnRows } from './format.ts';
import { fileLines } from './lines.ts';
import { countOf, nameOf, settleSession, tablesOf, type Table } from './tables.ts';

/** What is sent to the database in one statement at most. */
const ROWS_AT_A_TIME = 500;
const CHARACTERS_AT_A_TIME = 4_000_000;

/** A dump of which the header has been read. */
export interface Dump {
  readonly file: string;
  readonly header: Header;
  /** What comes after the header. */
  readonly lines: AsyncGenerator<string>;
}

/** @throws ImportRefused for a file that is none, or one of another form. */
export async function openDump(file: string): Promise<Dump> {
  const lines = fileLines(file);
  const first = await lines.next();
  const parsed = headerSchema.safeParse(parse(first.done === true ? '' : first.value));
  if (parsed.success) return { file, header: parsed.data, lines };
  await lines.return(undefined);
  throw new ImportRefused(
    `${file} is no file that \`switchboard export\` of this version's form wrote (for a catalogue, use \`catalogue import\`).`,
  );
}

function parse(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}

/**
 * Fills the empty tables of a database from a dump, all or nothing; nobody else reads or writes them meanwhile.
 * @param approve looks at what has been read before it is kept; what it throws undoes all of it
 * @param onRows hears how many rows are stored
 * @throws ImportRefused
 */
export async function readDump<Approved>(
  db: Database,
  dump: Dump,
  approve: (tx: Database) => Promise<Approved>,
  onRows: OnRows = () => {},
): Promise<Approved> {
  return db.transaction(async tx => {
    await settleSession(tx);
    const tables = await tablesOf(tx);
    requireSameTables(dump, tables);
    // Before the lock too: on a database in use it would only hold others up.
    await requireEmpty(tx, tables);
    await lock(tx, tables);
    await requireEmpty(tx, tables);
    await fill(tx, dump, tables, onRows);
    for (const { name, value, used } of dump.header.sequences)
      await tx.execute(
        sql`select setval(format('public.%I', ${name}::text)::regclass, ${value}::text::int8, ${used}::bool)`,
      );
    for (const { name, rows: expected } of dump.header.tables) {
      const count = await countOf(tx, name);
      if (count !== expected)
        throw new ImportRefused(
          `${dump.file} is damaged: ${name} has ${count} rows instead of ${expected}. Nothing was imported.`,
        );
    }
    return approve(tx);
  });
}

function requireSameTables({ file, header }: Dump, tables: readonly Table[]): void {
  const shapeOf = (name: string, columns: readonly string[]) => JSON.stringify([name, columns]);
  const ours = tables.map(({ name, columns }) =>
    shapeOf(
      name,
      columns.map(column => column.name),
    ),
  );
  const theirs = header.tables.map(({ name, columns }) => shapeOf(name, columns));
  const differing = [
    ...ours.filter(one => !theirs.includes(one)),
    ...theirs.filter(one => !ours.includes(one)),
  ];
  if (differing.length > 0)
    throw new ImportRefused(
      `${file} has other tables than this database: ${differing.join(', ')}. Nothing was imported.`,
    );
}

async function lock(tx: Database, tables: readonly Table[]): Promise<void> {
  const names = tables.map(({ name }) => nameOf(name));
  try {
    await tx.execute(sql`lock table ${sql.join(names, sql`, `)} in access exclusive mode`);
  } catch (error) {
    throw new ImportRefused(
      `The database is in use by others (${reasonOf(error)}): nothing was imported. Stop the servers on it first.`,
      { cause: error },
    );
  }
}

/** The database's own words: those of the statement that failed would hold the rows. */
function reasonOf(error: unknown): string {
  const { cause } = error as Error;
  return cause instanceof Error ? cause.message : 'it was refused';
}

async function requireEmpty(tx: Database, tables: readonly Table[]): Promise<void> {
  const full: string[] = [];
  for (const { name } of tables) {
    const count = await countOf(tx, name);
    if (count > 0) full.push(`${name}: ${count}`);
  }
  if (full.length > 0)
    throw new ImportRefused(
      `The database is not empty (rows of ${full.join(', ')}): nothing was imported. An import goes into a new database, before a server has started on it.`,
    );
}

async function fill(
  tx: Database,
  { file, header, lines }: Dump,
  tables: readonly Table[],
  onRows: OnRows,
): Promise<void> {
  const shapes = new Map(tables.map(table => [table.name, table]));
  const of = rowsIn(header);
  let done = 0;
  const onStored = (count: number) => onRows({ done: (done += count), of });
  const next = async () => {
    const line = await lines.next();
    if (line.done === true)
      throw new ImportRefused(`${file} is cut short: its end is missing. Nothing was imported.`);
    return line.value;
  };
  const expect = async (what: object) => {
    const line = await next();
    if (line !== JSON.stringify(what))
      throw new ImportRefused(
        `${file} is damaged: it has ${JSON.stringify(line.slice(0, 60))} where ${JSON.stringify(what)} must be. Nothing was imported.`,
      );
  };
  for (const { name, rows: count } of header.tables) {
    await expect({ table: name });
    const shape = shapes.get(name);
    if (shape) await insertAll(tx, shape, count, { file, next, onStored });
  }
  await expect({ end: of });
  // To the end of the file, where its checksum is.
  if ((await lines.next()).done !== true)
    throw new ImportRefused(`${file} is damaged: it goes on after its end. Nothing was imported.`);
}

interface Source {
  readonly file: string;
  readonly next: () => Promise<string>;
  /** Hears of so many more rows. */
  readonly onStored: (count: number) => void;
}

async function insertAll(
  tx: Database,
  table: Table,
  count: number,
  { file, next, onStored }: Source,
): Promise<void> {
  let batch: string[] = [];
  let characters = 0;
  for (let at = 1; at <= count; at++) {
    const line = await next();
    batch.push(line);
    characters += line.length;
    if (at < count && batch.length < ROWS_AT_A_TIME && characters < CHARACTERS_AT_A_TIME) continue;
    await insert(tx, table, batch, file);
    onStored(batch.length);
    batch = [];
    characters = 0;
  }
}

/** The database itself reads the lines, and each value's text as the column's type. */
async function insert(
  tx: Database,
  { name, columns }: Table,
  lines: readonly string[],
  file: string,
): Promise<void> {
  const targets = columns.map(column => sql.identifier(column.name));
  const values = columns.map((column, at) => sql`(line->>${sql.raw(String(at))})::${sql.raw(column.type)}`);
  const json = `[${lines.join(',')}]`;
  const statement = sql`insert into ${nameOf(name)} (${sql.join(targets, sql`, `)}) overriding system value
    select ${sql.join(values, sql`, `)} from json_array_elements(${json}::json) line`;
  try {
    await tx.execute(statement);
  } catch (error) {
    if (isDatabaseUnavailable(error)) throw error;
    throw new ImportRefused(
      `${file} is damaged: rows of ${name} are not as they must be (${reasonOf(error)}). Nothing was imported.`,
      { cause: error },
    );
  }
}
