/** Terminal colours and cursor movements. */
const ANSI_SEQUENCE = /\p{Cc}\[[\d;?]*[A-Za-z]/gu;
const LINE_BREAK = /\r\n?|[\p{Zl}\p{Zp}\u{85}]/gu;
const CONTROL = /[^\P{Cc}\n\t]/gu;
/**
 * Zero-width, bidi, tag and other format characters, lone surrogates, private use, blank letters, variation
 * selectors of the second plane.
 */
const UNSEEN = String.raw`\p{Cf}\p{Cs}\p{Co}\u{115f}\u{1160}\u{3164}\u{ffa0}\u{e0100}-\u{e01ef}`;
const INVISIBLE = new RegExp(`[${UNSEEN}]`, 'gu');
const NOT_PLAIN = new RegExp(String.raw`[\p{Cc}\p{Zl}\p{Zp}${UNSEEN}]`, 'u');

/**
 * Cleans outside text for display and indexing: removes terminal colours, control characters and invisible
 * characters. Keeps tabs and line breaks, all as `\n`.
 */
export const cleanText = (text: string): string =>
  text
    .replaceAll(ANSI_SEQUENCE, '')
    .replaceAll(LINE_BREAK, '\n')
    .replaceAll(CONTROL, ' ')
    .replaceAll(INVISIBLE, '');

/** Cleans outside text like `cleanText`, and shortens it to a one-line excerpt. */
export function sanitise(text: string, maxChars = 200): string {
  const clean = cleanText(text.slice(0, maxChars * 4))
    .replaceAll(/\s+/g, ' ')
    .trim();
  return clean.length <= maxChars ? clean : `${clean.slice(0, maxChars).toWellFormed()}…`;
}

/** Returns whether a name has no control or invisible characters. */
export const isPlain = (name: string): boolean => !NOT_PLAIN.test(name);

/** Replaces what Postgres cannot store: one such text would keep all rows of a batch from being written. */
export const storable = (text: string): string => text.toWellFormed().replaceAll('\0', '\uFFFD');

/** Adds a full stop if the text does not end with punctuation. */
export const asSentence = (text: string): string => (/[.?!…:]$/.test(text) ? text : `${text}.`);

const isPair = (text: string, at: number): boolean => (text.codePointAt(at) ?? 0) > 0xff_ff;

/** Counts the code points of a text or part of it. Uses a loop, because an array of megabytes of characters would be too large. */
export function codePointsIn(text: string, from = 0, to = text.length): number {
  let count = 0;
  for (let at = from; at < to; at += isPair(text, at) ? 2 : 1) count++;
  return count;
}

/** Returns the index that is this many code points after another, at most the text's end. */
export function indexAfter(text: string, codePoints: number, from = 0): number {
  let at = from;
  for (let passed = 0; passed < codePoints && at < text.length; passed++) at += isPair(text, at) ? 2 : 1;
  return at;
}

/** Returns the index, or the one before it if it would split a surrogate pair. */
export const wholeIndex = (text: string, at: number): number =>
  at > 0 && isPair(text, at - 1) ? at - 1 : at;

/** Returns the first texts that fit together into the space, in characters; `apart` more are needed for each. */
export function fitting(texts: readonly string[], room: number, apart = 0): string[] {
  let used = 0;
  return texts.filter(text => {
    used += text.length + apart;
    return used <= room;
  });
}

/** Longer than any id. */
const MAX_QUOTED = 300;

/** Quotes a caller's text for an error, shortened if necessary. */
export const quoted = (text: string): string =>
  JSON.stringify(text.length <= MAX_QUOTED ? text : `${text.slice(0, MAX_QUOTED)}…`);
