import { Bm25 } from './bm25.ts';
import type { Candidate } from './search-index.ts';
import type { QuantizedVector } from './vector-format.ts';
import { VectorStore } from './vector-store.ts';

/** The usual BM25 parameters; the tune sets do not tell neighbours apart. */
const BM25 = { k1: 1.2, b: 0.75 };

/** Says where the vectors of a server's parts are found. */
export interface VectorSource {
  /** Equal for equal texts only. */
  readonly key: string;
  /** The text each vector stands for, the server's own first. */
  texts(): readonly string[];
}

/** A server ready to be indexed: its terms as a whole, and the terms and vector of each part (see `documents.ts`). */
export interface IndexedDocuments {
  readonly id: string;
  readonly whole: readonly string[];
  readonly parts: readonly (readonly string[])[];
  /** One vector a part, or the place where they are: not all have to be in memory. */
  readonly vectors: readonly QuantizedVector[] | VectorSource;
}

interface IndexedServer {
  readonly id: string;
  /** Its position among all servers, used again when it is gone. */
  readonly slot: number;
  readonly source: VectorSource | undefined;
  /** Rows of its parts: its own text first, then one for each tool. */
  readonly rows: readonly number[];
}

/** Rows of a server that no query sees, because it is not shown yet or was removed. */
export interface HiddenServer {
  readonly id: string;
  readonly source: VectorSource | undefined;
  readonly rows: readonly number[];
}

/** The evidence of all servers for a query, by slot. `candidate` adds the evidence of a chosen server's tools. */
export interface ScoredServers {
  /** 0 where no cosine is above, and in slots that no server has. */
  readonly semantic: Float32Array;
  readonly keyword: Float64Array;
  readonly candidate: (slot: number) => Candidate;
}

/** Stands in the place of a slot where the row is free. */
const NO_SLOT = -1;

/** Holds every indexed server, one row for each part: its words in two inverted indexes, its vectors in a store where there is one. */
export class IndexedServers {
  readonly #servers = new Map<string, IndexedServer>();
  readonly #whole = new Bm25(BM25);
  readonly #parts = new Bm25(BM25);
  readonly #vectors: VectorStore | undefined;
  readonly #freeRows: number[] = [];
  readonly #bySlot: (IndexedServer | undefined)[] = [];
  readonly #freeSlots: number[] = [];
  /** The slot of each row's server. A pass over 40,000 rows takes a tenth of the time that lists of rows would take. */
  #slotOf: Int32Array<ArrayBuffer> = new Int32Array(0);
  #rows = 0;

  /** @param dimensions length of the vectors; without it only their sources are kept */
  constructor(dimensions?: number) {
    this.#vectors = dimensions === undefined ? undefined : new VectorStore(dimensions);
  }

  get size(): number {
    return this.#servers.size;
  }

  ids(): MapIterator<string> {
    return this.#servers.keys();
  }

  /** Adds a server or puts it in the place of its old self, without a pause. */
  put(documents: IndexedDocuments): void {
    this.remove(documents.id);
    this.show(this.stage(documents));
  }

  remove(id: string): void {
    const hidden = this.hide(id);
    if (hidden) this.clear(hidden);
  }

  /** Adds a server without showing it: its words count in the statistics of words only. */
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

  /** Shows a staged server, whose old self must be hidden: thousands of servers take a few milliseconds. */
  show({ id, source, rows }: HiddenServer): void {
    const slot = this.#freeSlots.pop() ?? this.#bySlot.length;
    for (const row of rows) this.#setSlot(row, slot);
    const server = { id, slot, source, rows };
    this.#bySlot[slot] = server;
    this.#servers.set(id, server);
  }

  /** Hides a server, as quickly. Returns the rows to clear, if there was such a server. */
  hide(id: string): HiddenServer | undefined {
    const server = this.#servers.get(id);
    if (!server) return undefined;
    for (const row of server.rows) this.#setSlot(row, NO_SLOT);
    this.#bySlot[server.slot] = undefined;
    this.#freeSlots.push(server.slot);
    this.#servers.delete(id);
    return server;
  }

  /** Forgets a hidden server. */
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

  /** A vector of other dimensions is another model's, from before or after this index: it counts as none. */
  #setVector(row: number, vector: QuantizedVector): void {
    const store = this.#vectors ?? missing();
    const isOurs = vector.values.length === store.dimensions;
    store.set(row, isOurs ? vector : { values: new Int8Array(store.dimensions), scale: 0 });
  }

  /** Returns by row the best cosine of its vector with any of the query's. Vectors of other dimensions count as none. */
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

  /** Returns cosines by row from cosines by source, one a part; 0 for the parts of other servers. */
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
  throw new Error('a server has at least one part, and every part a vector');
}
