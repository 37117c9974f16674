import { pgTable, text } from 'drizzle-orm/pg-core';

/** Facts about this installation, a row each. */
export const settings = pgTable('settings', { key: text().primaryKey(), value: text().notNull() });
