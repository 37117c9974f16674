import { inArray, sql, type SQL } from 'drizzle-orm';
import type { PgTable } from 'drizzle-orm/pg-core';
import type { Database } from './database.ts';
import { slices } from '../time.ts';

const BATCH_ROWS = 1_000;

/**
 * Deletes matching rows in batches, so that no lock is held for long. Resolves to their number.
 * @param batchRows fewer for large rows
 * @param maxRows stops after this many, so that the caller can do something in between
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
