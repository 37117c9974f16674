import { setImmediate } from 'node:timers/promises';
import { asc, gt, sql } from 'drizzle-orm';
import type { Database } from '../../../platform/database/database.ts';
import { servers as table, serverToolParts as parts } from '../schema.ts';

const PAGE_ROWS = 1_000;
/** How long the result counts, because reading all tools takes long. */
const BELIEVED_MS = 60_000;

/** The servers of which a tool matches a suspicion rule. */
export class SuspiciousServers {
  readonly #db: Database;
  #read: { readonly atMs: number; readonly ids: Promise<ReadonlySet<string>> } | undefined;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Returns their ids, active or not. It may be a minute behind. */
  async ids(): Promise<ReadonlySet<string>> {
    const nowMs = performance.now();
    if (!this.#read || nowMs - this.#read.atMs > BELIEVED_MS)
      this.#read = { atMs: nowMs, ids: readSuspicious(this.#db) };
    try {
      return await this.#read.ids;
    } catch (error) {
      this.#read = undefined;
      throw error;
    }
  }
}

/** Yields to the event loop between pages. */
async function readSuspicious(db: Database): Promise<ReadonlySet<string>> {
  const ids = new Set<string>();
  const ofParts = sql`exists (select from ${parts} where ${parts.serverId} = ${table.id} and ${isSuspicious(parts.tools)})`;
  for (let last: string | undefined; ;) {
    const page = await db
      .select({ id: table.id, isSuspicious: sql<boolean>`${isSuspicious(table.tools)} or ${ofParts}` })
      .from(table)
      .where(last === undefined ? undefined : gt(table.id, last))
      .orderBy(asc(table.id))
      .limit(PAGE_ROWS);
    for (const one of page) if (one.isSuspicious) ids.add(one.id);
    last = page.at(-1)?.id;
    if (last === undefined || page.length < PAGE_ROWS) return ids;
    await setImmediate();
  }
}

const isSuspicious = (tools: typeof table.tools | typeof parts.tools) =>
  sql`jsonb_path_exists(${tools}, '$[*].suspicious')`;
