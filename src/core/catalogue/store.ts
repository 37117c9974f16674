import { setImmediate } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { eq, inArray, sql } from 'drizzle-orm';
import type { Database } from '../../platform/database/database.ts';
import { slices, type Pause } from '../../platform/yield.ts';
import { excluded } from '../../platform/database/columns.ts';
import { servers as table, serverToolParts as parts } from './schema.ts';
import { cleanText } from '../../platform/sanitize.ts';
import { cleanTool } from './tools/definitions.ts';
import {
  bareTool,
  type CataloguedTool,
  type Entry,
  type Origin,
  type RegistryMark,
  type Server,
  type Tool,
} from './entry.ts';

/** Rows a statement names at most, and what it writes at most: PGlite runs on the main thread, and a bigger batch would hold the event loop. */
const BATCH_ROWS = 50;
const BATCH_CHARS = 50_000;
/** JSON of the tools in one value but for a single tool: a row of 1 MB held the event loop for 50 ms. */
const PART_CHARS = 30_000;

/** In an upsert of rows: the new values, whatever stood there. */
const OVERWRITE = {
  name: excluded('name'),
  description: excluded('description'),
  remoteUrl: excluded('remote_url'),
  transport: excluded('transport'),
  auth: excluded('auth'),
  homepage: excluded('homepage'),
  repository: excluded('repository'),
  categories: excluded('categories'),
  tools: excluded('tools'),
  toolsListedAt: excluded('tools_listed_at'),
  origin: excluded('origin'),
  registry: excluded('registry'),
  active: excluded('active'),
  unanswered: excluded('unanswered'),
  updatedAt: sql`now()`,
};

/** Rows that are as they were are not written again: nothing takes the old versions away from the embedded database. */
const IS_OTHER = (() => {
  const { updatedAt: _always, ...columns } = OVERWRITE;
  const stored = Object.keys(columns).map(name => sql`${table[name as keyof typeof columns]}`);
  return sql`(${sql.join(stored, sql`, `)}) is distinct from (${sql.join(Object.values(columns), sql`, `)})`;
})();

/** For good, as far as probing is concerned. */
const INACTIVE = { active: false, unanswered: false, updatedAt: sql`now()` };

/**
 * The last definition wins where a tool's name stands twice; the order is that of the first. Texts are cleaned; tools whose
 * names cannot be are left out.
 * @param known the catalogued server of that id: what is as it was is that object, in memory once
 */
export async function toServer(
  entry: Entry,
  origin: Origin,
  {
    known,
    registry,
    pause = slices(),
  }: { known?: Server | undefined; registry?: RegistryMark | undefined; pause?: Pause } = {},
): Promise<{ server: Server; leftOut: string[] }> {
  const knownTools = new Map(known?.tools.map(tool => [tool.name, tool]));
  const tools = new Map<string, CataloguedTool | undefined>();
  for (const tool of entry.tools ?? []) {
    const same = knownTools.get(tool.name);
    tools.set(tool.name, same && isAsItCame(same, tool) ? same : cleanTool(tool));
    await pause();
  }
  const bare = withTools(
    entry,
    origin,
    [...tools.values()].filter(tool => tool !== undefined),
  );
  const server = registry ? { ...bare, ...toolsStaying(bare, known), registry } : bare;
  return {
    server: known && isDeepStrictEqual(known, server) ? known : server,
    leftOut: [...tools].flatMap(([name, tool]) => (tool ? [] : cleanText(name).slice(0, 100))),
  };
}

/** A registry says nothing of tools: those that were listed at the same address stay. */
function toolsStaying({ remoteUrl }: Server, known: Server | undefined): Partial<Server> {
  if (known?.remoteUrl !== remoteUrl) return {};
  const { tools, toolsListedAt } = known;
  return { tools, ...(toolsListedAt === undefined ? {} : { toolsListedAt }) };
}

const withTools = (entry: Entry, origin: Origin, tools: readonly CataloguedTool[]): Server => ({
  id: entry.id,
  name: cleanText(entry.name) || entry.id,
  description: cleanText(entry.description),
  remoteUrl: entry.remote_url,
  ...(entry.transport === undefined ? {} : { transport: entry.transport }),
  auth: entry.auth ?? { kind: 'unknown' },
  ...(entry.homepage === undefined ? {} : { homepage: entry.homepage }),
  ...(entry.repository === undefined ? {} : { repository: entry.repository }),
  categories: entry.categories ?? [],
  tools,
  origin,
  active: true,
});

/** The entry over the texts and schemas of the catalogued server that it describes anew, so that they are in memory once. */
export function sharing(entry: Entry, known: Server | undefined): Entry {
  if (!known || !entry.tools) return entry;
  const knownTools = new Map(known.tools.map(tool => [tool.name, tool]));
  const tools = entry.tools.map(tool => {
    const same = knownTools.get(tool.name);
    if (!same || !isAsItCame(same, tool)) return tool;
    return bareTool(same);
  });
  return { ...entry, tools };
}

/** Whether cleaning the tool of an entry would give the catalogued one again. What is suspicious may have been cleaned away. */
const isAsItCame = (known: CataloguedTool, tool: Tool): boolean =>
  known.suspicious === undefined &&
  known.live === undefined &&
  known.description === tool.description &&
  isDeepStrictEqual(known.annotations, tool.annotations) &&
  isDeepStrictEqual(known.input_schema, tool.input_schema);

/** @param tools as JSON, as many of them as go into the row */
const toRow = (server: Server, tools: string) => ({
  ...server,
  transport: server.transport ?? null,
  homepage: server.homepage ?? null,
  repository: server.repository ?? null,
  registry: server.registry ?? null,
  unanswered: server.unanswered ?? false,
  tools: sql`${tools}::jsonb`,
  toolsListedAt: server.toolsListedAt === undefined ? null : new Date(server.toolsListedAt),
});

type Transaction = Pick<Database, 'insert' | 'update' | 'delete'>;

/**
 * Writes every server over what is stored under its id; the event loop has its turn between statements.
 * @param signal ends it there, with its reason
 */
export async function writeServers(
  tx: Transaction,
  servers: readonly Server[],
  signal?: AbortSignal,
): Promise<void> {
  for await (const batch of batchesOf(servers, slices(signal))) {
    signal?.throwIfAborted();
    const rows = batch.map(({ server, first }) => toRow(server, first));
    await tx
      .insert(table)
      .values(rows)
      .onConflictDoUpdate({ target: table.id, set: OVERWRITE, setWhere: IS_OTHER });
    await setImmediate();
    await writeParts(tx, batch);
  }
}

/** Writes a server's tools, and when they were listed, over those that are stored. */
export async function writeTools(tx: Transaction, server: Server): Promise<void> {
  const stored = await storedOf(server, slices());
  const { tools, toolsListedAt } = toRow(server, stored.first);
  await tx
    .update(table)
    .set({ tools, toolsListedAt, updatedAt: sql`now()` })
    .where(eq(table.id, server.id));
  await setImmediate();
  await writeParts(tx, [stored]);
}

async function writeParts(tx: Transaction, batch: readonly Stored[]): Promise<void> {
  const ids = batch.map(({ server }) => server.id);
  await tx.delete(parts).where(inArray(parts.serverId, ids));
  for (const { server, others } of batch) {
    for (const [at, tools] of others.entries()) {
      await tx.insert(parts).values({ serverId: server.id, part: at + 1, tools: sql`${tools}::jsonb` });
      await setImmediate();
    }
  }
}

/** Makes servers inactive, and their rows that origin's. */
export async function retireServers(tx: Transaction, ids: readonly string[], origin: Origin): Promise<void> {
  for (let at = 0; at < ids.length; at += BATCH_ROWS) {
    await tx
      .update(table)
      .set({ ...INACTIVE, origin })
      .where(inArray(table.id, ids.slice(at, at + BATCH_ROWS)));
    await setImmediate();
  }
}

/** A server with the JSON of its tools: what goes into its row, and the parts beyond that. */
interface Stored {
  readonly server: Server;
  readonly first: string;
  readonly others: readonly string[];
}

async function* batchesOf(servers: readonly Server[], pause: Pause): AsyncGenerator<Stored[]> {
  let batch: Stored[] = [];
  let chars = 0;
  for (const server of servers) {
    const stored = await storedOf(server, pause);
    const own = stored.first.length + server.description.length;
    if (batch.length > 0 && (batch.length === BATCH_ROWS || chars + own > BATCH_CHARS)) {
      yield batch;
      batch = [];
      chars = 0;
    }
    batch.push(stored);
    chars += own;
  }
  if (batch.length > 0) yield batch;
}

async function storedOf(server: Server, pause: Pause): Promise<Stored> {
  const arrays: string[] = [];
  let texts: string[] = [];
  let chars = 0;
  for (const tool of server.tools) {
    const text = JSON.stringify(tool);
    if (texts.length > 0 && chars + text.length > PART_CHARS) {
      arrays.push(`[${texts.join(',')}]`);
      texts = [];
      chars = 0;
    }
    texts.push(text);
    chars += text.length;
    await pause();
  }
  const [first = `[${texts.join(',')}]`, ...others] = arrays;
  return { server, first, others: arrays.length === 0 ? [] : [...others, `[${texts.join(',')}]`] };
}
