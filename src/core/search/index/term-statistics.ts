import { MAX_COUNT, weightOf } from './bm25.ts';

/**
 * The words of a server's documents, the whole text first and then each part. Each document is its length in terms, the number
 * of different terms, their sorted hashes, and their counts as bytes, padded with zeros. It is little-endian, like every platform
 * of Node.
 */
export type Words = Int32Array<ArrayBuffer>;

const HEADER = 2;

/** Returns a 32-bit hash (FNV-1a, then mixed). Two terms with the same hash count as one: among 100,000 terms that hits about one. */
function termHash(term: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < term.length; at++) hash = Math.imul(hash ^ term.charCodeAt(at), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  hash ^= hash >>> 16;
  // 0 marks a free slot.
  return hash === 0 ? 1 : hash;
}

/** Returns the words of documents, each given as its terms. */
export function wordsOf(documents: readonly (readonly string[])[]): Words {
  const counted = documents.map(terms => {
    const counts = new Map<number, number>();
    for (const term of terms) {
      const hash = termHash(term);
      counts.set(hash, (counts.get(hash) ?? 0) + 1);
    }
    return { length: terms.length, counts };
  });
  const size = counted.reduce((sum, { counts }) => sum + sizeOf(counts.size), 0);
  const words = new Int32Array(size);
  const bytes = new Uint8Array(words.buffer);
  let at = 0;
  for (const { length, counts } of counted) {
    words[at] = length;
    words[at + 1] = counts.size;
    const hashes = Int32Array.from(counts.keys()).sort();
    words.set(hashes, at + HEADER);
    let byte = (at + HEADER + hashes.length) * 4;
    for (const hash of hashes) bytes[byte++] = Math.min(counts.get(hash) ?? 0, MAX_COUNT);
    at += sizeOf(hashes.length);
  }
  return words;
}

const sizeOf = (terms: number): number => HEADER + terms + ((terms + 3) >>> 2);

export function documentCount(words: Words): number {
  let count = 0;
  for (let at = 0; at < words.length; at += sizeOf(words[at + 1] ?? 0)) count++;
  return count;
}

/** Returns the different terms of all documents. */
export function termsOf(words: Words): number[] {
  const terms = new Set<number>();
  for (let at = 0; at < words.length; at += sizeOf(words[at + 1] ?? 0)) {
    for (const hash of words.subarray(at + HEADER, at + HEADER + (words[at + 1] ?? 0))) terms.add(hash);
  }
  return [...terms];
}

/** The terms of a query with their weights, for whole texts and for parts. */
export interface WeighedTerms {
  readonly hashes: Int32Array;
  readonly whole: Weights;
  readonly part: Weights;
}

interface Weights {
  /** By position of the term. */
  readonly weights: Float64Array;
  readonly meanLength: number;
}

/**
 * Calls `found` for every term of the query that a document has.
 * @param visit gets the position of the document, its length, the position of the term in the query, and its count
 */
export function eachMatch(
  words: Words,
  { hashes }: WeighedTerms,
  visit: (document: number, length: number, term: number, count: number) => void,
): void {
  const bytes = new Uint8Array(words.buffer, words.byteOffset, words.byteLength);
  let document = 0;
  for (let at = 0; at < words.length; document++) {
    const length = words[at] ?? 0;
    const size = words[at + 1] ?? 0;
    const first = at + HEADER;
    for (let term = 0; term < hashes.length; term++) {
      const position = find(words, first, size, hashes[term] ?? 0);
      if (position >= 0) visit(document, length, term, bytes[(first + size) * 4 + position] ?? 0);
    }
    at += sizeOf(size);
  }
}

/** Returns the position of a hash among the `size` sorted ones from `first`; -1 if it is not among them. */
function find(words: Words, first: number, size: number, hash: number): number {
  let low = 0;
  let high = size;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((words[first + middle] ?? 0) < hash) low = middle + 1;
    else high = middle;
  }
  return low < size && words[first + low] === hash ? low : -1;
}

const FIRST_SLOTS = 64;
/** Slots in use before the table doubles. */
const MAX_LOAD = 0.75;

/**
 * The keyword statistics that BM25 needs, without the words of any server: by term, the number of whole texts and of parts that
 * have it. It is a hash table with 12 bytes per slot. It may also be the difference between two such statistics, with negative
 * numbers. It is exact after each change.
 */
export class TermStatistics {
  #terms = new Int32Array(FIRST_SLOTS);
  #wholes = new Int32Array(FIRST_SLOTS);
  #parts = new Int32Array(FIRST_SLOTS);
  #used = 0;
  #totals = { wholes: 0, parts: 0, wholeLength: 0, partLength: 0 };

  /** The memory of the table. */
  get bytes(): number {
    return 3 * this.#terms.byteLength;
  }

  /** Counts the documents of a server. */
  add(words: Words): void {
    this.#count(words, 1);
  }

  /** Takes away the documents of a server that were counted. */
  subtract(words: Words): void {
    this.#count(words, -1);
  }

  /** Adds the numbers of another one. */
  merge(other: TermStatistics): void {
    for (let slot = 0; slot < other.#terms.length; slot++) {
      const wholes = other.#wholes[slot] ?? 0;
      const parts = other.#parts[slot] ?? 0;
      if (wholes !== 0 || parts !== 0) this.#increase(other.#terms[slot] ?? 0, wholes, parts);
    }
    const [own, added] = [this.#totals, other.#totals];
    this.#totals = {
      wholes: own.wholes + added.wholes,
      parts: own.parts + added.parts,
      wholeLength: own.wholeLength + added.wholeLength,
      partLength: own.partLength + added.partLength,
    };
  }

  /** Returns the number of parts that have the term. */
  frequencyOf(term: string): number {
    return this.#parts[this.#slotOf(termHash(term))] ?? 0;
  }

  /** Returns the weights of a query's terms. Those of a term that no document has are meaningless. */
  weigh(terms: readonly string[]): WeighedTerms {
    const hashes = Int32Array.from(terms, termHash);
    const { wholes, parts, wholeLength, partLength } = this.#totals;
    const weights = (documents: number, frequencies: Int32Array) =>
      Float64Array.from(hashes, hash => weightOf(documents, frequencies[this.#slotOf(hash)] ?? 0));
    return {
      hashes,
      whole: { weights: weights(wholes, this.#wholes), meanLength: wholeLength / wholes },
      part: { weights: weights(parts, this.#parts), meanLength: partLength / parts },
    };
  }

  #count(words: Words, sign: 1 | -1): void {
    const totals = this.#totals;
    for (let at = 0; at < words.length; at += sizeOf(words[at + 1] ?? 0)) {
      const isWhole = at === 0;
      const length = (words[at] ?? 0) * sign;
      totals[isWhole ? 'wholes' : 'parts'] += sign;
      totals[isWhole ? 'wholeLength' : 'partLength'] += length;
      const end = at + HEADER + (words[at + 1] ?? 0);
      for (let position = at + HEADER; position < end; position++) {
        this.#increase(words[position] ?? 0, isWhole ? sign : 0, isWhole ? 0 : sign);
      }
    }
  }

  #increase(term: number, wholes: number, parts: number): void {
    let slot = this.#slotOf(term);
    if (this.#terms[slot] === 0) {
      if (this.#used >= this.#terms.length * MAX_LOAD) {
        this.#rebuild();
        slot = this.#slotOf(term);
      }
      this.#terms[slot] = term;
      this.#used++;
    }
    this.#wholes[slot] = (this.#wholes[slot] ?? 0) + wholes;
    this.#parts[slot] = (this.#parts[slot] ?? 0) + parts;
  }

  /** Returns the slot that has the term, or a free one for it. */
  #slotOf(term: number): number {
    const last = this.#terms.length - 1;
    let slot = term & last;
    while (this.#terms[slot] !== term && this.#terms[slot] !== 0) slot = (slot + 1) & last;
    return slot;
  }

  /** Drops terms that nothing has any more, and doubles the table if that does not free half of it. */
  #rebuild(): void {
    const [terms, wholes, parts] = [this.#terms, this.#wholes, this.#parts];
    let kept = 0;
    for (let slot = 0; slot < terms.length; slot++) if (wholes[slot] !== 0 || parts[slot] !== 0) kept++;
    const slots = kept > terms.length / 2 ? terms.length * 2 : terms.length;
    this.#terms = new Int32Array(slots);
    this.#wholes = new Int32Array(slots);
    this.#parts = new Int32Array(slots);
    this.#used = kept;
    for (let slot = 0; slot < terms.length; slot++) {
      if (wholes[slot] === 0 && parts[slot] === 0) continue;
      const to = this.#slotOf(terms[slot] ?? 0);
      this.#terms[to] = terms[slot] ?? 0;
      this.#wholes[to] = wholes[slot] ?? 0;
      this.#parts[to] = parts[slot] ?? 0;
    }
  }
}
