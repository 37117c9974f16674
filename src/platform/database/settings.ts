import { eq } from 'drizzle-orm';
import { pgTable, text } from 'drizzle-orm/pg-core';
import type { z } from 'zod';
import type { Database } from './database.ts';

/** Single values that all processes on the database share, such as the fingerprint of a file that was loaded last. */
export const settings = pgTable('settings', { key: text().primaryKey(), value: text().notNull() });

/**
 * Returns the text kept under the key; undefined where there is none.
 * @param options.lock in a transaction: locks the row until its end
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

/** Keeps the text under the key, in the place of what was there. */
export async function writeSetting(db: Database, key: string, value: string): Promise<void> {
  await db
    .insert(settings)
    .values({ key, value })
    .onConflictDoUpdate({ target: settings.key, set: { value } });
}

/** Keeps the text unless the key has one already. Returns the one that is kept: of several processes the first one's. */
export async function claimSetting(db: Database, key: string, value: string): Promise<string> {
  await db.insert(settings).values({ key, value }).onConflictDoNothing();
  return (await readSetting(db, key)) ?? value;
}

export async function deleteSetting(db: Database, key: string): Promise<void> {
  await db.delete(settings).where(eq(settings.key, key));
}

/** Returns the JSON value kept under the key; undefined where there is none, or none that the schema takes. */
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
