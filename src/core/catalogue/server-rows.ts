import { setImmediate } from 'node:timers/promises';
import { inArray, sql, type SQLWrapper } from 'drizzle-orm';
import type { Database } from '../../infra/database.ts';
import { excluded, servers as table } from '../schema.ts';
import { cleanText } from '../text.ts';
import { cleanTool } from './definitions.ts';
import type { Entry, Origin, RegistryMark, Server } from './entry.ts';

/** Rows a statement names at most, and what it writes at most but for a single row: PGlite runs on the main thread, and a bigger batch would hold the event loop. */
const BATCH_ROWS = 100;
const BATCH_CHARS = 50_000;

const VALUES = {
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
};

const listOf = (parts: readonly SQLWrapper[]) => sql.join(parts as SQLWrapper[], sql`, `);
const stored = listOf(Object.keys(VALUES).map(name => sql`${table[name as keyof typeof VALUES]}`));

/** In an upsert of rows: the new values, whatever stood there. Whoever asks what has changed since is told of changes alone. */
const OVERWRITE = {
  ...VALUES,
  updatedAt: sql`case when (${stored}) is distinct from (${listOf(Object.values(VALUES))}) then now() else ${table.updatedAt} end`,
};

export const INACTIVE = { active: false, updatedAt: sql`now()` };

/**
 * The last definition wins where a tool's name stands twice; the order is that of the first. Texts are cleaned; tools whose
 * names cannot be are left out.
 */
export function toServer(
  entry: Entry,
  origin: Origin,
  registry?: RegistryMark,
): { server: Server; leftOut: string[] } {
  const tools = new Map((entry.tools ?? []).map(tool => [tool.name, cleanTool(tool)]));
  const server: Server = {
    id: entry.id,
    name: cleanText(entry.name) || entry.id,
    description: cleanText(entry.description),
    remoteUrl: entry.remote_url,
    ...(entry.transport === undefined ? {} : { transport: entry.transport }),
    auth: entry.auth ?? { kind: 'unknown' },
    ...(entry.homepage === undefined ? {} : { homepage: entry.homepage }),
    ...(entry.repository === undefined ? {} : { repository: entry.repository }),
    categories: entry.categories ?? [],
    tools: [...tools.values()].filter(tool => tool !== undefined),
    origin,
    ...(registry === undefined ? {} : { registry }),
    active: true,
  };
  return {
    server,
    leftOut: [...tools].flatMap(([name, tool]) => (tool ? [] : cleanText(name).slice(0, 100))),
  };
}

const toRow = (server: Server) => ({
  ...server,
  transport: server.transport ?? null,
  homepage: server.homepage ?? null,
  repository: server.repository ?? null,
  registry: server.registry ?? null,
  toolsListedAt: server.toolsListedAt === undefined ? null : new Date(server.toolsListedAt),
});

/** Rows of a version that did not clean texts are cleaned here, and the rules of today apply to all. */
export function fromRow(row: typeof table.$inferSelect): Server {
  const {
    transport,
    homepage,
    repository,
    toolsListedAt,
    registry,
    createdAt: _created,
    updatedAt: _updated,
    ...rest
  } = row;
  return {
    ...rest,
    name: cleanText(rest.name),
    description: cleanText(rest.description),
    tools: rest.tools.flatMap(tool => cleanTool(tool) ?? []),
    ...(transport === null ? {} : { transport }),
    ...(homepage === null ? {} : { homepage }),
    ...(repository === null ? {} : { repository }),
    ...(registry === null ? {} : { registry }),
    ...(toolsListedAt === null ? {} : { toolsListedAt: toolsListedAt.getTime() }),
  };
}

type Transaction = Pick<Database, 'insert' | 'update'>;

/** Writes every server over what is stored under its id; the event loop has its turn between statements. */
export async function writeServers(tx: Transaction, servers: readonly Server[]): Promise<void> {
  for (const batch of batchesOf(servers)) {
    await tx.insert(table).values(batch.map(toRow)).onConflictDoUpdate({ target: table.id, set: OVERWRITE });
    await setImmediate();
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

function* batchesOf(servers: readonly Server[]): Generator<Server[]> {
  let batch: Server[] = [];
  let chars = 0;
  for (const server of servers) {
    const own = JSON.stringify(server.tools).length;
    if (batch.length > 0 && (batch.length === BATCH_ROWS || chars + own > BATCH_CHARS)) {
      yield batch;
      batch = [];
      chars = 0;
    }
    batch.push(server);
    chars += own;
  }
  if (batch.length > 0) yield batch;
}
