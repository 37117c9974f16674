import { and, inArray, not, or, sql } from 'drizzle-orm';
import type { Database } from '../../platform/database/database.ts';
import { serverHealth, servers as table } from './schema.ts';
import type { CatalogueChange, OnProgress } from './catalogue.ts';
import type { Origin } from './entry.ts';
import { forgetDefinitions } from './tools/live.ts';
import type { FromRegistry } from './precedence.ts';
import { retireServers, writeServers } from './store.ts';

const BATCH_ROWS = 500;

/** Writes what is to stand or fall with a change, such as who made it: within its transaction, with what was stored. */
export type Alongside = (tx: Database, stored: CatalogueChange) => Promise<void>;

/** Of `Catalogue.put`. */
export interface PutOptions {
  readonly origin: Origin;
  readonly replace?: boolean;
  /** Not made inactive by a replacement although they are not among the entries. */
  readonly keep?: ReadonlySet<string>;
  /** With the origin `registry`, and only then. */
  readonly registry?: FromRegistry;
  readonly alongside?: Alongside;
  readonly onProgress?: OnProgress;
  /** Ends it, with its reason and everything as it was, until it is committed. */
  readonly signal?: AbortSignal;
}

/** A change of the catalogue as it is to be stored. */
interface Change extends CatalogueChange {
  readonly origin: Origin;
  /** Of a registry's change: see `registryUrl`. */
  readonly source: string | undefined;
  /** Ids of those whose address is another than before. */
  readonly moved: readonly string[];
  /** Ids of those that had been made inactive since they did not answer. */
  readonly broughtBack: readonly string[];
  readonly alongside: Alongside | undefined;
  readonly signal: AbortSignal | undefined;
}

/**
 * Stores a change. A registry's goes over its own rows alone, whatever this process believes: another one on the database may
 * have changed the catalogue. Resolves with the change as it was stored: `left` has the ids, too, that were left alone for that.
 */
export async function writeChange(
  tx: Database,
  { origin, source, moved, broughtBack, alongside, signal, ...change }: Change,
): Promise<CatalogueChange> {
  const ids = [...change.upserted.map(({ id }) => id), ...change.removed];
  const others = source === undefined ? new Set<string>() : await ofOthers(tx, ids, source);
  const isOwn = (id: string) => !others.has(id);
  const stored: CatalogueChange = {
    upserted: change.upserted.filter(({ id }) => isOwn(id)),
    removed: change.removed.filter(isOwn),
    left: [...(change.left ?? []), ...others],
  };
  await writeServers(tx, stored.upserted, signal);
  await forgetDefinitions(tx, moved.filter(isOwn));
  await forgetFailures(tx, broughtBack.filter(isOwn));
  await retireServers(tx, stored.removed, origin);
  await alongside?.(tx, stored);
  signal?.throwIfAborted();
  return stored;
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
