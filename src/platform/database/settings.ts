import { eq } from 'drizzle-orm';
import { pgTable, text } from 'drizzle-orm/pg-core';
import type { z } from 'zod';
import type { Database } from './database.ts';

/** Single values shared by all processes on the database, such as the fingerprint of the last loaded file. */
export const settings = pgTable('settings', { key: text().primaryKey(), value: text().notNull() });

/**
 * Returns the text stored under the key; undefined if there is none.
 * @param options.lock in a transaction: locks the row until it ends
 */
export async function readSetting(
  db: Database,
  key: string,
  options: { readonly lock?: boolean } = {},
): Promise<string | undefined> {
  const found = db.select().from(settings).where(eq(settings.key, key));
  const [row] = await (options.lock === true ? found.for('update') : found);
  return row?.value;
}

/** Stores the text under the key, replacing an older one. */
export async function writeSetting(db: Database, key: string, value: string): Promise<void> {
  await db
    .insert(settings)
    .values({ key, value })
    .onConflictDoUpdate({ target: settings.key, set: { value } });
}

/** Stores the text unless the key already has one. Returns the stored text: of several processes, the first wins. */
export async function claimSetting(db: Database, key: string, value: string): Promise<string> {
  await db.insert(settings).values({ key, value }).onConflictDoNothing();
  return (await readSetting(db, key)) ?? value;
}

export async function deleteSetting(db: Database, key: string): Promise<void> {
  await db.delete(settings).where(eq(settings.key, key));
}

/** Returns the JSON value stored under the key; undefined if there is none or it does not match the schema. */
export async function readJsonSetting<T>(
  db: Database,
  key: string,
  schema: z.ZodType<T>,
): Promise<T | undefined> {
  const value = await readSetting(db, key);
  if (value === undefined) return undefined;
  try {
    return schema.safeParse(JSON.parse(value)).data;
  } catch {
    return undefined;
  }
}

export const writeJsonSetting = (db: Database, key: string, value: unknown): Promise<void> =>
  writeSetting(db, key, JSON.stringify(value));
