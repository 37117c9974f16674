import { sql } from 'drizzle-orm';
import { excluded, type servers } from '../schema.ts';
import { cleanText } from '../text.ts';
import { cleanTool } from './definitions.ts';
import type { Entry, Server } from './entry.ts';

/** In an upsert of rows: the new values, whatever stood there. */
export const OVERWRITE = {
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
  active: excluded('active'),
  updatedAt: sql`now()`,
};

export const INACTIVE = { active: false, updatedAt: sql`now()` };

/**
 * The last definition wins where a tool's name stands twice; the order is that of the first. Texts are cleaned; tools whose
 * names cannot be are left out.
 */
export function toServer(entry: Entry, origin: Server['origin']): { server: Server; leftOut: string[] } {
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
    active: true,
  };
  return {
    server,
    leftOut: [...tools].flatMap(([name, tool]) => (tool ? [] : cleanText(name).slice(0, 100))),
  };
}

export const toRow = (server: Server) => ({
  ...server,
  transport: server.transport ?? null,
  homepage: server.homepage ?? null,
  repository: server.repository ?? null,
  toolsListedAt: server.toolsListedAt === undefined ? null : new Date(server.toolsListedAt),
});

/** Rows of a version that did not clean texts are cleaned here, and the rules of today apply to all. */
export function fromRow(row: typeof servers.$inferSelect): Server {
  const {
    transport,
    homepage,
    repository,
    toolsListedAt,
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
    ...(toolsListedAt === null ? {} : { toolsListedAt: toolsListedAt.getTime() }),
  };
}
