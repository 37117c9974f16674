import { gte, sql } from 'drizzle-orm';
import type { Database } from '../../platform/database/database.ts';
import type { Health } from '../catalogue/health.ts';
import { excluded } from '../../platform/database/columns.ts';
import { serverHealth as table } from '../catalogue/schema.ts';

/** What is known of a server at that address. */
export interface LocatedHealth {
  readonly serverId: string;
  readonly remoteUrl: string;
  readonly health: Health;
}

const BATCH_ROWS = 50;

const msOf = (instant: Date | null): number | undefined => instant?.getTime();
const instantOf = (ms: number | undefined): Date | null => (ms === undefined ? null : new Date(ms));

function fromRow(row: typeof table.$inferSelect): LocatedHealth {
  const { serverId, remoteUrl, state, latencyMs, checkedAt, failures } = row;
  const lastOkAtMs = msOf(row.lastOkAt);
  const deadSinceMs = msOf(row.deadSince);
  const health = {
    state,
    ...(latencyMs === null ? {} : { latencyMs }),
    checkedAtMs: checkedAt.getTime(),
    ...(lastOkAtMs === undefined ? {} : { lastOkAtMs }),
    failures,
    ...(deadSinceMs === undefined ? {} : { deadSinceMs }),
  };
  return { serverId, remoteUrl, health };
}

/** Those written since then, by the database's clock, or all. Resolves, too, to when the newest of them was. */
export async function readHealth(
  db: Database,
  since?: Date,
): Promise<{ known: readonly LocatedHealth[]; newest: Date | undefined }> {
  const rows = await db
    .select()
    .from(table)
    .where(since && gte(table.writtenAt, since));
  const newest = rows.reduce<Date | undefined>(
    (latest, { writtenAt }) => (latest && latest > writtenAt ? latest : writtenAt),
    undefined,
  );
  return { known: rows.map(fromRow), newest };
}

/** A failure counts on from what is stored at that address, or it was found on something older, such as before an import. */
const FOLLOWS = sql`${table.remoteUrl} <> ${excluded('remote_url')} or ${excluded('failures')} in (0, ${table.failures} + 1)`;

/** Resolves to those that were written: a failure is not where something else has been since. */
export async function writeHealth(
  db: Database,
  known: readonly LocatedHealth[],
): Promise<readonly LocatedHealth[]> {
  const written = new Set<string>();
  for (let at = 0; at < known.length; at += BATCH_ROWS) {
    const rows = known.slice(at, at + BATCH_ROWS).map(({ serverId, remoteUrl, health }) => ({
      serverId,
      remoteUrl,
      state: health.state,
      latencyMs: health.latencyMs ?? null,
      checkedAt: new Date(health.checkedAtMs),
      lastOkAt: instantOf(health.lastOkAtMs),
      failures: health.failures,
      deadSince: instantOf(health.deadSinceMs),
    }));
    const stored = await db
      .insert(table)
      .values(rows)
      .onConflictDoUpdate({
        target: table.serverId,
        set: {
          remoteUrl: excluded('remote_url'),
          state: excluded('state'),
          latencyMs: excluded('latency_ms'),
          checkedAt: excluded('checked_at'),
          lastOkAt: excluded('last_ok_at'),
          failures: excluded('failures'),
          deadSince: excluded('dead_since'),
          writtenAt: sql`now()`,
        },
        setWhere: FOLLOWS,
      })
      .returning({ id: table.serverId });
    for (const { id } of stored) written.add(id);
  }
  return known.filter(({ serverId }) => written.has(serverId));
}
