/** The cost of each kind of mistake. The most usual ones are the cheapest: that decides between words that are equally close. */
const COSTS = {
  /** A letter that was doubled, or not doubled. */
  doubled: 0.5,
  /** Two letters in the wrong order. */
  exchanged: 0.9,
  addedOrLeftOut: 1,
  replaced: 1.1,
};
/** The maximum cost of a correction: this, and 1 for every five letters of the word. */
const BASE_COST = 0.1;
const LETTERS_PER_MISTAKE = 5;
/** The difference in length between a word and its correction, in letters. */
const MAX_LONGER = 2;
/** Limits the work: a text with more unknown words is no request in everyday words. */
const MAX_UNKNOWN = 8;
/** A word of the catalogue is a mistake, too, if its correction costs little and is so many times as frequent. */
const RARE = 50;
const MAX_COST_IF_KNOWN = 1;

/** The use of words, each in any form. */
export interface WordUse {
  /** Returns whether people use a word in requests, whatever the catalogue. */
  readonly isOrdinary: (word: string) => boolean;
  /** Returns the number of texts of the catalogue that have a word; 0 for stop words. */
  readonly frequencyOf: (word: string) => number;
}

interface Word {
  readonly text: string;
  /** The letters that it has, one bit each. */
  readonly letters: number;
}

interface Correction {
  readonly text: string;
  readonly cost: number;
  readonly isOrdinary: boolean;
  readonly frequency: number;
}

/** A word by itself: not part of an address, a path or an identifier. Shorter ones are close to too many others. */
const WORD = /(?<![^\s"'(“‘])[A-Za-z]{5,20}(?=[.,;:!?"')”’…]*(?:\s|$))/g;

/**
 * Corrects misspelled English words of a query, for a model that knows many words as a whole and reads a misspelled one as pieces
 * without meaning. A correction has the same first letter and is a word of the catalogue: the closest, then one that people use in
 * requests, then the most frequent. Capitalized words within the query are not corrected, because they are mostly names.
 */
export class Spelling {
  readonly #words: ReadonlySet<string>;
  /** By first letter and length. */
  readonly #alike = new Map<string, Word[]>();

  /** @param words what the model and requests know, in lower case */
  constructor(words: ReadonlySet<string>) {
    this.#words = words;
    for (const text of words) {
      const key = keyOf(text, text.length);
      const others = this.#alike.get(key) ?? [];
      others.push({ text, letters: lettersOf(text) });
      this.#alike.set(key, others);
    }
  }

  /** Returns the query with its misspelled words corrected; undefined if there are none. */
  correct(query: string, use: WordUse): string | undefined {
    const unknown = new Set(
      Array.from(query.matchAll(WORD))
        .filter(({ 0: word, index }) => index === 0 || word === word.toLowerCase())
        .map(([word]) => word)
        .filter(word => !this.#words.has(word.toLowerCase()) && !use.isOrdinary(word.toLowerCase())),
    );
    if (unknown.size === 0 || unknown.size > MAX_UNKNOWN) return undefined;
    const corrections = new Map(
      Array.from(unknown, word => [word, this.#correction(word.toLowerCase(), use)]),
    );
    const corrected = query.replace(WORD, word => corrections.get(word) ?? word);
    return corrected === query ? undefined : corrected;
  }

  #correction(word: string, use: WordUse): string | undefined {
    const own = use.frequencyOf(word);
    const most = own > 0 ? MAX_COST_IF_KNOWN : BASE_COST + word.length / LETTERS_PER_MISTAKE;
    let best: Correction | undefined;
    for (const text of this.#nearby(word, most)) {
      const cost = costOf(word, text, best?.cost ?? most);
      // A word may be a name that begins with another word.
      if (cost === undefined || (word.startsWith(text) && cost > COSTS.doubled)) continue;
      const frequency = use.frequencyOf(text);
      if (frequency <= own * RARE) continue;
      const one = { text, cost, isOrdinary: use.isOrdinary(text), frequency };
      if (!best || isBetter(one, best)) best = one;
    }
    return best?.text;
  }

  /** Returns the words whose letters do not exclude a cost of `most`: a mistake changes at most two. */
  *#nearby(word: string, most: number): Generator<string> {
    const own = lettersOf(word);
    for (let length = word.length - MAX_LONGER; length <= word.length + MAX_LONGER; length++)
      for (const { text, letters } of this.#alike.get(keyOf(word, length)) ?? [])
        if (bitsOf(letters ^ own) <= 2 * most) yield text;
  }
}

const keyOf = (word: string, length: number): string => `${word.slice(0, 1)}${length}`;

/** @param word of letters a to z */
const lettersOf = (word: string): number =>
  Array.from(word).reduce((letters, letter) => letters | (1 << (letter.charCodeAt(0) - 97)), 0);

function bitsOf(letters: number): number {
  let count = 0;
  for (let left = letters; left !== 0; left &= left - 1) count++;
  return count;
}

function isBetter(one: Correction, other: Correction): boolean {
  if (one.cost !== other.cost) return one.cost < other.cost;
  if (one.isOrdinary !== other.isOrdinary) return one.isOrdinary;
  return one.frequency > other.frequency;
}

/** Returns the cost of the mistakes that make `b` of `a` (optimal string alignment); undefined if it is above `most`. */
function costOf(a: string, b: string, most: number): number | undefined {
  let before: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const [mine, theirs] = [a[i - 1], b[j - 1]];
      const added = costAt(last, j) + (mine === a[i - 2] ? COSTS.doubled : COSTS.addedOrLeftOut);
      const leftOut = costAt(row, j - 1) + (theirs === b[j - 2] ? COSTS.doubled : COSTS.addedOrLeftOut);
      const replaced = costAt(last, j - 1) + (mine === theirs ? 0 : COSTS.replaced);
      const isExchange = mine === b[j - 2] && theirs === a[i - 2];
      const exchanged = isExchange ? costAt(before, j - 2) + COSTS.exchanged : Infinity;
      row.push(Math.min(added, leftOut, replaced, exchanged));
    }
    // An exchange reaches back by two rows.
    if (Math.min(...row) > most && Math.min(...last) > most) return undefined;
    [before, last] = [last, row];
  }
  const cost = costAt(last, b.length);
  return cost <= most ? cost : undefined;
}

const costAt = (row: readonly number[], at: number): number => row[at] ?? Infinity;
