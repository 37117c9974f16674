import { and, eq, sql } from 'drizzle-orm';
import type { Database } from '../../platform/database/database.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { servers as table } from './schema.ts';
import { newsWithin, reportSuspicious, sameTexts } from './tools/compare.ts';
import { readDefinitions, type Definition } from './tools/definitions.ts';
import type { Origin, Server } from './entry.ts';
import { compareDefinitions } from './tools/live.ts';
import { retireServers, writeTools } from './store.ts';

/** One server put in the place of another of its id. */
interface Rewrite {
  readonly server: Server;
  /** Whether a search could tell the two apart. */
  readonly isFound: boolean;
  readonly write: (tx: Database) => Promise<void>;
}

/** Makes it of the server as it is known when it is its turn; undefined: nothing is to be done. */
export type Rewriting = (known: Server | undefined) => Promise<Rewrite | undefined>;

type Located = Pick<Server, 'id' | 'remoteUrl'>;

export const LEFT_OUT = 'tool left out of the catalogue';

/** For good: it is that origin's, and no longer for probing to bring back. */
export function withdrawn({ unanswered: _any, ...server }: Server, origin: Origin): Server {
  return { ...server, active: false, origin };
}

/** See `Catalogue.deactivate`. */
export const deactivated: Rewriting = known => {
  if (!known) return Promise.resolve(undefined);
  const write = (tx: Database) => retireServers(tx, [known.id], 'operator');
  return Promise.resolve({ server: withdrawn(known, 'operator'), isFound: true, write });
};

/** See `Catalogue.refreshTools`. */
export const withToolsListed =
  (
    { remoteUrl }: Located,
    {
      definitions,
      nowMs,
      unlessSame,
      maxNews,
      db,
      log,
    }: {
      definitions: readonly Definition[];
      nowMs: number;
      unlessSame: boolean;
      maxNews: number;
      db: Database;
      log: Log | undefined;
    },
  ): Rewriting =>
  async known => {
    if (!known?.active || known.remoteUrl !== remoteUrl || definitions.length === 0) return undefined;
    const { id } = known;
    const { tools: listed, leftOut } = await readDefinitions(definitions);
    for (const { tool, reason } of leftOut) log?.warn({ serverId: id, tool, reason }, LEFT_OUT);
    const taken = newsWithin(maxNews, listed, known.tools);
    const comparison = await compareDefinitions(db, log, { serverId: id, tools: taken, nowMs });
    const { tools } = comparison;
    const isSame = sameTexts(tools, known.tools);
    if (unlessSame && isSame && !comparison.isNews && known.toolsListedAt !== undefined) return undefined;
    reportSuspicious(log, { id, tools }, known);
    const server: Server = { ...known, tools, toolsListedAt: nowMs };
    const write = async (tx: Database) => {
      await comparison.write(tx);
      await writeTools(tx, server);
    };
    return { server, isFound: !isSame, write };
  };

/** Another process has changed the server in the meantime. */
export class Overtaken extends Error {
  override readonly name = 'Overtaken';
}

/** See `Catalogue.setUnanswered`. */
export const answering =
  ({ remoteUrl }: Located, unanswered: boolean): Rewriting =>
  known => {
    const isMeant = known?.remoteUrl === remoteUrl && (unanswered ? known.active : known.unanswered === true);
    if (!isMeant) return Promise.resolve(undefined);
    const { unanswered: _before, ...bare } = known;
    const server: Server = unanswered ? { ...bare, active: false, unanswered } : { ...bare, active: true };
    const write = async (tx: Database) => {
      const written = await tx
        .update(table)
        .set({ active: server.active, unanswered, updatedAt: sql`now()` })
        .where(
          and(
            eq(table.id, server.id),
            eq(table.remoteUrl, remoteUrl),
            eq(table.active, known.active),
            eq(table.unanswered, !unanswered),
          ),
        )
        .returning({ id: table.id });
      if (written.length === 0) throw new Overtaken(`${server.id} was changed by another process`);
    };
    return Promise.resolve({ server, isFound: true, write });
  };
