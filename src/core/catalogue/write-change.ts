import { and, inArray, not, or, sql } from 'drizzle-orm';
import type { Database } from '../../infra/database.ts';
import { serverHealth, servers as table } from '../schema.ts';
import type { Origin, Server } from './entry.ts';
import { forgetDefinitions } from './live-definitions.ts';
import { retireServers, writeServers } from './server-rows.ts';

const BATCH_ROWS = 500;

/** A change of the catalogue as it is to be stored. */
interface Change {
  readonly origin: Origin;
  /** Of a registry's change: see `registryUrl`. */
  readonly source: string | undefined;
  readonly upserted: readonly Server[];
  /** Ids of those whose address is another than before. */
  readonly moved: readonly string[];
  /** Ids of those that had been made inactive since they did not answer. */
  readonly broughtBack: readonly string[];
  /** Ids. */
  readonly removed: readonly string[];
  readonly signal: AbortSignal | undefined;
}

/**
 * Stores a change. A registry's goes over its own rows alone, whatever this process believes: another one on the database may
 * have changed the catalogue. Resolves with the ids that were left alone for that.
 */
export async function writeChange(
  tx: Database,
  { origin, source, upserted, moved, broughtBack, removed, signal }: Change,
): Promise<ReadonlySet<string>> {
  const ids = [...upserted.map(({ id }) => id), ...removed];
  const left = source === undefined ? new Set<string>() : await ofOthers(tx, ids, source);
  const isOwn = (id: string) => !left.has(id);
  await writeServers(
    tx,
    upserted.filter(({ id }) => isOwn(id)),
    signal,
  );
  await forgetDefinitions(tx, moved.filter(isOwn));
  await forgetFailures(tx, broughtBack.filter(isOwn));
  await retireServers(tx, removed.filter(isOwn), origin);
  signal?.throwIfAborted();
  return left;
}

/** The change without what was left alone when it was stored. */
export function without<Whole extends Pick<Change, 'upserted' | 'removed'> & { left?: readonly string[] }>(
  left: ReadonlySet<string>,
  change: Whole,
): Whole {
  if (left.size === 0) return change;
  return {
    ...change,
    upserted: change.upserted.filter(({ id }) => !left.has(id)),
    removed: change.removed.filter(id => !left.has(id)),
    left: [...(change.left ?? []), ...left],
  };
}

/** Their visits count from the beginning again. */
async function forgetFailures(tx: Database, ids: readonly string[]): Promise<void> {
  for (let at = 0; at < ids.length; at += BATCH_ROWS) {
    await tx
      .update(serverHealth)
      .set({ failures: 0, deadSince: null, writtenAt: sql`now()` })
      .where(inArray(serverHealth.serverId, ids.slice(at, at + BATCH_ROWS)));
  }
}

async function ofOthers(tx: Database, ids: readonly string[], source: string): Promise<Set<string>> {
  const isOther = or(
    not(sql`${table.origin} = 'registry'`),
    sql`${table.registry} ->> 'source' is distinct from ${source}`,
  );
  const others = new Set<string>();
  for (let at = 0; at < ids.length; at += BATCH_ROWS) {
    const rows = await tx
      .select({ id: table.id })
      .from(table)
      .where(and(inArray(table.id, ids.slice(at, at + BATCH_ROWS)), isOther));
    for (const { id } of rows) others.add(id);
  }
  return others;
}
