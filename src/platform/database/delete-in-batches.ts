import { inArray, sql, type SQL } from 'drizzle-orm';
import type { PgTable } from 'drizzle-orm/pg-core';
import type { Database } from './database.ts';
import { slices } from '../time.ts';

const BATCH_ROWS = 1_000;

/**
 * Deletes the rows of a table that match, in batches, so that nobody waits long for a lock. Resolves to their number.
 * @param batchRows fewer where the rows are big
 * @param maxRows where something is to be done between some and the next
 */
export async function purgeWhere(
  db: Database,
  table: PgTable,
  isOld: SQL,
  { batchRows = BATCH_ROWS, maxRows = Infinity } = {},
): Promise<number> {
  const pause = slices();
  const old = db
    .select({ ctid: sql`ctid` })
    .from(table)
    .where(isOld)
    .limit(batchRows);
  for (let total = 0; ;) {
    const deleted = await db
      .delete(table)
      .where(inArray(sql`ctid`, old))
      .returning({ one: sql`1` });
    total += deleted.length;
    if (deleted.length < batchRows || total >= maxRows) return total;
    await pause();
  }
}
