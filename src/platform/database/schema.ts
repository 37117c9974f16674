import { pgTable, text } from 'drizzle-orm/pg-core';

/** Small facts about this installation, such as the fingerprint of the shipped catalogue that was loaded last. */
export const settings = pgTable('settings', { key: text().primaryKey(), value: text().notNull() });
