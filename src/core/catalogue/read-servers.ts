import { setImmediate } from 'node:timers/promises';
import { and, asc, gt, gte, inArray, lt } from 'drizzle-orm';
import type { Database } from '../../platform/database/database.ts';
import { servers as table, serverToolParts as parts } from './schema.ts';
import { cleanText } from '../../platform/sanitize.ts';
import { cleanTool } from './tools/definitions.ts';
import type { CataloguedTool, Server, Tool } from './entry.ts';

const PAGE_ROWS = 200;

/** Rows of a version that did not clean texts are cleaned here, and the rules of today apply to all. */
function fromRow(row: typeof table.$inferSelect, moreTools: readonly CataloguedTool[]): Server {
  const {
    transport,
    homepage,
    repository,
    toolsListedAt,
    registry,
    createdAt: _created,
    updatedAt: _updated,
    revision: _revision,
    unanswered,
    ...rest
  } = row;
  return {
    ...rest,
    name: cleanText(rest.name),
    description: cleanText(rest.description),
    tools: [...rest.tools, ...stillMore(rest.tools, moreTools)].flatMap(tool => cleanTool(tool) ?? []),
    ...(transport === null ? {} : { transport }),
    ...(homepage === null ? {} : { homepage }),
    ...(repository === null ? {} : { repository }),
    ...(registry === null ? {} : { registry }),
    ...(unanswered ? { unanswered } : {}),
    ...(toolsListedAt === null ? {} : { toolsListedAt: toolsListedAt.getTime() }),
  };
}

/**
 * A program from before the parts, as runs after a rollback, writes all tools into the row and leaves the parts as they are:
 * a name that is in both says that the row is whole.
 */
function stillMore(inRow: readonly Tool[], inParts: readonly CataloguedTool[]): readonly CataloguedTool[] {
  const names = new Set(inRow.map(({ name }) => name));
  return inParts.some(({ name }) => names.has(name)) ? [] : inParts;
}

/** Transactions by their numbers: `from`, and all up to but not `before`. */
interface Transactions {
  readonly from: number;
  readonly before: number;
}

/**
 * Every stored server, or those that one of the transactions has written, of one moment; the event loop has its turn between
 * pages of them.
 */
export function readServers(db: Database, written?: Transactions): Promise<Server[]> {
  const isWritten = written && and(gte(table.revision, written.from), lt(table.revision, written.before));
  return db.transaction(
    async tx => {
      const servers: Server[] = [];
      for (let last: string | undefined; ;) {
        const page = await tx
          .select()
          .from(table)
          .where(and(isWritten, last === undefined ? undefined : gt(table.id, last)))
          .orderBy(asc(table.id))
          .limit(PAGE_ROWS);
        const ids = page.map(row => row.id);
        const more = await tx
          .select()
          .from(parts)
          .where(inArray(parts.serverId, ids))
          .orderBy(asc(parts.serverId), asc(parts.part));
        const moreOf = Map.groupBy(more, ({ serverId }) => serverId);
        for (const row of page)
          servers.push(fromRow(row, moreOf.get(row.id)?.flatMap(({ tools }) => tools) ?? []));
        last = ids.at(-1);
        if (last === undefined || page.length < PAGE_ROWS) return servers;
        await setImmediate();
      }
    },
    { isolationLevel: 'repeatable read', accessMode: 'read only' },
  );
}
