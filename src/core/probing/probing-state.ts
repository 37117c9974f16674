import { eq } from 'drizzle-orm';
import { z } from 'zod';
import type { Database } from '../../infra/database.ts';
import { settings } from '../schema.ts';

const KEY = 'probing';
const stateSchema = z.object({ probedAtMs: z.number() });

/** When the last whole round by schedule began, of any process on the database. */
export async function readProbedAt(db: Database): Promise<number | undefined> {
  const [row] = await db.select().from(settings).where(eq(settings.key, KEY));
  return row && stateSchema.safeParse(JSON.parse(row.value)).data?.probedAtMs;
}

export async function writeProbedAt(db: Database, probedAtMs: number): Promise<void> {
  const value = JSON.stringify({ probedAtMs });
  await db
    .insert(settings)
    .values({ key: KEY, value })
    .onConflictDoUpdate({ target: settings.key, set: { value } });
}
