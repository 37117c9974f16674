import { index, integer, pgTable, primaryKey, text } from 'drizzle-orm/pg-core';
import { instant } from '../../platform/database/columns.ts';

/**
 * Tool results stored for a few minutes (`results/results.ts`). This table and the next are UNLOGGED (`drizzle/`): a cache
 * needs no write-ahead log, which the embedded database would keep until its next start.
 */
export const keptResults = pgTable(
  'kept_results',
  {
    handle: text().primaryKey(),
    tenantId: text('tenant_id').notNull(),
    keyId: text('key_id').notNull(),
    /** '' for a caller without a user. */
    userId: text('user_id').notNull(),
    /** The space it takes up, all parts together. */
    bytes: integer().notNull(),
    /** Its length in code points; null until all parts are written. */
    totalChars: integer('total_chars'),
    expiresAt: instant('expires_at').notNull(),
  },
  table => [index('kept_results_key').on(table.keyId), index('kept_results_expires_at').on(table.expiresAt)],
);

/** The texts of stored results in parts of equal length (0, 1, …), each sealed. A part without a result expires by itself. */
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
