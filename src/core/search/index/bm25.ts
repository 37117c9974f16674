/** A posting packs a row and how often the term stands in it: row * 256 + count. */
const COUNT_BITS = 8;
const MAX_COUNT = (1 << COUNT_BITS) - 1;
const MAX_ROW = 2 ** (32 - COUNT_BITS) - 1;

/** How fast a repeated term saturates, and how much a long document is held against it (0 not at all, 1 in full). */
export interface Bm25Parameters {
  readonly k1: number;
  readonly b: number;
}

interface Term {
  readonly text: string;
  /** The posting of a term that never had another: two in three, and an array costs ten times as much. */
  only: number;
  /** Sorted by row; only the first `size` are in use. `NONE` while `only` holds. */
  postings: Uint32Array;
  size: number;
}

const NONE = new Uint32Array(0);
const FIRST_ROOM = 4;

/**
 * An inverted index scored by BM25 (Robertson & Zaragoza 2009, with the idf that is never negative). The idf is given as a
 * share of that of a term in one document only, so that scores of indexes of any size compare. Documents are numbered by their owner; numbers may be sparse and used again after a removal. Every statistic is exact after each
 * change, so scores do not depend on the order in which documents came.
 */
export class Bm25 {
  readonly #parameters: Bm25Parameters;
  readonly #terms = new Map<string, Term>();
  /** The terms of each document: what a removal has to touch. */
  readonly #termsOf: (readonly Term[] | undefined)[] = [];
  #lengths: Uint32Array = new Uint32Array(0);
  #totalLength = 0;
  #size = 0;

  constructor(parameters: Bm25Parameters) {
    this.#parameters = parameters;
  }

  /** Documents held. */
  get size(): number {
    return this.#size;
  }

  /** Documents a term stands in. */
  frequencyOf(term: string): number {
    return this.#terms.get(term)?.size ?? 0;
  }

  /** Adds a document, given as its terms. @throws RangeError when the row is taken or out of range. */
  add(row: number, terms: readonly string[]): void {
    if (!Number.isInteger(row) || row < 0 || row > MAX_ROW || this.#termsOf[row]) {
      throw new RangeError(`row ${row} is taken or out of range`);
    }
    const counts = new Map<string, number>();
    for (const term of terms) counts.set(term, (counts.get(term) ?? 0) + 1);
    // By `map`, which makes an array of just this length: one that grows has room for half as many again.
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

  /** Does nothing when there is no such document. */
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

  /** The score of every document by row: 0 where no term of the query stands, else above 0. A repeated term counts again. */
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

/** The position of the first posting that is not below `posting`. Rows mostly come in order, so the end is tried first. */
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

/** A copy with room for at least `length` and half as much again as before. */
function grown(array: Uint32Array, length: number): Uint32Array {
  const copy = new Uint32Array(Math.max(length, Math.ceil(array.length * 1.5)));
  copy.set(array);
  return copy;
}
