/** A correction changes at most one letter in so many. */
const LETTERS_PER_EDIT = 5;
/** A correction has at most so many letters more or fewer. */
const MAX_LONGER = 2;
/** Limits the work: a text with more unknown words is no request in everyday words. */
const MAX_UNKNOWN = 8;

/** What is known of the words that a correction may choose. */
export interface WordUse {
  /** Whether people use a word in requests, whatever the catalogue. */
  readonly isOrdinary: (word: string) => boolean;
  /** How many texts of the catalogue have a word, in any form; 0 for stop words. */
  readonly frequencyOf: (word: string) => number;
}

interface Correction {
  readonly word: string;
  readonly edits: number;
  readonly isOrdinary: boolean;
  readonly frequency: number;
}

/** A word by itself: not part of an address, a path or an identifier. Shorter ones are close to too many others. */
const WORD = /(?<![^\s"'(])[A-Za-z]{5,20}(?=[.,;:!?"')]*(?:\s|$))/g;

/**
 * Corrects misspelled English words of a query, for a model that knows many words as a whole and reads a misspelled one as pieces
 * without meaning. A correction has the same first letter, and is an ordinary word or one of the catalogue: the closest, then
 * an ordinary one, then the most frequent. Words of the catalogue are never corrected, nor capitalized words within the query, which
 * are mostly names.
 */
export class Spelling {
  readonly #words: ReadonlySet<string>;
  /** By first letter and length. */
  readonly #alike = new Map<string, string[]>();

  /** @param words what the model and requests know, in lower case */
  constructor(words: ReadonlySet<string>) {
    this.#words = words;
    for (const word of words) {
      const key = keyOf(word, word.length);
      const others = this.#alike.get(key);
      if (others) others.push(word);
      else this.#alike.set(key, [word]);
    }
  }

  /** Returns the query with its misspelled words corrected; undefined if there are none. */
  correct(query: string, use: WordUse): string | undefined {
    let unknown = 0;
    const corrected = query.replace(WORD, (word, at: number) => {
      const lower = word.toLowerCase();
      const isName = at > 0 && lower !== word;
      if (isName || this.#words.has(lower) || use.frequencyOf(lower) > 0) return word;
      return ++unknown > MAX_UNKNOWN ? word : (this.#closest(lower, use) ?? word);
    });
    return corrected === query || unknown > MAX_UNKNOWN ? undefined : corrected;
  }

  #closest(word: string, use: WordUse): string | undefined {
    const most = word.length / LETTERS_PER_EDIT;
    let best: Correction | undefined;
    for (const other of this.#nearby(word)) {
      const edits = editsBetween(word, other, best?.edits ?? most);
      if (edits === undefined) continue;
      const one = {
        word: other,
        edits,
        isOrdinary: use.isOrdinary(other),
        frequency: use.frequencyOf(other),
      };
      if ((one.isOrdinary || one.frequency > 0) && (!best || isBetter(one, best))) best = one;
    }
    return best?.word;
  }

  *#nearby(word: string): Generator<string> {
    for (let length = word.length - MAX_LONGER; length <= word.length + MAX_LONGER; length++)
      yield* this.#alike.get(keyOf(word, length)) ?? [];
  }
}

const keyOf = (word: string, length: number): string => `${word.slice(0, 1)}${length}`;

function isBetter(one: Correction, other: Correction): boolean {
  if (one.edits !== other.edits) return one.edits < other.edits;
  if (one.isOrdinary !== other.isOrdinary) return one.isOrdinary;
  return one.frequency > other.frequency;
}

/** A letter that was doubled, or not doubled, by mistake. */
const DOUBLED = 0.5;

/**
 * Returns how many letters were left out, added, replaced or exchanged with the next one (optimal string alignment); undefined if
 * there are more than `most`.
 */
function editsBetween(a: string, b: string, most: number): number | undefined {
  let before: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const [mine, theirs] = [a[i - 1], b[j - 1]];
      const added = of(last, j) + (mine === a[i - 2] ? DOUBLED : 1);
      const leftOut = of(row, j - 1) + (theirs === b[j - 2] ? DOUBLED : 1);
      const replaced = of(last, j - 1) + Number(mine !== theirs);
      const isExchange = mine === b[j - 2] && theirs === a[i - 2];
      row.push(Math.min(added, leftOut, replaced, isExchange ? of(before, j - 2) + 1 : Infinity));
    }
    // An exchange reaches back by two rows.
    if (Math.min(...row) > most && Math.min(...last) > most) return undefined;
    [before, last] = [last, row];
  }
  const edits = of(last, b.length);
  return edits <= most ? edits : undefined;
}

const of = (row: readonly number[], at: number): number => row[at] ?? Infinity;
