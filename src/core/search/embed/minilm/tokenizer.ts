/** Texts longer than this are cut, [CLS] and [SEP] included: what all-MiniLM-L6-v2 sets (`max_seq_length`); shorter texts do not pay for it. */
export const MAX_TOKENS = 256;

/** Names the way texts become ids; goes into the embedder's id. Change it with any change that can alter an id. */
export const TOKENIZATION = `wordpiece-${MAX_TOKENS}-v1`;

/** Longer words become [UNK], as in the original. */
const MAX_WORD_CHARS = 100;

/** No more UTF-16 units than this are looked at, so that a huge text of white space or controls costs little; 254 tokens are about 1,500. */
const MAX_UNITS = 32_768;

const DROPPED = /^[\0\uFFFD\p{Cc}\p{Cf}\p{Co}\p{Cs}]$/u;
const SPACE = /^[\t\n\r\p{White_Space}]$/u;
const CJK =
  /^[\u4E00-\u9FFF\u3400-\u4DBF\uF900-\uFAFF\u{20000}-\u{2A6DF}\u{2A700}-\u{2B81F}\u{2B920}-\u{2CEAF}\u{2F800}-\u{2FA1F}]$/u;
/** BERT counts every ASCII symbol as punctuation. */
const PUNCTUATION = /^[\p{P}!-/:-@[-`{-~]$/u;
const MARKS = /\p{Mn}/gu;

/**
 * The WordPiece tokenizer of uncased BERT: control characters are dropped, accents stripped, letters lowered, every
 * CJK character and punctuation mark is a word of its own, and a word is cut greedily into the longest known pieces.
 * A text that spells a special token ("[MASK]") is plain text here: descriptions come from strangers.
 */
export class Tokenizer {
  readonly #ids: ReadonlyMap<string, number>;
  readonly #unknown: number;
  readonly #start: number;
  readonly #end: number;

  /**
   * @param vocabulary piece -> id, where a piece that continues a word begins with "##"
   * @throws Error when a special token is missing from the vocabulary
   */
  constructor(vocabulary: ReadonlyMap<string, number>) {
    const special = (token: string): number => {
      const id = vocabulary.get(token);
      if (id === undefined) throw new Error(`The vocabulary has no ${token}`);
      return id;
    };
    this.#ids = vocabulary;
    this.#unknown = special('[UNK]');
    this.#start = special('[CLS]');
    this.#end = special('[SEP]');
  }

  /** Token ids of `text`: [CLS] … [SEP], at least 2 and at most MAX_TOKENS. Takes any string, lone surrogates too. */
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

/** Words of a text, read only as far as they are asked for. */
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

/** One character cleaned: '' when dropped, ' ' for any white space, else its lower-case letters without accents. */
function normalize(char: string): string {
  if (char >= 'a' && char <= 'z') return char;
  if (DROPPED.test(char) && !/[\t\n\r]/.test(char)) return '';
  if (SPACE.test(char)) return ' ';
  return char.normalize('NFD').replace(MARKS, '').toLowerCase();
}

function isWordByItself(char: string): boolean {
  return !(char >= 'a' && char <= 'z') && (PUNCTUATION.test(char) || CJK.test(char));
}
