import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { setImmediate } from 'node:timers/promises';
import { and, eq, inArray, sql } from 'drizzle-orm';
import type { Database } from '../../infra/database.ts';
import type { Log } from '../../infra/log.ts';
import { slices } from '../../infra/slices.ts';
import type { OnProgress } from '../catalogue/catalogue.ts';
import { embeddings as table } from '../schema.ts';
import type { Embedder } from './embedder.ts';
import { decodeVector, encodeVector, quantize, type QuantizedVector } from './quantize.ts';
import { readVectorFile, type VectorFile } from './vector-file.ts';

/** Rows of one statement at most: PGlite runs on the main thread, and a bigger batch would hold the event loop. */
const BATCH_ROWS = 50;
/** Texts embedded between two writes: what a kill loses at most, of each call under way. */
const EMBED_BATCH = 50;
/** Where the embedder does not say: one call's texts are embedded while the other's vectors are written. */
const INDEX_CALLS = 2;
const LOG_EVERY = 2_000;

/** Buffer decodes base64 natively; PGlite reads bytea digit by digit, which held the event loop. */
const BASE64 = {
  textHash: sql<string>`encode(${table.textHash}, 'base64')`,
  vector: sql<string>`encode(${table.vector}, 'base64')`,
};

/** SHA-256 of a text: how its vector is found again. */
export const textHash = (text: string): Buffer => createHash('sha256').update(text).digest();

interface VectorCacheParts {
  readonly embedder: Embedder;
  readonly db: Database;
  readonly log: Log;
  /** A file by `scripts/build-vectors.ts`; used when it was made with the same embedder. */
  readonly shippedFile?: string | undefined;
}

/** Vectors by the text they stand for: first from the shipped file, then from the database, else embedded and kept. */
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
   * One vector a text, in their order; zeros where the embedder gives none for now. What had to be embedded is in the
   * database before this resolves; when it rejects, the part that was embedded is kept for the next try.
   * @param signal ends it between two batches, with its reason
   */
  async vectorsOf(
    texts: readonly string[],
    onProgress?: OnProgress,
    signal?: AbortSignal,
  ): Promise<QuantizedVector[]> {
    const { keys, vectors, missing } = await this.#found(texts, signal);
    await this.#embed(missing, vectors, onProgress, signal);
    const pause = slices(signal);
    const inOrder: QuantizedVector[] = [];
    for (const key of keys) {
      inOrder.push(vectors.get(key) ?? unreachable());
      await pause();
    }
    return inOrder;
  }

  /** The same of what has been embedded before; zeros for all else. */
  async keptVectorsOf(texts: readonly string[]): Promise<QuantizedVector[]> {
    const { keys, vectors } = await this.#found(texts);
    const none = quantize(new Float32Array(this.#parts.embedder.dimensions));
    return keys.map(key => vectors.get(key) ?? none);
  }

  async #found(texts: readonly string[], signal?: AbortSignal) {
    const pause = slices(signal);
    const vectors = new Map<string, QuantizedVector>();
    const missing = new Map<string, string>();
    const keys: string[] = [];
    for (const text of texts) {
      const hash = textHash(text);
      const key = hash.toString('latin1');
      keys.push(key);
      await pause();
      if (vectors.has(key) || missing.has(key)) continue;
      const shipped = this.#shipped?.find(hash);
      if (shipped) vectors.set(key, shipped);
      else missing.set(key, text);
    }
    for await (const [key, vector] of this.#stored([...missing.keys()])) {
      signal?.throwIfAborted();
      vectors.set(key, vector);
      missing.delete(key);
    }
    return { keys, vectors, missing };
  }

  async *#stored(keys: readonly string[]): AsyncGenerator<[key: string, vector: QuantizedVector]> {
    const { db, embedder } = this.#parts;
    for (let at = 0; at < keys.length; at += BATCH_ROWS) {
      const hashes = keys.slice(at, at + BATCH_ROWS).map(key => Buffer.from(key, 'latin1'));
      const rows = await db
        .select({ hash: BASE64.textHash, vector: BASE64.vector })
        .from(table)
        .where(and(eq(table.embedder, embedder.id), inArray(table.textHash, hashes)));
      for (const { hash, vector } of rows) {
        yield [Buffer.from(hash, 'base64').toString('latin1'), decodeVector(Buffer.from(vector, 'base64'))];
      }
      // PGlite answers within the microtask queue: without this, a long look-up would hold the event loop.
      await setImmediate();
    }
  }

  async #embed(
    missing: ReadonlyMap<string, string>,
    vectors: Map<string, QuantizedVector>,
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
      // After a failure as well: nobody writes once this has settled.
      next = entries.length;
      await Promise.allSettled(calls);
    }
  }

  async #embedBatch(
    batch: readonly (readonly [key: string, text: string])[],
    vectors: Map<string, QuantizedVector>,
  ): Promise<void> {
    const { db, embedder } = this.#parts;
    const texts = batch.map(([, text]) => text);
    const embedded = (await embedder.embed(texts, 'index')).map(quantize);
    const rows = batch.flatMap(([key], position) => {
      const vector = embedded[position] ?? unreachable();
      vectors.set(key, vector);
      // Zeros stand for a vector that is not to be had for now.
      if (vector.scale === 0) return [];
      return [{ embedder: embedder.id, textHash: Buffer.from(key, 'latin1'), vector: encodeVector(vector) }];
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
    const file = readVectorFile(await readFile(shippedFile));
    if (file.embedderId === embedder.id && file.dimensions === embedder.dimensions) return file;
    log.info(
      { file: shippedFile, madeWith: file.embedderId, embedder: embedder.id },
      'shipped vectors not usable here',
    );
  } catch (error) {
    log.warn({ err: error, file: shippedFile }, 'shipped vectors ignored: their texts are embedded anew');
  }
  return undefined;
}

function unreachable(): never {
  throw new Error('the embedder gave fewer vectors than texts');
}
