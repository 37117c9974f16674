import { index, integer, pgTable, primaryKey, text } from 'drizzle-orm/pg-core';
import { instant } from '../../platform/database/columns.ts';

/**
 * Tool results that are kept for a few minutes so that they can be read on (`results/results.ts`). This table and the next
 * are UNLOGGED (`drizzle/`): a cache needs no write-ahead log, which the embedded database would keep until its next start.
 */
export const keptResults = pgTable(
  'kept_results',
  {
    handle: text().primaryKey(),
    tenantId: text('tenant_id').notNull(),
    keyId: text('key_id').notNull(),
    /** '' for a caller without a user. */
    userId: text('user_id').notNull(),
    /** The room it takes up here, all parts together. */
    bytes: integer().notNull(),
    /** Its length in code points; null until all parts are written. */
    totalChars: integer('total_chars'),
    expiresAt: instant('expires_at').notNull(),
  },
  table => [index('kept_results_key').on(table.keyId), index('kept_results_expires_at').on(table.expiresAt)],
);

/** The texts of kept results in parts of equal length (0, 1, …), each sealed. One without its result goes at its own time. */
export const keptResultParts = pgTable(
  'kept_result_parts',
  {
    handle: text().notNull(),
    part: integer().notNull(),
    sealed: text().notNull(),
    expiresAt: instant('expires_at').notNull(),
  },
  table => [
    primaryKey({ columns: [table.handle, table.part] }),
    index('kept_result_parts_expires_at').on(table.expiresAt),
  ],
);
