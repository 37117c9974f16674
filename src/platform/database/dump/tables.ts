import { sql, type SQL } from 'drizzle-orm';
import { rows, type Database } from '../database.ts';

export interface Table {
  readonly name: string;
  /** In the table's own order, without those the database computes. */
  readonly columns: readonly { readonly name: string; readonly type: string }[];
}

/** The tables of the schema `public`, each after those its foreign keys point to; UNLOGGED ones are caches, and no part of it. */
export async function tablesOf(db: Database): Promise<readonly Table[]> {
  const columns = await rows<{ table: string; name: string; type: string }>(
    db,
    sql`select c.relname "table", a.attname name, format_type(a.atttypid, a.atttypmod) type
        from pg_class c join pg_attribute a on a.attrelid = c.oid
        where c.relnamespace = 'public'::regnamespace and c.relkind = 'r' and c.relpersistence = 'p'
          and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
        order by c.relname collate "C", a.attnum`,
  );
  const byTable = Map.groupBy(columns, ({ table }) => table);
  const references = await rows<{ child: string; parent: string }>(
    db,
    sql`select distinct c.relname child, p.relname parent from pg_constraint f
        join pg_class c on c.oid = f.conrelid join pg_class p on p.oid = f.confrelid
        where f.contype = 'f' and f.connamespace = 'public'::regnamespace and f.conrelid <> f.confrelid`,
  );
  const ordered = parentsFirst([...byTable.keys()], references);
  return ordered.map(name => ({
    name,
    columns: (byTable.get(name) ?? []).map(column => ({ name: column.name, type: column.type })),
  }));
}

function parentsFirst(
  names: readonly string[],
  references: readonly { readonly child: string; readonly parent: string }[],
): string[] {
  const ordered: string[] = [];
  let left = names;
  while (left.length > 0) {
    const waiting = left.filter(name =>
      references.some(({ child, parent }) => child === name && left.includes(parent)),
    );
    if (waiting.length === left.length) throw new Error(`foreign keys in a circle: ${left.join(', ')}`);
    ordered.push(...left.filter(name => !waiting.includes(name)));
    left = waiting;
  }
  return ordered;
}

export interface Sequence {
  readonly name: string;
  /** A whole number as text: it may be beyond 2^53. */
  readonly value: string;
  /** Whether that value has been given out already. */
  readonly used: boolean;
}

export const sequencesOf = (db: Database): Promise<Sequence[]> =>
  rows<{ name: string; value: string; used: boolean }>(
    db,
    sql`select sequencename name, coalesce(last_value, start_value)::text value, last_value is not null used
        from pg_sequences where schemaname = 'public' order by sequencename collate "C"`,
  );

export async function countOf(db: Database, table: string): Promise<number> {
  const [row] = await rows<{ count: number }>(db, sql`select count(*) from ${nameOf(table)}`);
  return row?.count ?? 0;
}

export const nameOf = (table: string): SQL => sql`public.${sql.identifier(table)}`;

/**
 * The text form of every value is then exact and the same on every server, and nothing ends the transaction for its length.
 * Until the end of the transaction.
 */
export async function settleSession(tx: Database): Promise<void> {
  for (const setting of [
    sql`bytea_output = 'hex'`,
    sql`datestyle = 'ISO, YMD'`,
    sql`intervalstyle = 'postgres'`,
    sql`timezone = 'UTC'`,
    sql`extra_float_digits = 1`,
    sql`statement_timeout = 0`,
    sql`idle_in_transaction_session_timeout = 0`,
    // Only for a table lock at the beginning.
    sql`lock_timeout = '10s'`,
  ])
    await tx.execute(sql`set local ${setting}`);
}
