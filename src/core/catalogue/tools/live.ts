import { and, eq, inArray } from 'drizzle-orm';
import type { Database } from '../../../platform/database/database.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import { excluded } from '../../../platform/database/columns.ts';
import { toolDefinitions as table } from '../schema.ts';
import type { CataloguedTool } from '../entry.ts';

/** Definitions remembered of one server, those of tools it no longer lists among them. */
const MAX_REMEMBERED = 2_000;
const BATCH_ROWS = 100;

type Row = typeof table.$inferSelect;

/** What a server's listing means for the definitions remembered of it. */
export interface Comparison {
  /** The listed tools; those whose definition changed carry when. */
  readonly tools: readonly CataloguedTool[];
  /** Whether there is anything to write. */
  readonly isNews: boolean;
  readonly write: (tx: Pick<Database, 'insert' | 'delete'>) => Promise<void>;
}

/**
 * Compares the tools a server lists now with the last definitions it listed of the same names, be it before a restart or
 * before an upgrade of the catalogue. The first definition of a tool is no change.
 */
export async function compareDefinitions(
  db: Database,
  log: Log | undefined,
  listing: { serverId: string; tools: readonly CataloguedTool[]; nowMs: number },
): Promise<Comparison> {
  const { serverId, tools, nowMs } = listing;
  const rows = await db.select().from(table).where(eq(table.serverId, serverId));
  const known = new Map(rows.map(row => [row.tool, row]));
  const fresh: Row[] = [];
  const compared = tools.map(tool => {
    // Kept from what the catalogue came with: its server's own is yet to be taken.
    if (!tool.live) return tool;
    const { hash } = tool.live;
    let row = known.get(tool.name);
    if (row?.hash !== hash) {
      if (row)
        log?.warn({ serverId, tool: tool.name, oldHash: row.hash, newHash: hash }, 'tool definition changed');
      row = { serverId, tool: tool.name, hash, firstSeenAt: new Date(nowMs), changed: row !== undefined };
      fresh.push(row);
    }
    return { ...tool, live: { hash, ...(row.changed ? { changedAt: row.firstSeenAt.getTime() } : {}) } };
  });
  const forgotten = oldestOf(rows, new Set(tools.map(tool => tool.name)), fresh.length);
  return {
    tools: compared,
    isNews: fresh.length + forgotten.length > 0,
    write: async tx => {
      for (let at = 0; at < fresh.length; at += BATCH_ROWS) {
        await tx
          .insert(table)
          .values(fresh.slice(at, at + BATCH_ROWS))
          .onConflictDoUpdate({
            target: [table.serverId, table.tool],
            set: {
              hash: excluded('hash'),
              firstSeenAt: excluded('first_seen_at'),
              changed: excluded('changed'),
            },
          });
      }
      for (let at = 0; at < forgotten.length; at += BATCH_ROWS) {
        const names = forgotten.slice(at, at + BATCH_ROWS);
        await tx.delete(table).where(and(eq(table.serverId, serverId), inArray(table.tool, names)));
      }
    },
  };
}

/** Tools that are no longer listed and whose definitions there is no more room for. */
function oldestOf(rows: readonly Row[], listed: ReadonlySet<string>, added: number): string[] {
  const excess = rows.length + added - MAX_REMEMBERED;
  if (excess <= 0) return [];
  return rows
    .filter(row => !listed.has(row.tool))
    .sort((a, b) => a.firstSeenAt.getTime() - b.firstSeenAt.getTime())
    .slice(0, excess)
    .map(row => row.tool);
}

/** A server at another address is another server. */
export const forgetDefinitions = async (tx: Pick<Database, 'delete'>, serverIds: readonly string[]) => {
  for (let at = 0; at < serverIds.length; at += BATCH_ROWS)
    await tx.delete(table).where(inArray(table.serverId, serverIds.slice(at, at + BATCH_ROWS)));
};
