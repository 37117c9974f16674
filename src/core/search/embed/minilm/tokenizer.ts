/** Longer texts are truncated, including [CLS] and [SEP], as set by all-MiniLM-L6-v2 (`max_seq_length`). */
export const MAX_TOKENS = 256;

/** Identifies the mapping from text to ids as part of the embedder's id. Change it whenever an id may change. */
export const TOKENIZATION = `wordpiece-${MAX_TOKENS}-v1`;

/** Longer words become [UNK], as in the original. */
const MAX_WORD_CHARS = 100;

/**
 * Only this many UTF-16 units are read, so that a huge text of white space or control characters is cheap; 254 tokens are
 * about 1,500.
 */
const MAX_UNITS = 32_768;

const DROPPED = /^[\0\uFFFD\p{Cc}\p{Cf}\p{Co}\p{Cs}]$/u;
const SPACE = /^[\t\n\r\p{White_Space}]$/u;
const CJK =
  /^[\u4E00-\u9FFF\u3400-\u4DBF\uF900-\uFAFF\u{20000}-\u{2A6DF}\u{2A700}-\u{2B81F}\u{2B920}-\u{2CEAF}\u{2F800}-\u{2FA1F}]$/u;
/** BERT treats every ASCII symbol as punctuation. */
const PUNCTUATION = /^[\p{P}!-/:-@[-`{-~]$/u;
const MARKS = /\p{Mn}/gu;

/**
 * The WordPiece tokenizer of uncased BERT. Control characters are dropped, accents stripped and letters lowered; every CJK
 * character and punctuation mark is a separate word, and a word is split greedily into the longest known pieces. Special
 * tokens in the text ("[MASK]") are treated as plain text, because descriptions are untrusted.
 */
export class Tokenizer {
  readonly #ids: ReadonlyMap<string, number>;
  readonly #unknown: number;
  readonly #start: number;
  readonly #end: number;

  /**
   * @param vocabulary piece -> id; a piece that continues a word starts with "##"
   * @throws Error if the vocabulary lacks a special token
   */
  constructor(vocabulary: ReadonlyMap<string, number>) {
    const special = (token: string): number => {
      const id = vocabulary.get(token);
      if (id === undefined) throw new Error(`The vocabulary does not contain ${token}`);
      return id;
    };
    this.#ids = vocabulary;
    this.#unknown = special('[UNK]');
    this.#start = special('[CLS]');
    this.#end = special('[SEP]');
  }

  /**
   * Returns the token ids of `text`: [CLS] … [SEP], at least 2 and at most MAX_TOKENS. Accepts any string, including lone
   * surrogates.
   */
  encode(text: string): number[] {
    const ids = [this.#start];
    for (const word of words(text.slice(0, MAX_UNITS))) {
      this.#appendPieces(word, ids);
      if (ids.length >= MAX_TOKENS) break;
    }
    ids.length = Math.min(ids.length, MAX_TOKENS - 1);
    ids.push(this.#end);
    return ids;
  }

  #appendPieces(word: string, ids: number[]): void {
    const chars = Array.from(word);
    const first = ids.length;
    let start = 0;
    while (start < chars.length && chars.length <= MAX_WORD_CHARS) {
      let end = chars.length;
      let id: number | undefined;
      while (end > start) {
        const piece = chars.slice(start, end).join('');
        id = this.#ids.get(start === 0 ? piece : `##${piece}`);
        if (id !== undefined) break;
        end--;
      }
      if (id === undefined) break;
      ids.push(id);
      start = end;
    }
    if (start < chars.length) {
      // A word with any unknown part is unknown as a whole.
      ids.length = first;
      ids.push(this.#unknown);
    }
  }
}

/** Yields the words of a text lazily. */
function* words(text: string): Generator<string> {
  let word = '';
  for (const char of text) {
    for (const part of normalize(char)) {
      const boundary = part === ' ' || isWordByItself(part);
      if (!boundary) {
        word += part;
        continue;
      }
      if (word !== '') yield word;
      word = '';
      if (part !== ' ') yield part;
    }
  }
  if (word !== '') yield word;
}

/** Returns the cleaned character: '' if dropped, ' ' for white space, otherwise lower-case letters without accents. */
function normalize(char: string): string {
  if (char >= 'a' && char <= 'z') return char;
  if (DROPPED.test(char) && !/[\t\n\r]/.test(char)) return '';
  if (SPACE.test(char)) return ' ';
  return char.normalize('NFD').replace(MARKS, '').toLowerCase();
}

function isWordByItself(char: string): boolean {
  return !(char >= 'a' && char <= 'z') && (PUNCTUATION.test(char) || CJK.test(char));
}
