import { Bm25, BM25 } from './bm25.ts';
import type { Candidate } from './search-index.ts';
import { excessOf, largest, VectorStore, type QuantizedVector } from './vectors.ts';

/** A server ready to be indexed: its terms as a whole, and the terms and vector of each part (see `documents.ts`). */
export interface IndexedDocuments {
  readonly id: string;
  /** The number of parts that are tools. */
  readonly tools: number;
  readonly whole: readonly string[];
  readonly parts: readonly (readonly string[])[];
  /** One vector per part; zeros for a missing one. */
  readonly vectors: readonly QuantizedVector[];
}

interface IndexedServer {
  readonly id: string;
  /** Its position among all servers, reused after removal. */
  readonly slot: number;
  /** The number of its tools. */
  readonly tools: number;
  /** Rows of its parts: its own text first, then one for each tool, then one for each example. */
  readonly rows: readonly number[];
}

/** Rows of a server that is invisible to queries, because it is staged or was removed. */
export interface HiddenServer {
  readonly id: string;
  readonly tools: number;
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

/** All indexed servers, with one row per part: words in two inverted indexes, vectors in a store. */
export class IndexedServers {
  readonly #servers = new Map<string, IndexedServer>();
  readonly #whole = new Bm25(BM25);
  readonly #parts = new Bm25(BM25);
  readonly #vectors: VectorStore;
  readonly #freeRows: number[] = [];
  readonly #bySlot: (IndexedServer | undefined)[] = [];
  readonly #freeSlots: number[] = [];
  /** The slot of each row's server. A pass over 40,000 rows takes a tenth of the time of lists of rows. */
  #slotOf: Int32Array<ArrayBuffer> = new Int32Array(0);
  #rows = 0;

  /** @param dimensions length of the vectors */
  constructor(dimensions: number) {
    this.#vectors = new VectorStore(dimensions);
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

  /** Returns the number of parts that have a term. */
  frequencyOf(term: string): number {
    return this.#parts.frequencyOf(term);
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
  stage({ id, tools, whole, parts, vectors }: IndexedDocuments): HiddenServer {
    const rows = parts.map((terms, at) => {
      const row = this.#freeRows.pop() ?? this.#rows++;
      this.#setSlot(row, NO_SLOT);
      this.#setVector(row, vectors[at] ?? missing());
      this.#parts.add(row, terms);
      return row;
    });
    this.#whole.add(rows[0] ?? missing(), whole);
    return { id, tools, rows };
  }

  /** Shows a staged server, after its previous version was hidden: thousands of servers take a few milliseconds. */
  show({ id, tools, rows }: HiddenServer): void {
    const slot = this.#freeSlots.pop() ?? this.#bySlot.length;
    for (const row of rows) this.#setSlot(row, slot);
    const server = { id, slot, tools, rows };
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

  /**
   * Returns every server's evidence for a query.
   * @param terms distinct terms of the query
   * @param cosines of the query with each row's vector
   */
  score(terms: readonly string[], cosines: Float32Array): ScoredServers {
    const parts = this.#parts.scores(terms);
    const semantic = this.#bestBySlot(cosines, new Float32Array(this.#bySlot.length));
    const keyword = this.#bestBySlot(parts, new Float64Array(this.#bySlot.length));
    const whole = this.#whole.scores(terms);
    for (let row = 0; row < whole.length; row++) {
      const score = whole[row] ?? 0;
      const slot = score > 0 ? (this.#slotOf[row] ?? NO_SLOT) : NO_SLOT;
      if (slot !== NO_SLOT) keyword[slot] = (keyword[slot] ?? 0) + score;
    }
    const candidate = (slot: number): Candidate => {
      const { id, tools, rows } = this.#bySlot[slot] ?? missing();
      const best = semantic[slot] ?? 0;
      const own = Float32Array.from(rows, row => cosines[row] ?? 0);
      const end = 1 + tools;
      return {
        serverId: id,
        texts: rows.length,
        semantic: best,
        direct: largest(own.subarray(0, end)),
        excess: excessOf(best, own.subarray(end)),
        keyword: keyword[slot] ?? 0,
        tools: {
          semantic: own.subarray(1, end),
          keyword: Float32Array.from(rows.slice(1, end), row => parts[row] ?? 0),
        },
      };
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
    const store = this.#vectors;
    const isOurs = vector.values.length === store.dimensions;
    store.set(row, isOurs ? vector : { values: new Int8Array(store.dimensions), scale: 0 });
  }

  /** Returns by row the best cosine of its vector with any of the query's. Vectors with other dimensions are ignored. */
  cosines(queries: readonly Float32Array[]): Float32Array {
    const store = this.#vectors;
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
}

function missing(): never {
  throw new Error('every server must have at least one part, and every part a vector');
}
