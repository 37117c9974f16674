import { setImmediate } from 'node:timers/promises';
import { and, asc, eq, getTableColumns as getColumns, gt, gte, inArray, lt, not, or, sql } from 'drizzle-orm';
import { excluded } from '../../platform/database/columns.ts';
import type { Database } from '../../platform/database/database.ts';
import { cleanText } from '../../platform/sanitize.ts';
import { slices, type Pause } from '../../platform/time.ts';
import type { CatalogueChange, PutOptions } from './changes.ts';
import type {
  CataloguedTool,
  HeldServer,
  LearnedAccess,
  Origin,
  RegistryHead,
  Server,
  ServerHead,
  Tool,
} from './entry.ts';
import { serverHealth, servers as table, serverToolParts as parts } from './schema.ts';
import { cleanTool } from './tools/definitions.ts';
import { forgetDefinitions } from './tools/store.ts';

/** PGlite reads rows on the main thread, so a page of whole servers is small. */
const PAGE_ROWS = 50;

/** A range of transaction numbers: from `from` up to, but excluding, `before`. */
interface Transactions {
  readonly from: number;
  readonly before: number;
}

const exampleCount = sql<number>`coalesce(jsonb_array_length(${table.examples}), 0)::int`;
const toolCount = sql<number>`(jsonb_array_length(${table.tools}) + (select coalesce(sum(jsonb_array_length(${parts.tools})), 0) from ${parts} where ${parts.serverId} = ${table.id}))::int`;
const suspiciousIn = (tools: typeof table.tools | typeof parts.tools) =>
  sql`jsonb_array_length(jsonb_path_query_array(${tools}, '$[*] ? (exists (@.suspicious))'))`;
const suspiciousCount = sql<number>`(${suspiciousIn(table.tools)} + (select coalesce(sum(${suspiciousIn(parts.tools)}), 0) from ${parts} where ${parts.serverId} = ${table.id}))::int`;

/** Reads the heads of all stored servers. Yields to the event loop between pages. */
export async function readHeads(db: Database): Promise<HeldServer[]> {
  const heads: HeldServer[] = [];
  for (let last: string | undefined; ;) {
    const page = await db
      .select({
        id: table.id,
        name: table.name,
        remoteUrl: table.remoteUrl,
        transport: table.transport,
        auth: table.auth,
        learned: table.learned,
        toolsListedAt: table.toolsListedAt,
        integrations: table.integrations,
        origin: table.origin,
        registry: sql<RegistryHead | null>`${table.registry} - 'document'`,
        active: table.active,
        unreachable: table.unreachable,
        toolCount,
        exampleCount,
        suspiciousCount,
      })
      .from(table)
      .where(last === undefined ? undefined : gt(table.id, last))
      .orderBy(asc(table.id))
      .limit(HEADS_OF_A_PAGE);
    for (const { registry, ...row } of page) {
      const mark = registry === null ? {} : { registry };
      const counts = {
        toolCount: row.toolCount,
        exampleCount: row.exampleCount,
        suspiciousCount: row.suspiciousCount,
      };
      heads.push({ ...headFrom(row), ...mark, ...counts });
    }
    last = page.at(-1)?.id;
    if (last === undefined || page.length < HEADS_OF_A_PAGE) return heads;
    await setImmediate();
  }
}

const HEADS_OF_A_PAGE = 1_000;

/** Returns the ids of the servers that one of the transactions has written, with its number. */
export function readWritten(
  db: Database,
  { from, before }: Transactions,
): Promise<{ id: string; revision: number }[]> {
  return db
    .select({ id: table.id, revision: table.revision })
    .from(table)
    .where(and(gte(table.revision, from), lt(table.revision, before)))
    .orderBy(asc(table.id));
}

/** One statement reads a row with its parts: two could see different versions. */
const whole = (db: Database) =>
  db
    .select({
      ...getColumns(table),
      moreTools: sql<
        (readonly CataloguedTool[])[]
      >`(select coalesce(jsonb_agg(${parts.tools} order by ${parts.part}), '[]') from ${parts} where ${parts.serverId} = ${table.id})`,
    })
    .from(table);

type WholeRow = Awaited<ReturnType<typeof whole>>[number];

/** Reads the stored servers with these ids, in no particular order. Yields to the event loop between pages. */
export async function readServers(db: Database, ids: readonly string[]): Promise<Server[]> {
  const servers: Server[] = [];
  for (const batch of batched(ids, PAGE_ROWS)) {
    const rows = await whole(db).where(inArray(table.id, batch));
    for (const row of rows) servers.push(fromRow(row));
    if (ids.length > PAGE_ROWS) await setImmediate();
  }
  return servers;
}

/** The part of a server that lists show besides its head. */
type Described = Pick<Server, 'description' | 'categories'>;

/** Reads the descriptions of servers by id, without their tools, which may be large. */
export async function readDescribed(
  db: Database,
  ids: readonly string[],
): Promise<ReadonlyMap<string, Described>> {
  const rows = await db
    .select({ id: table.id, description: table.description, categories: table.categories })
    .from(table)
    .where(inArray(table.id, [...ids]));
  return new Map(
    rows.map(({ id, description, categories }) => [id, { description: cleanText(description), categories }]),
  );
}

/** Yields all active servers by id, page by page. */
export async function* pagesOfServers(db: Database): AsyncGenerator<Server[]> {
  for (let last: string | undefined; ;) {
    const page = await whole(db)
      .where(and(eq(table.active, true), last === undefined ? undefined : gt(table.id, last)))
      .orderBy(asc(table.id))
      .limit(PAGE_ROWS);
    yield page.map(fromRow);
    last = page.at(-1)?.id;
    if (last === undefined || page.length < PAGE_ROWS) return;
    await setImmediate();
  }
}

type HeadRow = Pick<
  WholeRow,
  | 'id'
  | 'name'
  | 'remoteUrl'
  | 'transport'
  | 'auth'
  | 'learned'
  | 'toolsListedAt'
  | 'integrations'
  | 'origin'
  | 'active'
  | 'unreachable'
>;

/** Cleans the names again, because an older version may have stored the row with fewer rules. */
const headFrom = (row: HeadRow) => ({
  id: row.id,
  name: cleanText(row.name),
  remoteUrl: row.remoteUrl,
  auth: row.auth,
  origin: row.origin,
  active: row.active,
  ...(row.transport === null ? {} : { transport: row.transport }),
  ...(row.unreachable ? { unreachable: row.unreachable } : {}),
  ...(row.learned?.remoteUrl === row.remoteUrl ? { learned: row.learned.access } : {}),
  ...(row.toolsListedAt === null ? {} : { toolsListedAt: row.toolsListedAt.getTime() }),
  ...(row.integrations === null ? {} : { integrations: row.integrations.map(cleanText) }),
});

/** Cleans the texts again, as `headFrom` does. */
const fromRow = (row: WholeRow): Server => ({
  ...headFrom(row),
  description: cleanText(row.description),
  categories: row.categories,
  tools: [...row.tools, ...stillMore(row.tools, row.moreTools.flat())].flatMap(tool => cleanTool(tool) ?? []),
  ...(row.examples === null ? {} : { examples: row.examples.map(cleanText) }),
  ...(row.homepage === null ? {} : { homepage: row.homepage }),
  ...(row.repository === null ? {} : { repository: row.repository }),
  ...(row.registry === null ? {} : { registry: row.registry }),
});

/**
 * After a rollback, an older version writes all tools into the row and ignores the parts. A name that is in both shows that
 * the row is complete.
 */
function stillMore(inRow: readonly Tool[], inParts: readonly CataloguedTool[]): readonly CataloguedTool[] {
  const names = new Set(inRow.map(({ name }) => name));
  return inParts.some(({ name }) => names.has(name)) ? [] : inParts;
}

/**
 * The maximum rows and characters per statement: PGlite runs on the main thread, where a bigger batch would block the event loop.
 */
const BATCH_ROWS = 50;
const BATCH_CHARS = 50_000;
/** The maximum size of a value with tools, except for a single larger tool: a row of 1 MB blocked the event loop for 50 ms. */
const PART_CHARS = 30_000;

/** Applies all new values in an upsert. No entry says what was learned, so that stays. */
const OVERWRITE = {
  name: excluded('name'),
  description: excluded('description'),
  remoteUrl: excluded('remote_url'),
  transport: excluded('transport'),
  auth: excluded('auth'),
  homepage: excluded('homepage'),
  repository: excluded('repository'),
  categories: excluded('categories'),
  examples: excluded('examples'),
  integrations: excluded('integrations'),
  tools: excluded('tools'),
  toolsListedAt: excluded('tools_listed_at'),
  origin: excluded('origin'),
  registry: excluded('registry'),
  active: excluded('active'),
  unreachable: excluded('unanswered'),
  updatedAt: sql`now()`,
};

/** Unchanged rows are not written, because the embedded database never removes old row versions. */
const IS_OTHER = (() => {
  const { updatedAt: _always, ...columns } = OVERWRITE;
  const stored = Object.keys(columns).map(name => sql`${table[name as keyof typeof columns]}`);
  return sql`(${sql.join(stored, sql`, `)}) is distinct from (${sql.join(Object.values(columns), sql`, `)})`;
})();

/** Permanently inactive: no health check reactivates the server. */
const INACTIVE = { active: false, unreachable: false, updatedAt: sql`now()` };

/** @param tools JSON of the tools that go into the row */
const toRow = (server: Server, tools: string) => ({
  ...server,
  transport: server.transport ?? null,
  examples: server.examples ?? null,
  integrations: server.integrations ?? null,
  homepage: server.homepage ?? null,
  repository: server.repository ?? null,
  registry: server.registry ?? null,
  learned: null,
  unreachable: server.unreachable ?? false,
  tools: sql`${tools}::jsonb`,
  toolsListedAt: server.toolsListedAt === undefined ? null : new Date(server.toolsListedAt),
});

type Transaction = Pick<Database, 'insert' | 'update' | 'delete'>;

/** Writes servers over the stored ones. The signal aborts it between two statements, where it yields to the event loop. */
async function writeServers(
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

/** Replaces a server's stored tools and the time of their listing. */
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

async function writeParts(tx: Transaction, batch: readonly StoredTools[]): Promise<void> {
  const ids = batch.map(({ server }) => server.id);
  await tx.delete(parts).where(inArray(parts.serverId, ids));
  for (const { server, others } of batch) {
    for (const [at, tools] of others.entries()) {
      await tx.insert(parts).values({ serverId: server.id, part: at + 1, tools: sql`${tools}::jsonb` });
      await setImmediate();
    }
  }
}

/** Deactivates servers permanently; their rows then belong to that origin. */
export async function retireServers(tx: Transaction, ids: readonly string[], origin: Origin): Promise<void> {
  for (const batch of batched(ids)) {
    await tx
      .update(table)
      .set({ ...INACTIVE, origin })
      .where(inArray(table.id, batch));
    await setImmediate();
  }
}

/** Another process has changed the server in the meantime. */
export class ConcurrentEdit extends Error {
  override readonly name = 'ConcurrentEdit';
}

/**
 * Stores whether a server is inactive as unreachable.
 * @throws ConcurrentEdit if the row differs from `before`
 */
export async function writeUnreachable(tx: Transaction, server: Server, before: ServerHead): Promise<void> {
  const { active, unreachable = false } = server;
  const written = await tx
    .update(table)
    .set({ active, unreachable, updatedAt: sql`now()` })
    .where(
      and(
        eq(table.id, server.id),
        eq(table.remoteUrl, before.remoteUrl),
        eq(table.active, before.active),
        eq(table.unreachable, before.unreachable ?? false),
      ),
    )
    .returning({ id: table.id });
  if (written.length === 0) throw new ConcurrentEdit(`${server.id} was changed by another process`);
}

/**
 * Stores what was learned of a server's access. Does nothing if the row has another address. Resolves to the number of the
 * transaction.
 */
export async function writeLearned(
  db: Transaction,
  { id, remoteUrl }: Pick<Server, 'id' | 'remoteUrl'>,
  access: LearnedAccess,
): Promise<number | undefined> {
  const [written] = await db
    .update(table)
    .set({ learned: { remoteUrl, access } })
    .where(and(eq(table.id, id), eq(table.remoteUrl, remoteUrl)))
    .returning({ revision: table.revision });
  return written?.revision;
}

/** A change to be stored, with the ids of servers that need more than their row written. */
interface StoredChange {
  readonly change: CatalogueChange;
  /** Servers whose address has changed. */
  readonly moved: readonly string[];
  /** Servers that were inactive as unreachable. */
  readonly reinstated: readonly string[];
}

/**
 * Stores a change. A registry's change writes only rows of that registry, because another process may have changed the
 * catalogue in the meantime. Resolves with the change as it was stored: `left` includes such rows.
 */
export async function writeChange(
  tx: Database,
  { change, moved, reinstated }: StoredChange,
  { origin, registry, signal }: PutOptions,
): Promise<CatalogueChange> {
  const ids = [...change.upserted.map(({ id }) => id), ...change.removed];
  const others = registry ? await ofOthers(tx, ids, registry.source) : new Set<string>();
  const isOwn = (id: string) => !others.has(id);
  const stored: CatalogueChange = {
    upserted: change.upserted.filter(({ id }) => isOwn(id)),
    removed: change.removed.filter(isOwn),
    left: [...(change.left ?? []), ...others],
  };
  await writeServers(tx, stored.upserted, signal);
  await forgetDefinitions(tx, moved.filter(isOwn));
  for (const batch of batched(reinstated.filter(isOwn))) {
    await tx
      .update(serverHealth)
      .set({ failures: 0, deadSince: null, writtenAt: sql`now()` })
      .where(inArray(serverHealth.serverId, batch));
  }
  await retireServers(tx, stored.removed, origin);
  return stored;
}

async function ofOthers(tx: Database, ids: readonly string[], source: string): Promise<Set<string>> {
  const isOther = or(
    not(sql`${table.origin} = 'registry'`),
    sql`${table.registry} ->> 'source' is distinct from ${source}`,
  );
  const others = new Set<string>();
  for (const batch of batched(ids, 500)) {
    const found = await tx
      .select({ id: table.id })
      .from(table)
      .where(and(inArray(table.id, batch), isOther));
    for (const { id } of found) others.add(id);
  }
  return others;
}

function* batched(ids: readonly string[], size = BATCH_ROWS): Generator<string[]> {
  for (let at = 0; at < ids.length; at += size) yield ids.slice(at, at + size);
}

/** A server with the JSON of its tools: `first` is stored in its row, `others` in parts. */
interface StoredTools {
  readonly server: Server;
  readonly first: string;
  readonly others: readonly string[];
}

async function* batchesOf(servers: readonly Server[], pause: Pause): AsyncGenerator<StoredTools[]> {
  let batch: StoredTools[] = [];
  let chars = 0;
  for (const server of servers) {
    const stored = await storedOf(server, pause);
    const texts = [server.description, ...(server.examples ?? []), ...(server.integrations ?? [])];
    const own = stored.first.length + texts.join('').length;
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

async function storedOf(server: Server, pause: Pause): Promise<StoredTools> {
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
