import { setImmediate } from 'node:timers/promises';
import { and, asc, eq, gt, inArray, or } from 'drizzle-orm';
import type { Database } from '../../../platform/database/database.ts';
import { Repeat, slices } from '../../../platform/time.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import type { Server } from '../../catalogue/entry.ts';
import { embeddings as table } from '../schema.ts';
import { documentsOf } from '../documents.ts';
import { textHash } from './vector-cache.ts';
import type { SearchIndex } from './search-index.ts';

/**
 * Number of vectors kept although no text of the catalogue needs them, about 25 MB: an import that was killed, a server or an
 * embedder may come back. A bound on their number needs no record of when each was last used.
 */
const SPARE_ROWS = 50_000;
const PAGE_ROWS = 500;
const EVERY_MS = 86_400_000;
/** The first run waits, because a start has better things to do. */
const FIRST_AFTER_MS = 600_000;

interface PruningParts {
  readonly db: Database;
  /** Names the embedder in use: the vectors of another one are not needed. */
  readonly index: Pick<SearchIndex, 'embedderId'>;
  readonly catalogue: { active(): Iterable<Server> };
  readonly spareRows?: number;
  /** Ends the work between two pages. */
  readonly signal?: AbortSignal;
}

/** Deletes unused vectors beyond the first `spareRows` by hash, which are as good as any. Returns the number of deleted vectors. */
export async function pruneVectors(parts: PruningParts): Promise<number> {
  const { db, spareRows = SPARE_ROWS, signal } = parts;
  const { embedderId } = parts.index;
  const needed = await neededHashes(parts.catalogue.active());
  let spare = spareRows;
  let deleted = 0;
  for await (const page of pagesOf(db)) {
    if (signal?.aborted) break;
    const unneeded = page.filter(
      ({ embedder, textHash: hash }) => embedder !== embedderId || !needed.has(keyOf(hash)),
    );
    const excess = unneeded.slice(spare);
    spare -= Math.min(spare, unneeded.length);
    for (const [embedder, rows] of Map.groupBy(excess, row => row.embedder)) {
      const hashes = rows.map(row => row.textHash);
      await db.delete(table).where(and(eq(table.embedder, embedder), inArray(table.textHash, hashes)));
      await setImmediate();
    }
    deleted += excess.length;
  }
  return deleted;
}

async function neededHashes(servers: Iterable<Server>): Promise<Set<string>> {
  const pause = slices();
  const needed = new Set<string>();
  for (const server of servers) {
    for (const { prose } of documentsOf(server).parts) needed.add(keyOf(textHash(prose)));
    await pause();
  }
  return needed;
}

type Key = Pick<typeof table.$inferSelect, 'embedder' | 'textHash'>;

/** Reads all keys in their order, page by page. */
async function* pagesOf(db: Database): AsyncGenerator<Key[]> {
  let last: Key | undefined;
  for (;;) {
    const after = last
      ? or(
          gt(table.embedder, last.embedder),
          and(eq(table.embedder, last.embedder), gt(table.textHash, last.textHash)),
        )
      : undefined;
    const page = await db
      .select({ embedder: table.embedder, textHash: table.textHash })
      .from(table)
      .where(after)
      .orderBy(asc(table.embedder), asc(table.textHash))
      .limit(PAGE_ROWS);
    yield page;
    await setImmediate();
    last = page.at(-1);
    if (!last || page.length < PAGE_ROWS) return;
  }
}

const keyOf = (hash: Uint8Array): string => Buffer.from(hash).toString('latin1');

/** Prunes ten minutes from now and then once a day. */
export class VectorPruning {
  readonly #parts: PruningParts & { readonly log: Log };
  readonly #closing = new AbortController();
  readonly #repeat = new Repeat(EVERY_MS, () => this.#prune());

  constructor(parts: PruningParts & { readonly log: Log }) {
    this.#parts = { ...parts, signal: this.#closing.signal };
    this.#repeat.start(FIRST_AFTER_MS);
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.#repeat.stop();
  }

  async #prune(): Promise<void> {
    const { log } = this.#parts;
    try {
      const deleted = await pruneVectors(this.#parts);
      if (deleted > 0) log.info({ deleted }, 'deleted unused vectors');
    } catch (error) {
      log.warn({ err: error }, 'unused vectors not deleted');
    }
  }
}
