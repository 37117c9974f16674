import { setImmediate } from 'node:timers/promises';
import { and, asc, gt, lt, sql, type SQL } from 'drizzle-orm';
import { rows, type Database } from '../../../../platform/database/database.ts';
import { excluded } from '../../../../platform/database/columns.ts';
import { searchDocuments as table } from '../../schema.ts';
import { Evidence } from './evidence.ts';
import { EvidenceMemory } from './memory.ts';
import { termsOf, type Words } from '../term-statistics.ts';

/** The maximum rows per insert: PGlite runs on the main thread, and a bigger batch would block the event loop. */
const BATCH_ROWS = 50;
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
  readonly #memory: EvidenceMemory;

  constructor(db: Database, maxBytes: number) {
    this.#db = db;
    this.#memory = new EvidenceMemory(maxBytes);
  }

  /** The bytes of memory in use; at most `maxBytes`. */
  get bytesInMemory(): number {
    return this.#memory.bytes;
  }

  isInMemory(hash: string): boolean {
    return this.#memory.has(hash);
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
      this.#memory.delete(hash);
      this.#keepUnasked(hash, evidence);
    }
  }

  /** Returns the words of each row that exists. As long as there is room, the vectors are read into memory, too. */
  async wordsOf(hashes: readonly string[]): Promise<Map<string, Words>> {
    const known = this.#copies(hashes);
    const words = new Map(Array.from(known, ([hash, evidence]) => [hash, evidence.words]));
    const others = hashes.filter(hash => !known.has(hash));
    if (this.#memory.hasRoom) {
      for (const row of await this.#rows(others)) {
        const evidence = decodedRow(row);
        words.set(row.hash, evidence.words);
        this.#keepUnasked(row.hash, evidence);
      }
      return words;
    }
    const found = await this.#db
      .select({ hash: base64(table.hash), words: base64(table.words) })
      .from(table)
      .where(isAmong(others));
    for (const row of found) words.set(row.hash, decodedWords(row.words));
    return words;
  }

  /** Returns the evidence that is in memory. It is valid until the next await. */
  recent(hash: string): Evidence | undefined {
    return this.#memory.use(hash);
  }

  /**
   * Reads the evidence of each row that exists, in one statement, and keeps it in memory.
   * @param visit called with each, which is valid until it returns
   * @returns the hashes of the rows
   */
  async read(
    hashes: readonly string[],
    visit: (hash: string, evidence: Evidence) => void = () => {},
  ): Promise<Set<string>> {
    const found = await this.#rows(hashes);
    for (const { hash, words, vectors } of found) {
      const size = { words: decodedLength(words), vectors: decodedLength(vectors) };
      // Another search may have read it meanwhile.
      const held = this.#memory.use(hash);
      const evidence =
        held ??
        this.#memory.write(hash, size, bytes => {
          decode(words, bytes.words);
          decode(vectors, bytes.vectors);
        });
      visit(hash, evidence);
    }
    return new Set(found.map(({ hash }) => hash));
  }

  /** Returns the evidence of each row that exists, without an effect on what is in memory. */
  async peek(hashes: readonly string[]): Promise<Map<string, Evidence>> {
    const known = this.#copies(hashes);
    const others = await this.#rows(hashes.filter(hash => !known.has(hash)));
    return new Map([...known, ...others.map(row => [row.hash, decodedRow(row)] as const)]);
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

  #copies(hashes: readonly string[]): Map<string, Evidence> {
    const found = new Map<string, Evidence>();
    for (const hash of hashes) {
      const evidence = this.#memory.copy(hash);
      if (evidence) found.set(hash, evidence);
    }
    return found;
  }

  /** Keeps evidence that no search has asked for while it displaces nothing. */
  #keepUnasked(hash: string, { words, vectors }: Evidence): void {
    if (!this.#memory.hasRoom) return;
    this.#memory.write(hash, { words: words.byteLength, vectors: vectors.byteLength }, bytes => {
      bytes.words.set(bytesOf(words));
      bytes.vectors.set(bytesOf(vectors));
    });
  }

  async #rows(hashes: readonly string[]): Promise<EncodedRow[]> {
    if (hashes.length === 0) return [];
    return this.#db
      .select({ hash: base64(table.hash), words: base64(table.words), vectors: base64(table.vectors) })
      .from(table)
      .where(isAmong(hashes));
  }
}

/** A row as it is read, in base64. */
interface EncodedRow {
  readonly hash: string;
  readonly words: string;
  readonly vectors: string;
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

/** The database breaks lines after so many characters. */
const BASE64_LINE = 76;

function decodedLength(text: string): number {
  const padding = text.endsWith('==') ? 2 : text.endsWith('=') ? 1 : 0;
  const characters = text.length - Math.floor(text.length / (BASE64_LINE + 1));
  return (characters / 4) * 3 - padding;
}

/** Writes the bytes of a text into memory of their length. */
function decode(text: string, { buffer, byteOffset, byteLength }: Uint8Array<ArrayBuffer>): void {
  const written = Buffer.from(buffer, byteOffset, byteLength).write(text, 'base64');
  if (written !== byteLength) throw new Error('a row of search_documents is not what the database encoded');
}

function decoded(text: string): ArrayBuffer {
  const bytes = new Uint8Array(decodedLength(text));
  decode(text, bytes);
  return bytes.buffer;
}

const decodedWords = (text: string): Words => new Int32Array(decoded(text));

const decodedRow = ({ words, vectors }: EncodedRow): Evidence =>
  new Evidence(decodedWords(words), new Int8Array(decoded(vectors)));

const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView<ArrayBuffer>): Uint8Array =>
  new Uint8Array(buffer, byteOffset, byteLength);

/** As one parameter, whatever their number. */
const isAmong = (hashes: readonly string[]): SQL =>
  sql`${table.hash} = any(array(select decode(one, 'base64') from unnest(string_to_array(${hashes.join(',')}, ',')) as one))`;
