/** How fast a repeated term saturates, and how much a long document is penalized (0 not at all, 1 fully). */
interface Bm25Parameters {
  readonly k1: number;
  readonly b: number;
}

/** The usual parameters; on the tune sets, similar values perform equally. */
export const BM25: Bm25Parameters = { k1: 1.2, b: 0.75 };

/**
 * Returns the weight of a term that so many of the documents have: BM25 (Robertson & Zaragoza 2009) with the non-negative idf,
 * relative to that of a term in only one document, so that scores of collections of any size are comparable.
 */
export const weightOf = (documents: number, frequency: number): number =>
  idf(documents, frequency) / idf(documents, 1);

const idf = (documents: number, frequency: number): number =>
  Math.log(1 + (documents - frequency + 0.5) / (frequency + 0.5));

/** Returns the score of a document for a term that it has so many times. Scores of several terms are added in float32. */
export const termScore = (
  { k1, b }: Bm25Parameters,
  weight: number,
  count: number,
  length: number,
  meanLength: number,
): number => (weight * count * (k1 + 1)) / (count + k1 * (1 - b + (b * length) / meanLength));

/** A term that a document has more often counts this many times. */
export const MAX_COUNT = 255;

/** A posting packs a row and the term's count in it: row * 256 + count. */
const COUNT_BITS = Math.log2(MAX_COUNT + 1);
const MAX_ROW = 2 ** (32 - COUNT_BITS) - 1;

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
 * An inverted index scored by BM25. The owner assigns document numbers, which may be sparse and reused after a removal. Every
 * statistic is exact after each change, so scores do not depend on insertion order.
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

  /** Returns the number of documents that have a term. */
  frequencyOf(term: string): number {
    return this.#terms.get(term)?.size ?? 0;
  }

  /** Adds a document, given as its terms. @throws RangeError if the row is taken or out of range */
  add(row: number, terms: readonly string[]): void {
    if (!Number.isInteger(row) || row < 0 || row > MAX_ROW || this.#termsOf[row]) {
      throw new RangeError(`row ${row} is taken or out of range`);
    }
    const held: Term[] = [];
    for (const text of terms) {
      const term = this.#terms.get(text);
      if (term && countAgain(term, row)) continue;
      held.push(this.#hold(text, term, row * (MAX_COUNT + 1) + 1));
    }
    // A copy has exactly this length; an array that grew has room for half as many again.
    this.#termsOf[row] = held.slice();
    if (row >= this.#lengths.length) this.#lengths = grown(this.#lengths, row + 1);
    this.#lengths[row] = terms.length;
    this.#totalLength += terms.length;
    this.#size++;
  }

  #hold(text: string, known: Term | undefined, posting: number): Term {
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
    const meanLength = this.#totalLength / this.#size;
    for (const text of query) {
      const term = this.#terms.get(text);
      if (!term) continue;
      const weight = weightOf(this.#size, term.size);
      const { only, postings } = term;
      for (let at = 0; at < term.size; at++) {
        const posting = postings[at] ?? only;
        const row = posting >>> COUNT_BITS;
        const count = posting & MAX_COUNT;
        const length = this.#lengths[row] ?? 0;
        const gain = termScore(this.#parameters, weight, count, length, meanLength);
        scores[row] = (scores[row] ?? 0) + gain;
      }
    }
    return scores;
  }
}

/** Counts a term once more in a document. Returns false if the document does not have it yet. */
function countAgain(term: Term, row: number): boolean {
  const { only, postings, size } = term;
  if (postings.length === 0) {
    if (only >>> COUNT_BITS !== row) return false;
    if ((only & MAX_COUNT) < MAX_COUNT) term.only++;
    return true;
  }
  const at = lowerBound(term, row * (MAX_COUNT + 1));
  const posting = postings[at] ?? 0;
  if (at === size || posting >>> COUNT_BITS !== row) return false;
  if ((posting & MAX_COUNT) < MAX_COUNT) postings[at] = posting + 1;
  return true;
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
