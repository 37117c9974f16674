import { Bm25 } from './bm25.ts';
import type { Candidate } from './search-index.ts';
import type { QuantizedVector } from './quantize.ts';
import { VectorStore } from './vector-store.ts';

/** The usual BM25 parameters; the tune sets do not tell neighbours apart. */
const BM25 = { k1: 1.2, b: 0.75 };

/** Where the vectors of a server's parts are to be found. */
export interface VectorSource {
  /** The same for the same texts only. */
  readonly key: string;
  /** The text each vector stands for, the server's own first. */
  texts(): readonly string[];
}

/** A server ready to be indexed: its terms as a whole, and the terms and vector of each part (see `documents.ts`). */
export interface IndexedDocuments {
  readonly id: string;
  readonly whole: readonly string[];
  readonly parts: readonly (readonly string[])[];
  /** One a part, or where they are: not all have to be in memory. */
  vectors: readonly QuantizedVector[] | VectorSource;
}

interface IndexedServer {
  readonly id: string;
  readonly source: VectorSource | undefined;
  /** Rows of its parts: its own text first, then one a tool. */
  readonly rows: readonly number[];
}

/** One server's evidence for a query; `candidate` adds that of its tools, for those servers that are chosen. */
export interface ScoredServer {
  readonly id: string;
  readonly semantic: number;
  readonly keyword: number;
  readonly candidate: () => Candidate;
}

/** Every indexed server: its words in two inverted indexes, its vectors in a store where there is one; a row a part. */
export class IndexedServers {
  readonly #servers = new Map<string, IndexedServer>();
  readonly #whole = new Bm25(BM25);
  readonly #parts = new Bm25(BM25);
  readonly #vectors: VectorStore | undefined;
  readonly #freeRows: number[] = [];
  #rows = 0;

  /** @param dimensions of the vectors; absent: none are kept, only sources of them. */
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
  put({ id, whole, parts, vectors }: IndexedDocuments): void {
    this.remove(id);
    const source = 'key' in vectors ? vectors : undefined;
    const rows = parts.map((terms, at) => {
      const row = this.#freeRows.pop() ?? this.#rows++;
      if (!('key' in vectors)) (this.#vectors ?? missing()).set(row, vectors[at] ?? missing());
      this.#parts.add(row, terms);
      return row;
    });
    this.#whole.add(rows[0] ?? missing(), whole);
    this.#servers.set(id, { id, source, rows });
  }

  remove(id: string): void {
    const server = this.#servers.get(id);
    if (!server) return;
    this.#whole.remove(server.rows[0] ?? missing());
    for (const row of server.rows) this.#parts.remove(row);
    this.#freeRows.push(...server.rows);
    this.#servers.delete(id);
  }

  /** In how many parts a term stands. */
  frequencyOf(term: string): number {
    return this.#parts.frequencyOf(term);
  }

  sourceOf(id: string): VectorSource | undefined {
    return this.#servers.get(id)?.source;
  }

  /** Every server's evidence for a query, given as its distinct terms and by row the cosines of its vectors. */
  score(terms: readonly string[], cosines: Float32Array): ScoredServer[] {
    const whole = this.#whole.scores(terms);
    const parts = this.#parts.scores(terms);
    return Array.from(this.#servers.values(), ({ id, rows }) => {
      let semantic = 0;
      let keyword = 0;
      for (const row of rows) {
        const cosine = cosines[row] ?? 0;
        const score = parts[row] ?? 0;
        if (cosine > semantic) semantic = cosine;
        if (score > keyword) keyword = score;
      }
      keyword += whole[rows[0] ?? missing()] ?? 0;
      const toolEvidence = (row: number, index: number) => ({
        index,
        semantic: cosines[row] ?? 0,
        keyword: parts[row] ?? 0,
      });
      return {
        id,
        semantic,
        keyword,
        candidate: () => ({ serverId: id, semantic, keyword, tools: rows.slice(1).map(toolEvidence) }),
      };
    });
  }

  /** By row, the best cosine of its vector with any of the query's (none: keywords answer alone). */
  cosines([first, ...others]: readonly Float32Array[]): Float32Array {
    const store = this.#vectors ?? missing();
    const best = first ? store.scan(first) : new Float32Array(store.size);
    for (const vector of others) {
      for (const [row, cosine] of store.scan(vector).entries()) {
        if (cosine > (best[row] ?? 0)) best[row] = cosine;
      }
    }
    return best;
  }

  /** The same from cosines computed elsewhere, one a part; 0 for the parts of servers that are not among them. */
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
