import { hash as digest } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import { and, asc, eq, gt, inArray, or, sql } from 'drizzle-orm';
import type { Database } from '../../../platform/database/database.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import { Repeat, slices } from '../../../platform/time.ts';
import type { OnProgress } from '../../catalogue/catalogue.ts';
import { embeddings as table } from '../schema.ts';
import type { Embedder } from '../embed/embedder.ts';
import { encodeVector, quantize, VectorFile, viewVector, type QuantizedVector } from './vectors.ts';
import type { Server } from '../../catalogue/entry.ts';
import { documentsOf } from '../documents.ts';
import { pruneDocuments } from './evidence/store.ts';
import type { SearchIndex } from './search-index.ts';

/** The maximum rows per statement: PGlite runs on the main thread, and a bigger batch would block the event loop. */
const BATCH_ROWS = 50;
/** Texts embedded between two writes: the most that a kill loses, per running call. */
const EMBED_BATCH = 50;
/** The default concurrency: one call's texts are embedded while the other's vectors are written. */
const INDEX_CALLS = 2;
const LOG_EVERY = 2_000;

/** Buffer decodes base64 natively; PGlite reads bytea digit by digit, which blocked the event loop. */
const BASE64 = {
  textHash: sql<string>`encode(${table.textHash}, 'base64')`,
  vector: sql<string>`encode(${table.vector}, 'base64')`,
};

/** A text without a vector, and its position in the list. */
interface Missing {
  readonly text: string;
  readonly positions: number[];
}

function addTo(missing: Map<string, Missing>, key: string, one: Missing): void {
  const known = missing.get(key);
  if (known) for (const position of one.positions) known.positions.push(position);
  else missing.set(key, one);
}

/** SHA-256 of a text, the key of its vector. */
export const textHash = (text: string): Buffer => digest('sha256', text, 'buffer');

interface VectorCacheParts {
  readonly embedder: Embedder;
  readonly db: Database;
  readonly log: Log;
  /** A file from `scripts/build-vectors.ts`; used if it was made with the same embedder. */
  readonly shippedFile?: string | undefined;
}

/** Vectors by text: from the shipped file, then from the database, otherwise embedded and stored. */
export class VectorCache {
  readonly #parts: VectorCacheParts;
  readonly #shipped: VectorFile | undefined;

  private constructor(parts: VectorCacheParts, shipped: VectorFile | undefined) {
    this.#parts = parts;
    this.#shipped = shipped;
  }

  /** Never fails: without a usable shipped file everything is embedded here. */
  static async open(parts: VectorCacheParts): Promise<VectorCache> {
    return new VectorCache(parts, await openShipped(parts));
  }

  /**
   * Returns one vector per text, in their order; zeros if the embedder currently has none. All newly embedded vectors are in
   * the database before this resolves; if it rejects, those embedded so far are kept for the next attempt.
   * @param signal aborts between two batches, with its reason
   */
  async vectorsOf(
    texts: readonly string[],
    onProgress?: OnProgress,
    signal?: AbortSignal,
  ): Promise<QuantizedVector[]> {
    const { vectors, missing } = await this.#found(texts, signal);
    await this.#embed(missing, vectors, onProgress, signal);
    return vectors;
  }

  /** Returns one vector per text, in their order, without embedding any: zeros for texts that were never embedded. */
  async keptVectorsOf(texts: readonly string[]): Promise<QuantizedVector[]> {
    return (await this.#found(texts)).vectors;
  }

  /** Returns the known vectors, with zeros for the others, which are listed as missing. */
  async #found(
    texts: readonly string[],
    signal?: AbortSignal,
  ): Promise<{ vectors: QuantizedVector[]; missing: Map<string, Missing> }> {
    const none = quantize(new Float32Array(this.#parts.embedder.dimensions));
    const pause = slices(signal);
    using shippedFile = this.#shipped?.open();
    const vectors: QuantizedVector[] = [];
    const missing = new Map<string, Missing>();
    // In small batches: objects that live longer would leave the young generation.
    let sought = new Map<string, Missing>();
    for (const [position, text] of texts.entries()) {
      const hash = textHash(text);
      const shipped = shippedFile?.find(hash);
      vectors.push(shipped ?? none);
      if (!shipped) addTo(sought, hash.toString('latin1'), { text, positions: [position] });
      await pause();
      if (sought.size < BATCH_ROWS && position + 1 < texts.length) continue;
      await this.#fillIn(sought, vectors);
      for (const [key, one] of sought) addTo(missing, key, one);
      sought = new Map();
    }
    return { vectors, missing };
  }

  /** Fills in the stored vectors and removes them from the missing ones. */
  async #fillIn(sought: Map<string, Missing>, vectors: QuantizedVector[]): Promise<void> {
    if (sought.size === 0) return;
    const { db, embedder } = this.#parts;
    const hashes = Array.from(sought.keys(), key => Buffer.from(key, 'latin1'));
    const rows = await db
      .select({ hash: BASE64.textHash, vector: BASE64.vector })
      .from(table)
      .where(and(eq(table.embedder, embedder.id), inArray(table.textHash, hashes)));
    for (const row of rows) {
      const key = Buffer.from(row.hash, 'base64').toString('latin1');
      // Buffer allocates many of them together: separate allocations would fragment the process's memory.
      const vector = viewVector(Buffer.from(row.vector, 'base64'));
      for (const position of sought.get(key)?.positions ?? []) vectors[position] = vector;
      sought.delete(key);
    }
    // PGlite responds within the microtask queue: without this, a long lookup would block the event loop.
    await setImmediate();
  }

  async #embed(
    missing: ReadonlyMap<string, Missing>,
    vectors: QuantizedVector[],
    onProgress?: OnProgress,
    signal?: AbortSignal,
  ): Promise<void> {
    const { embedder, log } = this.#parts;
    const entries = [...missing];
    const of = entries.length;
    if (of === 0) return;
    onProgress?.({ done: 0, of });
    let next = 0;
    let done = 0;
    const embedNext = async () => {
      while (next < entries.length) {
        signal?.throwIfAborted();
        const batch = entries.slice(next, (next += EMBED_BATCH));
        await this.#embedBatch(batch, vectors);
        const before = done;
        done += batch.length;
        onProgress?.({ done, of });
        if (of > LOG_EVERY && done % LOG_EVERY < done - before) log.info({ done, of }, 'embedding texts');
      }
    };
    const calls = Array.from({ length: embedder.indexCalls ?? INDEX_CALLS }, embedNext);
    try {
      await Promise.all(calls);
    } finally {
      // Also after a failure: nothing must be writing once this has settled.
      next = entries.length;
      await Promise.allSettled(calls);
    }
  }

  async #embedBatch(
    batch: readonly (readonly [key: string, missing: Missing])[],
    vectors: QuantizedVector[],
  ): Promise<void> {
    const { db, embedder } = this.#parts;
    // The id of an API's embedder may change while it embeds; the vectors belong to its current id.
    const { id } = embedder;
    const texts = batch.map(([, { text }]) => text);
    const embedded = (await embedder.embed(texts, 'index')).map(quantize);
    const rows = batch.flatMap(([key, { positions }], at) => {
      const vector = embedded[at] ?? unreachable();
      for (const position of positions) vectors[position] = vector;
      // Zeros mark a vector that is currently unavailable.
      if (vector.scale === 0) return [];
      return [{ embedder: id, textHash: Buffer.from(key, 'latin1'), vector: encodeVector(vector) }];
    });
    if (rows.length > 0) await db.insert(table).values(rows).onConflictDoNothing();
    await setImmediate();
  }
}

async function openShipped({
  shippedFile,
  embedder,
  log,
}: VectorCacheParts): Promise<VectorFile | undefined> {
  if (shippedFile === undefined) return undefined;
  try {
    const file = await VectorFile.read(shippedFile);
    if (file.embedderId === embedder.id && file.dimensions === embedder.dimensions) return file;
    log.info(
      { file: shippedFile, madeWith: file.embedderId, embedder: embedder.id },
      'shipped vectors do not match the model',
    );
  } catch (error) {
    log.warn({ err: error, file: shippedFile }, 'shipped vectors ignored: their texts will be embedded');
  }
  return undefined;
}

function unreachable(): never {
  throw new Error('the embedder returned fewer vectors than texts');
}

/**
 * The number of unused vectors to keep (about 25 MB). They are needed again if an import is repeated, or if a server or an embedder
 * comes back. Limiting their number needs no record of when each was last used.
 */
const SPARE_ROWS = 50_000;
const PAGE_ROWS = 500;
const EVERY_MS = 86_400_000;
/** The first run is delayed, because startup is busy. */
const FIRST_AFTER_MS = 600_000;

interface PruningParts {
  readonly db: Database;
  /** The current embedder: vectors of others are unused. */
  readonly index: Pick<SearchIndex, 'embedderId' | 'neededDocuments'>;
  readonly catalogue: { servers(): AsyncIterable<Server>; readonly isWriting?: boolean };
  readonly spareRows?: number;
  /** Aborts the work between two pages. */
  readonly signal?: AbortSignal;
}

/** Deletes unused vectors beyond the first `spareRows` by hash, an arbitrary choice. Returns the number of deleted vectors. */
export async function pruneVectors(parts: PruningParts): Promise<number> {
  const { db, spareRows = SPARE_ROWS, signal } = parts;
  const { embedderId } = parts.index;
  // An import has stored vectors of servers that are not in the catalogue yet.
  if (parts.catalogue.isWriting === true || (await db.$count(table)) <= spareRows) return 0;
  const needed = await neededHashes(parts.catalogue.servers());
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

async function neededHashes(servers: AsyncIterable<Server>): Promise<Set<string>> {
  const pause = slices();
  const needed = new Set<string>();
  for await (const server of servers) {
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
      const { db, index, signal } = this.#parts;
      const needed = index.neededDocuments?.();
      const documents = needed ? await pruneDocuments(db, needed, signal) : 0;
      const deleted = await pruneVectors(this.#parts);
      if (deleted + documents > 0) log.info({ deleted, documents }, 'deleted unused vectors');
    } catch (error) {
      log.warn({ err: error }, 'failed to delete unused vectors');
    }
  }
}
