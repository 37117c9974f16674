import { LRUCache } from 'lru-cache';
import { setImmediate } from 'node:timers/promises';
import { and, asc, gt, lt, sql, type SQL } from 'drizzle-orm';
import { rows, type Database } from '../../../platform/database/database.ts';
import { excluded } from '../../../platform/database/columns.ts';
import { searchDocuments as table } from '../schema.ts';
import { Evidence } from './evidence.ts';
import { termsOf, type Words } from './term-statistics.ts';

/** The maximum rows per insert: PGlite runs on the main thread, and a bigger batch would block the event loop. */
const BATCH_ROWS = 50;
/** Memory overhead of one server's evidence. */
const OVERHEAD_BYTES = 700;
/** While less of the memory is in use, evidence is kept although no search has asked for it. */
const MAX_UNASKED = 0.9;
/** Unused rows younger than this are kept: a change that is not committed yet may need them. */
const SPARED = sql`interval '1 day'`;
/** Rows that a change needs are made young again beyond this age, long before others may delete them. */
const OLD = sql`interval '12 hours'`;
/** Rows with one term that a search without the engine looks at, and rows that it returns. */
const ROWS_OF_A_TERM = 1_000;
const FOUND_ROWS = 2_000;

/** A row, without what is in it. */
interface RowState {
  readonly vectorsHash: number;
  readonly isComplete: boolean;
}

interface NewRow {
  readonly hash: string;
  readonly embedder: string;
  readonly evidence: Evidence;
}

/** Reads and writes the evidence of servers by its hash: recently used evidence in memory, all of it in the database. */
export class EvidenceStore {
  readonly #db: Database;
  readonly #maxBytes: number;
  readonly #recent: LRUCache<string, Evidence>;

  constructor(db: Database, maxBytes: number) {
    this.#db = db;
    this.#maxBytes = maxBytes;
    this.#recent = new LRUCache({
      maxSize: maxBytes,
      sizeCalculation: ({ byteLength }) => byteLength + OVERHEAD_BYTES,
    });
  }

  /** The bytes of memory in use; at most `maxBytes`. */
  get bytesInMemory(): number {
    return this.#recent.calculatedSize;
  }

  isInMemory(hash: string): boolean {
    return this.#recent.has(hash);
  }

  /** Returns the state of each row that exists. */
  async statesOf(hashes: readonly string[]): Promise<Map<string, RowState>> {
    const found = await this.#db
      .select({ hash: base64(table.hash), vectorsHash: table.vectorsHash, isComplete: table.isComplete })
      .from(table)
      .where(isAmong(hashes));
    return new Map(found.map(({ hash, ...state }) => [hash, state]));
  }

  /** Keeps unused rows from being deleted during the next hours. */
  async spare(hashes: readonly string[]): Promise<void> {
    if (hashes.length === 0) return;
    await this.#db
      .update(table)
      .set({ createdAt: sql`now()` })
      .where(and(isAmong(hashes), lt(table.createdAt, sql`now() - ${OLD}`)));
  }

  /** Writes rows. One that exists gets the new vectors, unless it is complete and they are not. */
  async add(added: readonly NewRow[]): Promise<void> {
    for (let at = 0; at < added.length; at += BATCH_ROWS) {
      const batch = added.slice(at, at + BATCH_ROWS).map(({ hash, embedder, evidence }) => ({
        hash: Buffer.from(hash, 'base64'),
        embedder,
        words: bytesOf(evidence.words),
        vectors: bytesOf(evidence.vectors),
        vectorsHash: evidence.vectorsHash,
        isComplete: evidence.isComplete,
        terms: termsOf(evidence.words),
      }));
      await this.#db
        .insert(table)
        .values(batch)
        .onConflictDoUpdate({
          target: table.hash,
          set: {
            vectors: excluded('vectors'),
            vectorsHash: excluded('vectors_hash'),
            isComplete: excluded('is_complete'),
          },
          setWhere: sql`${excluded('is_complete')} or not ${table.isComplete}`,
        });
    }
    for (const { hash, evidence } of added) {
      this.#recent.delete(hash);
      this.#keepUnasked(hash, evidence);
    }
  }

  /** Returns the words of each row that exists. As long as there is room, the vectors are read into memory, too. */
  async wordsOf(hashes: readonly string[]): Promise<Map<string, Words>> {
    const known = this.#inMemory(hashes);
    const words = new Map(Array.from(known, ([hash, evidence]) => [hash, evidence.words]));
    const others = hashes.filter(hash => !known.has(hash));
    if (this.#hasRoom) {
      for (const [hash, evidence] of await this.#stored(others)) {
        words.set(hash, evidence.words);
        this.#keepUnasked(hash, evidence);
      }
      return words;
    }
    const found = await this.#db
      .select({ hash: base64(table.hash), words: base64(table.words) })
      .from(table)
      .where(isAmong(others));
    for (const row of found) words.set(row.hash, new Int32Array(decoded(row.words)));
    return words;
  }

  /** Returns the evidence that is in memory. */
  recent(hash: string): Evidence | undefined {
    return this.#recent.get(hash);
  }

  /** Reads the evidence of each row that exists, in one statement, and keeps it in memory. */
  async read(hashes: readonly string[]): Promise<Map<string, Evidence>> {
    const found = await this.#stored(hashes);
    for (const [hash, evidence] of found) this.#recent.set(hash, evidence);
    return found;
  }

  /** Returns the evidence of each row that exists, without an effect on what is in memory. */
  async peek(hashes: readonly string[]): Promise<Map<string, Evidence>> {
    const known = this.#inMemory(hashes);
    const others = await this.#stored(hashes.filter(hash => !known.has(hash)));
    return new Map([...known, ...others]);
  }

  /**
   * Returns the rows that have any of the terms, those with the highest sum of weights first.
   * @param terms of which a part of the rows is looked at if they are frequent
   */
  async withTerms(terms: readonly { readonly hash: number; readonly weight: number }[]): Promise<string[]> {
    if (terms.length === 0) return [];
    const asked = sql`json_to_recordset(${JSON.stringify(terms)}::json) as asked(hash int, weight float8)`;
    const found = await rows<{ hash: string }>(
      this.#db,
      sql`select encode(found.hash, 'base64') as hash
        from ${asked}, lateral (
          select hash from ${table} where terms @> array[asked.hash] limit ${ROWS_OF_A_TERM}
        ) as found
        group by found.hash order by sum(asked.weight) desc limit ${FOUND_ROWS}`,
    );
    return found.map(({ hash }) => hash);
  }

  #inMemory(hashes: readonly string[]): Map<string, Evidence> {
    const found = new Map<string, Evidence>();
    for (const hash of hashes) {
      const evidence = this.#recent.peek(hash);
      if (evidence) found.set(hash, evidence);
    }
    return found;
  }

  get #hasRoom(): boolean {
    return this.bytesInMemory < this.#maxBytes * MAX_UNASKED;
  }

  #keepUnasked(hash: string, evidence: Evidence): void {
    if (this.#hasRoom) this.#recent.set(hash, evidence);
  }

  async #stored(hashes: readonly string[]): Promise<Map<string, Evidence>> {
    if (hashes.length === 0) return new Map();
    const found = await this.#db
      .select({ hash: base64(table.hash), words: base64(table.words), vectors: base64(table.vectors) })
      .from(table)
      .where(isAmong(hashes));
    return new Map(
      found.map(({ hash, words, vectors }) => [
        hash,
        new Evidence(new Int32Array(decoded(words)), new Int8Array(decoded(vectors))),
      ]),
    );
  }
}

/** Rows of which the hashes are read at a time. */
const PAGE_ROWS = 500;

/**
 * Deletes rows that have not been used for a day.
 * @param needed the hashes of the rows that are in use
 * @param signal aborts the work between two pages
 */
export async function pruneDocuments(
  db: Database,
  needed: ReadonlySet<string>,
  signal?: AbortSignal,
): Promise<number> {
  const isOld = lt(table.createdAt, sql`now() - ${SPARED}`);
  let deleted = 0;
  for (let last = ''; ;) {
    const page = await db
      .select({ hash: base64(table.hash) })
      .from(table)
      .where(and(gt(table.hash, Buffer.from(last, 'base64')), isOld))
      .orderBy(asc(table.hash))
      .limit(PAGE_ROWS);
    const unneeded = page.flatMap(({ hash }) => (needed.has(hash) ? [] : hash));
    // A row may have come into use since it was read.
    if (unneeded.length > 0) await db.delete(table).where(and(isAmong(unneeded), isOld));
    deleted += unneeded.length;
    last = page.at(-1)?.hash ?? '';
    if (page.length < PAGE_ROWS || signal?.aborted) return deleted;
    await setImmediate();
  }
}

/** Buffer decodes base64 natively. PGlite reads bytea digit by digit, and pg's hexadecimal digits are half as long again. */
const base64 = (column: (typeof table)['hash' | 'words' | 'vectors']): SQL<string> =>
  sql<string>`encode(${column}, 'base64')`;

/** In memory of its own, where numbers are aligned. */
function decoded(text: string): ArrayBuffer {
  const bytes = Buffer.from(text, 'base64');
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
}

const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView<ArrayBuffer>): Uint8Array =>
  new Uint8Array(buffer, byteOffset, byteLength);

/** As one parameter, whatever their number. */
const isAmong = (hashes: readonly string[]): SQL =>
  sql`${table.hash} = any(array(select decode(one, 'base64') from unnest(string_to_array(${hashes.join(',')}, ',')) as one))`;
