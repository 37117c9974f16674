import { eq } from 'drizzle-orm';
import { z } from 'zod';
import type { Database } from '../../platform/database/database.ts';
import { settings } from '../../platform/database/schema.ts';

const stateSchema = z.object({
  /** The latest `updatedAt` that was seen, by the registry's clock. */
  highWater: z.iso.datetime({ offset: true }).optional(),
  fullAtMs: z.number().optional(),
  syncedAtMs: z.number().optional(),
});

/** How far the syncs with a registry are; all processes on the database share it. */
export type SyncState = z.output<typeof stateSchema>;

const keyOf = (source: string): string => `registry_sync ${source}`;

export async function readState(db: Database, source: string): Promise<SyncState> {
  const [row] = await db
    .select()
    .from(settings)
    .where(eq(settings.key, keyOf(source)));
  return row ? (stateSchema.safeParse(JSON.parse(row.value)).data ?? {}) : {};
}

export async function writeState(
  db: Database,
  source: string,
  state: { [Key in keyof SyncState]: SyncState[Key] | undefined },
): Promise<void> {
  const value = JSON.stringify(state);
  await db
    .insert(settings)
    .values({ key: keyOf(source), value })
    .onConflictDoUpdate({ target: settings.key, set: { value } });
}
