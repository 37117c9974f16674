import { eq } from 'drizzle-orm';
import { z } from 'zod';
import type { Database } from '../../platform/database/database.ts';
import { settings } from '../../platform/database/schema.ts';

/** Of all processes on the database. */
export interface ProbingState {
  /** When the last whole round by schedule began. */
  readonly probedAtMs?: number | undefined;
  /** The rounds in a row, up to the last whole one, that say rather more of our own network than of servers. */
  readonly doubts?: { readonly count: number; readonly sinceMs: number } | undefined;
}

const KEY = 'probing';
const stateSchema = z.object({
  probedAtMs: z.number().optional(),
  doubts: z.object({ count: z.number(), sinceMs: z.number() }).optional(),
});

export const readState = async (db: Database): Promise<ProbingState> =>
  stateSchema.safeParse(await read(db, KEY)).data ?? {};

export const writeState = (db: Database, state: ProbingState): Promise<void> => write(db, KEY, state);

const TRIED_KEY = 'probing_tried';
const triedSchema = z.array(z.string());

/** Ids in the order of their visits (see `Tried`). */
export const readTried = async (db: Database): Promise<readonly string[]> =>
  triedSchema.safeParse(await read(db, TRIED_KEY)).data ?? [];

export const writeTried = (db: Database, ids: readonly string[]): Promise<void> => write(db, TRIED_KEY, ids);

async function read(db: Database, key: string): Promise<unknown> {
  const [row] = await db.select().from(settings).where(eq(settings.key, key));
  return row && JSON.parse(row.value);
}

async function write(db: Database, key: string, content: unknown): Promise<void> {
  const value = JSON.stringify(content);
  await db
    .insert(settings)
    .values({ key, value })
    .onConflictDoUpdate({ target: settings.key, set: { value } });
}
