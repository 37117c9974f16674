import type { Candidate } from './search-index.ts';
import { VectorStore, type QuantizedVector } from './vectors.ts';

/** The usual BM25 parameters; on the tune sets, similar values perform equally. */
const BM25 = { k1: 1.2, b: 0.75 };

/** Identifies the source of a server's part vectors. */
export interface VectorSource {
  /** Equal only for equal texts. */
  readonly key: string;
  /** The text of each vector, the server's own first. */
  texts(): readonly string[];
}

/** A server ready to be indexed: its terms as a whole, and the terms and vector of each part (see `documents.ts`). */
export interface IndexedDocuments {
  readonly id: string;
  readonly whole: readonly string[];
  readonly parts: readonly (readonly string[])[];
  /** One vector per part, or their source: not all have to be in memory. */
  readonly vectors: readonly QuantizedVector[] | VectorSource;
}

interface IndexedServer {
  readonly id: string;
  /** Its position among all servers, reused after removal. */
  readonly slot: number;
  readonly source: VectorSource | undefined;
  /** Rows of its parts: its own text first, then one for each tool. */
  readonly rows: readonly number[];
}

/** Rows of a server that is invisible to queries, because it is staged or was removed. */
export interface HiddenServer {
  readonly id: string;
  readonly source: VectorSource | undefined;
  readonly rows: readonly number[];
}

/** The evidence of all servers for a query, by slot. `candidate` adds the evidence of a server's tools. */
export interface ScoredServers {
  /** 0 if no cosine is positive, and in empty slots. */
  readonly semantic: Float32Array;
  readonly keyword: Float64Array;
  readonly candidate: (slot: number) => Candidate;
}

/** Marks a free row. */
const NO_SLOT = -1;

/** All indexed servers, with one row per part: words in two inverted indexes, vectors in an optional store. */
export class IndexedServers {
  readonly #servers = new Map<string, IndexedServer>();
  readonly #whole = new Bm25(BM25);
  readonly #parts = new Bm25(BM25);
  readonly #vectors: VectorStore | undefined;
  readonly #freeRows: number[] = [];
  readonly #bySlot: (IndexedServer | undefined)[] = [];
  readonly #freeSlots: number[] = [];
  /** The slot of each row's server. A pass over 40,000 rows takes a tenth of the time of lists of rows. */
  #slotOf: Int32Array<ArrayBuffer> = new Int32Array(0);
  #rows = 0;

  /** @param dimensions length of the vectors; without it only their sources are kept */
  constructor(dimensions?: number) {
    this.#vectors = dimensions === undefined ? undefined : new VectorStore(dimensions);
  }

  get size(): number {
    return this.#servers.size;
  }

  /** The number of texts, also of staged servers. */
  get texts(): number {
    return this.#rows - this.#freeRows.length;
  }

  /** Returns the number of texts of a server, 0 for an unknown one. */
  textsOf(id: string): number {
    return this.#servers.get(id)?.rows.length ?? 0;
  }

  ids(): MapIterator<string> {
    return this.#servers.keys();
  }

  /** Adds or replaces a server, without an await. */
  put(documents: IndexedDocuments): void {
    this.remove(documents.id);
    this.show(this.stage(documents));
  }

  remove(id: string): void {
    const hidden = this.hide(id);
    if (hidden) this.clear(hidden);
  }

  /** Adds a server without showing it: only its word statistics count. */
  stage({ id, whole, parts, vectors }: IndexedDocuments): HiddenServer {
    const rows = parts.map((terms, at) => {
      const row = this.#freeRows.pop() ?? this.#rows++;
      this.#setSlot(row, NO_SLOT);
      if (!('key' in vectors)) this.#setVector(row, vectors[at] ?? missing());
      this.#parts.add(row, terms);
      return row;
    });
    this.#whole.add(rows[0] ?? missing(), whole);
    return { id, source: 'key' in vectors ? vectors : undefined, rows };
  }

  /** Shows a staged server, after its previous version was hidden: thousands of servers take a few milliseconds. */
  show({ id, source, rows }: HiddenServer): void {
    const slot = this.#freeSlots.pop() ?? this.#bySlot.length;
    for (const row of rows) this.#setSlot(row, slot);
    const server = { id, slot, source, rows };
    this.#bySlot[slot] = server;
    this.#servers.set(id, server);
  }

  /** Hides a server, equally fast. Returns the rows to remove, if there was such a server. */
  hide(id: string): HiddenServer | undefined {
    const server = this.#servers.get(id);
    if (!server) return undefined;
    for (const row of server.rows) this.#setSlot(row, NO_SLOT);
    this.#bySlot[server.slot] = undefined;
    this.#freeSlots.push(server.slot);
    this.#servers.delete(id);
    return server;
  }

  /** Removes a hidden server. */
  clear({ rows }: HiddenServer): void {
    this.#whole.remove(rows[0] ?? missing());
    for (const row of rows) this.#parts.remove(row);
    this.#freeRows.push(...rows);
  }

  /** Returns the number of parts that have the term. */
  frequencyOf(term: string): number {
    return this.#parts.frequencyOf(term);
  }

  sourceOf(id: string): VectorSource | undefined {
    return this.#servers.get(id)?.source;
  }

  /**
   * Returns every server's evidence for a query.
   * @param terms distinct terms of the query
   * @param cosines of the query with each row's vector
   * @param only limits the evidence to these servers, by id; the others have none
   */
  score(terms: readonly string[], cosines: Float32Array, only?: ReadonlySet<string>): ScoredServers {
    const parts = this.#parts.scores(terms);
    const semantic = this.#bestBySlot(cosines, new Float32Array(this.#bySlot.length));
    const keyword = this.#bestBySlot(parts, new Float64Array(this.#bySlot.length));
    const whole = this.#whole.scores(terms);
    for (let row = 0; row < whole.length; row++) {
      const score = whole[row] ?? 0;
      const slot = score > 0 ? (this.#slotOf[row] ?? NO_SLOT) : NO_SLOT;
      if (slot !== NO_SLOT) keyword[slot] = (keyword[slot] ?? 0) + score;
    }
    if (only) this.#clearOthers(only, semantic, keyword);
    const candidate = (slot: number): Candidate => {
      const { id, rows } = this.#bySlot[slot] ?? missing();
      const tools = rows.slice(1).map((row, index) => ({
        index,
        semantic: cosines[row] ?? 0,
        keyword: parts[row] ?? 0,
      }));
      return { serverId: id, semantic: semantic[slot] ?? 0, keyword: keyword[slot] ?? 0, tools };
    };
    return { semantic, keyword, candidate };
  }

  /** Raises `best` to the best value of each server's rows. */
  #bestBySlot<Best extends Float32Array | Float64Array>(values: Float32Array, best: Best): Best {
    const slotOf = this.#slotOf;
    const count = Math.min(values.length, slotOf.length);
    for (let row = 0; row < count; row++) {
      const slot = slotOf[row] ?? NO_SLOT;
      const value = values[row] ?? 0;
      if (slot !== NO_SLOT && value > (best[slot] ?? 0)) best[slot] = value;
    }
    return best;
  }

  #clearOthers(only: ReadonlySet<string>, ...values: readonly (Float32Array | Float64Array)[]): void {
    for (const [slot, server] of this.#bySlot.entries()) {
      if (server && !only.has(server.id)) for (const bySlot of values) bySlot[slot] = 0;
    }
  }

  #setSlot(row: number, slot: number): void {
    if (row >= this.#slotOf.length) {
      const more = new Int32Array(Math.max(row + 1, Math.ceil(this.#slotOf.length * 1.5))).fill(NO_SLOT);
      more.set(this.#slotOf);
      this.#slotOf = more;
    }
    this.#slotOf[row] = slot;
  }

  /** A vector with other dimensions belongs to an older or newer model and counts as missing. */
  #setVector(row: number, vector: QuantizedVector): void {
    const store = this.#vectors ?? missing();
    const isOurs = vector.values.length === store.dimensions;
    store.set(row, isOurs ? vector : { values: new Int8Array(store.dimensions), scale: 0 });
  }

  /** Returns by row the best cosine of its vector with any of the query's. Vectors with other dimensions are ignored. */
  cosines(queries: readonly Float32Array[]): Float32Array {
    const store = this.#vectors ?? missing();
    const [first, ...others] = queries.filter(query => query.length === store.dimensions);
    const best = first ? store.scan(first) : new Float32Array(store.size);
    for (const vector of others) {
      const cosines = store.scan(vector);
      for (let row = 0; row < cosines.length; row++) {
        const cosine = cosines[row] ?? 0;
        if (cosine > (best[row] ?? 0)) best[row] = cosine;
      }
    }
    return best;
  }

  /** Returns cosines by row from cosines by source, one per part; 0 for the parts of other servers. */
  byRow(cosines: ReadonlyMap<VectorSource, Float32Array>): Float32Array {
    const byRow = new Float32Array(this.#rows);
    for (const { source, rows } of this.#servers.values()) {
      const own = source && cosines.get(source);
      if (own) for (const [at, row] of rows.entries()) byRow[row] = own[at] ?? 0;
    }
    return byRow;
  }
}

function missing(): never {
  throw new Error('every server must have at least one part, and every part a vector');
}

/** A posting packs a row and the term's count in it: row * 256 + count. */
const COUNT_BITS = 8;
const MAX_COUNT = (1 << COUNT_BITS) - 1;
const MAX_ROW = 2 ** (32 - COUNT_BITS) - 1;

/** How fast a repeated term saturates, and how much a long document is penalized (0 not at all, 1 fully). */
interface Bm25Parameters {
  readonly k1: number;
  readonly b: number;
}

interface Term {
  readonly text: string;
  /** The posting of a term that never had another: two in three are like this, and an array costs ten times as much. */
  only: number;
  /** Sorted by row; only the first `size` are in use. `NONE` while `only` is set. */
  postings: Uint32Array;
  size: number;
}

const NONE = new Uint32Array(0);
const FIRST_ROOM = 4;

/**
 * An inverted index scored by BM25 (Robertson & Zaragoza 2009, with the non-negative idf). The idf is relative to that of a term in
 * only one document, so that scores of indexes of any size are comparable. The owner assigns document numbers, which may be sparse
 * and reused after a removal. Every statistic is exact after each change, so scores do not depend on insertion order.
 */
export class Bm25 {
  readonly #parameters: Bm25Parameters;
  readonly #terms = new Map<string, Term>();
  /** The terms of each document, needed for removal. */
  readonly #termsOf: (readonly Term[] | undefined)[] = [];
  #lengths: Uint32Array = new Uint32Array(0);
  #totalLength = 0;
  #size = 0;

  constructor(parameters: Bm25Parameters) {
    this.#parameters = parameters;
  }

  /** The number of documents. */
  get size(): number {
    return this.#size;
  }

  /** Returns the number of documents with the term. */
  frequencyOf(term: string): number {
    return this.#terms.get(term)?.size ?? 0;
  }

  /** Adds a document, given as its terms. @throws RangeError if the row is taken or out of range */
  add(row: number, terms: readonly string[]): void {
    if (!Number.isInteger(row) || row < 0 || row > MAX_ROW || this.#termsOf[row]) {
      throw new RangeError(`row ${row} is taken or out of range`);
    }
    const counts = new Map<string, number>();
    for (const term of terms) counts.set(term, (counts.get(term) ?? 0) + 1);
    // `map` creates an array of exactly this length; a growing one would have room for half as many again.
    const held = [...counts].map(([text, count]) =>
      this.#hold(text, row * (MAX_COUNT + 1) + Math.min(count, MAX_COUNT)),
    );
    this.#termsOf[row] = held;
    if (row >= this.#lengths.length) this.#lengths = grown(this.#lengths, row + 1);
    this.#lengths[row] = terms.length;
    this.#totalLength += terms.length;
    this.#size++;
  }

  #hold(text: string, posting: number): Term {
    const known = this.#terms.get(text);
    if (known) {
      insert(known, posting);
      return known;
    }
    const term: Term = { text, only: posting, postings: NONE, size: 1 };
    this.#terms.set(text, term);
    return term;
  }

  /** Does nothing if there is no such document. */
  remove(row: number): void {
    const held = this.#termsOf[row];
    if (!held) return;
    for (const term of held) {
      if (term.size === 1) {
        this.#terms.delete(term.text);
        continue;
      }
      const at = lowerBound(term, row * (MAX_COUNT + 1));
      term.postings.copyWithin(at, at + 1, term.size);
      term.size--;
    }
    this.#termsOf[row] = undefined;
    this.#totalLength -= this.#lengths[row] ?? 0;
    this.#lengths[row] = 0;
    this.#size--;
  }

  /**
   * Returns the score of every document by row: 0 if it has no term of the query, otherwise above 0. A repeated term counts again.
   */
  scores(query: readonly string[]): Float32Array {
    const scores = new Float32Array(this.#lengths.length);
    const { k1, b } = this.#parameters;
    const meanLength = this.#totalLength / this.#size;
    for (const text of query) {
      const term = this.#terms.get(text);
      if (!term) continue;
      const idf = this.#idf(term.size) / this.#idf(1);
      const { only, postings } = term;
      for (let at = 0; at < term.size; at++) {
        const posting = postings[at] ?? only;
        const row = posting >>> COUNT_BITS;
        const count = posting & MAX_COUNT;
        const length = this.#lengths[row] ?? 0;
        const gain = (idf * count * (k1 + 1)) / (count + k1 * (1 - b + (b * length) / meanLength));
        scores[row] = (scores[row] ?? 0) + gain;
      }
    }
    return scores;
  }

  #idf(documents: number): number {
    return Math.log(1 + (this.#size - documents + 0.5) / (documents + 0.5));
  }
}

function insert(term: Term, posting: number): void {
  if (term.postings.length === 0) {
    term.postings = new Uint32Array(FIRST_ROOM);
    term.postings[0] = term.only;
  } else if (term.size === term.postings.length) term.postings = grown(term.postings, term.size + 1);
  const at = lowerBound(term, posting);
  term.postings.copyWithin(at + 1, at, term.size);
  term.postings[at] = posting;
  term.size++;
}

/** Returns the position of the first posting not below `posting`. Rows mostly come in order, so the end is tried first. */
function lowerBound({ postings, size }: Term, posting: number): number {
  if (size === 0 || (postings[size - 1] ?? 0) < posting) return size;
  let low = 0;
  let high = size;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((postings[middle] ?? 0) < posting) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Returns a copy with room for at least `length` and half as much again as before. */
function grown(array: Uint32Array, length: number): Uint32Array {
  const copy = new Uint32Array(Math.max(length, Math.ceil(array.length * 1.5)));
  copy.set(array);
  return copy;
}
