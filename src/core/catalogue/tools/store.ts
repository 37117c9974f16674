import { isDeepStrictEqual } from 'node:util';
import { and, eq, inArray } from 'drizzle-orm';
import { excluded } from '../../../platform/database/columns.ts';
import type { Database } from '../../../platform/database/database.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import type { CataloguedTool, Server } from '../entry.ts';
import { toolDefinitions as table } from '../schema.ts';
import { readDefinitions, type Definition } from './definitions.ts';

/** Definitions remembered per server, including those of tools it no longer lists. */
const MAX_REMEMBERED = 2_000;
const BATCH_ROWS = 100;

type Row = typeof table.$inferSelect;

/** A server's own listing, ready to be stored. */
export interface StoredListing {
  readonly tools: readonly CataloguedTool[];
  /** True if neither a tool nor a remembered definition would change. */
  readonly isSame: boolean;
  /** True if a search could distinguish the new tools from the old ones. */
  readonly isVisible: boolean;
  readonly write: (tx: Pick<Database, 'insert' | 'delete'>) => Promise<void>;
}

interface ListingOptions {
  readonly definitions: readonly Definition[];
  /** When they were listed. */
  readonly nowMs: number;
  /** Limits new and changed tools; the rest stay unchanged. */
  readonly maxNews: number;
}

/**
 * Compares the tools that a server lists with those in the catalogue, and with the last definitions that it listed under the
 * same names, even before a restart or an upgrade. A tool's first definition is not a change.
 */
export async function compareListing(
  db: Database,
  log: Log | undefined,
  known: Server,
  { definitions, nowMs, maxNews }: ListingOptions,
): Promise<StoredListing> {
  const { id: serverId } = known;
  const { tools: listed, leftOut } = await readDefinitions(definitions);
  for (const { tool, reason } of leftOut) log?.warn({ serverId, tool, reason }, 'skipped a listed tool');
  const taken = newsWithin(maxNews, listed, known.tools);
  const rows = await db.select().from(table).where(eq(table.serverId, serverId));
  const remembered = new Map(rows.map(row => [row.tool, row]));
  const fresh: Row[] = [];
  const tools: CataloguedTool[] = [];
  for (const tool of taken) {
    // A tool from the catalogue's entry: its server's own definition is not known yet.
    if (!tool.live) {
      tools.push(tool);
      continue;
    }
    const { hash } = tool.live;
    let row = remembered.get(tool.name);
    if (row?.hash !== hash) {
      if (row)
        log?.warn({ serverId, tool: tool.name, oldHash: row.hash, newHash: hash }, 'tool definition changed');
      row = { serverId, tool: tool.name, hash, firstSeenAt: new Date(nowMs), changed: row !== undefined };
      fresh.push(row);
    }
    const changed = row.changed ? { changedAt: row.firstSeenAt.getTime() } : {};
    tools.push({ ...tool, live: { hash, ...changed } });
  }
  const forgotten = oldestOf(rows, new Set(tools.map(tool => tool.name)), fresh.length);
  const isVisible = !sameTexts(tools, known.tools);
  logSuspicious(log, { id: serverId, tools }, known);
  return {
    tools,
    isVisible,
    isSame: !isVisible && fresh.length + forgotten.length === 0 && known.toolsListedAt !== undefined,
    write: tx => remember(tx, serverId, fresh, forgotten),
  };
}

async function remember(
  tx: Pick<Database, 'insert' | 'delete'>,
  serverId: string,
  fresh: readonly Row[],
  forgotten: readonly string[],
): Promise<void> {
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
}

/** Returns the tools that are no longer listed and whose definitions no longer fit. */
function oldestOf(rows: readonly Row[], listed: ReadonlySet<string>, added: number): string[] {
  const excess = rows.length + added - MAX_REMEMBERED;
  if (excess <= 0) return [];
  return rows
    .filter(row => !listed.has(row.tool))
    .sort((a, b) => a.firstSeenAt.getTime() - b.firstSeenAt.getTime())
    .slice(0, excess)
    .map(row => row.tool);
}

/** Deletes the definitions of servers that have moved: a different address is a different server. */
export async function forgetDefinitions(
  tx: Pick<Database, 'delete'>,
  serverIds: readonly string[],
): Promise<void> {
  for (let at = 0; at < serverIds.length; at += BATCH_ROWS)
    await tx.delete(table).where(inArray(table.serverId, serverIds.slice(at, at + BATCH_ROWS)));
}

/** Logs suspicious tools, once per definition. */
export function logSuspicious(
  log: Log | undefined,
  { id, tools }: Pick<Server, 'id' | 'tools'>,
  before: Pick<Server, 'tools'> | undefined,
): void {
  const known = new Map(before?.tools.map(tool => [tool.name, tool]));
  for (const tool of tools) {
    if (tool.suspicious && !sameText(tool, known.get(tool.name)))
      log?.warn({ serverId: id, tool: tool.name, rules: tool.suspicious }, 'suspicious tool definition');
  }
}

/** Compares what search and callers see of two lists of tools. */
const sameTexts = (a: readonly CataloguedTool[], b: readonly CataloguedTool[]): boolean =>
  a.length === b.length && a.every((tool, at) => sameText(tool, b[at]));

const sameText = (a: CataloguedTool, b: CataloguedTool | undefined): boolean =>
  a.name === b?.name &&
  a.description === b.description &&
  isDeepStrictEqual(a.annotations, b.annotations) &&
  JSON.stringify(a.input_schema) === JSON.stringify(b.input_schema);

/** Returns the listed tools. Beyond `maxNews` new or changed ones, tools stay unchanged or omitted. */
function newsWithin(
  maxNews: number,
  listed: readonly CataloguedTool[],
  known: readonly CataloguedTool[],
): CataloguedTool[] {
  const before = new Map(known.map(tool => [tool.name, tool]));
  let news = 0;
  return listed.flatMap(tool => {
    const old = before.get(tool.name);
    if (old && sameText(old, tool)) return tool;
    return news++ < maxNews ? tool : (old ?? []);
  });
}
