import { codePointsIn, indexAfter, wholeIndex } from '../../platform/sanitize.ts';

/** How far from a match its line and the lines around it are searched. Lengths here are in UTF-16 units. */
const CONTEXT = 400;
/** The length shown on each side of a match in a longer line. */
const WINDOW = 200;
/** The text kept before the part to be searched: enough context for a match. */
export const LOOK_BACK = CONTEXT + 1;
/** The length of a match and of the text shown after it. */
const LOOK_AHEAD = 2 * CONTEXT + 1;

interface FoundPiece {
  /** The offset of the text, in code points. */
  readonly offset: number;
  readonly text: string;
}

export interface FoundPieces {
  readonly matches: readonly FoundPiece[];
  /** The offset of the first match that did not fit; absent if all did. */
  readonly nextFrom?: number;
}

interface Search {
  /** Plain text of at most 200 characters; case is ignored. */
  readonly find: string;
  /** Matches before this offset are skipped. */
  readonly from: number;
  /** The total length of all pieces, in code points. */
  readonly maxChars: number;
}

/** Part of a text; the parts arrive in order. */
export interface TextPart {
  /** In code points. */
  readonly offset: number;
  readonly text: string;
  readonly isLast: boolean;
}

/**
 * Finds the lines that contain a text. Each piece is the line of a match with one line before and after, or a window around
 * the match if the line is long. Overlapping pieces are joined. Keeps little more than one part in memory.
 */
export async function findLines(parts: AsyncIterable<TextPart>, search: Search): Promise<FoundPieces> {
  const finder = new Finder(search);
  for await (const part of parts) if (!finder.goesOnAfter(part)) break;
  return finder.found();
}

class Finder {
  readonly #search: Search;
  readonly #pattern: RegExp;
  readonly #pieces: { offset: number; text: string; end: number }[] = [];
  /** The text being searched: the end of earlier parts, and a new part. `#searched` is an index in it. */
  #text = '';
  #offset = 0;
  #searched = 0;
  #isLast = false;
  /** An index in the text and its offset: later offsets are counted from there. */
  #mark = { index: 0, offset: 0 };
  #isPastFrom = false;
  #usedChars = 0;
  #nextFrom: number | undefined;

  constructor(search: Search) {
    this.#search = search;
    const literal = search.find.toWellFormed().replaceAll(/[\\^$.*+?()[\]{}|/]/g, String.raw`\$&`);
    this.#pattern = new RegExp(literal, 'giu');
  }

  found(): FoundPieces {
    const matches = this.#pieces.map(({ offset, text }) => ({ offset, text }));
    return { matches, ...(this.#nextFrom === undefined ? {} : { nextFrom: this.#nextFrom }) };
  }

  /** Searches a part. Returns false if there is no room for more. */
  goesOnAfter({ offset, text, isLast }: TextPart): boolean {
    if (this.#text === '') {
      this.#offset = offset;
      this.#mark = { index: 0, offset };
    }
    this.#text += text;
    this.#isLast = isLast;
    const end = isLast
      ? this.#text.length
      : wholeIndex(this.#text, Math.max(0, this.#text.length - LOOK_AHEAD));
    const pattern = this.#pattern;
    pattern.lastIndex = this.#searched;
    for (let hit = pattern.exec(this.#text); hit && hit.index < end; hit = pattern.exec(this.#text)) {
      const after = hit.index + hit[0].length;
      this.#isPastFrom ||= this.#offsetOf(hit.index) >= this.#search.from;
      if (!this.#isPastFrom) {
        pattern.lastIndex = indexAfter(this.#text, 1, hit.index);
        continue;
      }
      if (!this.#show(hit.index, after)) return false;
      this.#searched = after;
    }
    this.#searched = Math.max(this.#searched, end);
    this.#forget(wholeIndex(this.#text, Math.max(0, this.#searched - LOOK_BACK)));
    return true;
  }

  /** Adds the piece of a match. Returns false if it does not fit. */
  #show(start: number, after: number): boolean {
    const begin = this.#beginOf(start);
    const end = this.#endOf(after);
    const last = this.#pieces.at(-1);
    const isJoined = last !== undefined && begin <= last.end + 1;
    const room = this.#search.maxChars - this.#usedChars;
    const shown = { begin: isJoined ? last.end : begin, end: isJoined ? Math.max(end, last.end) : end };
    let chars = codePointsIn(this.#text, shown.begin, shown.end);
    if (chars > room && this.#pieces.length > 0) {
      this.#nextFrom = this.#offsetOf(start);
      return false;
    }
    if (chars > room) {
      // Even the first piece does not fit: it shows as much of the match as possible.
      shown.begin = start;
      shown.end = Math.min(end, indexAfter(this.#text, room, start));
      chars = codePointsIn(this.#text, shown.begin, shown.end);
    }
    const text = this.#text.slice(shown.begin, shown.end);
    if (isJoined) {
      last.text += text;
      last.end = shown.end;
    } else this.#pieces.push({ offset: this.#offsetOf(shown.begin), text, end: shown.end });
    this.#usedChars += chars;
    return true;
  }

  /** Returns the start of the line before, otherwise of the match's own line, otherwise of a window. */
  #beginOf(start: number): number {
    const low = Math.max(0, start - CONTEXT - 1);
    const before = this.#text.slice(low, start);
    const isFromStart = low === 0 && this.#offset === 0;
    const own = before.lastIndexOf('\n');
    if (own < 0) return isFromStart ? 0 : wholeIndex(this.#text, Math.max(0, start - WINDOW));
    const above = own === 0 ? -1 : before.lastIndexOf('\n', own - 1);
    if (above >= 0) return low + above + 1;
    return isFromStart ? 0 : low + own + 1;
  }

  /** Returns the end of the line after, otherwise of the match's own line, otherwise of a window. */
  #endOf(after: number): number {
    const high = after + CONTEXT + 1;
    const rest = this.#text.slice(after, high);
    const isToEnd = this.#isLast && high >= this.#text.length;
    const own = rest.indexOf('\n');
    if (own < 0) return isToEnd ? this.#text.length : wholeIndex(this.#text, after + WINDOW);
    const below = rest.indexOf('\n', own + 1);
    if (below >= 0) return after + below;
    return isToEnd ? this.#text.length : after + own;
  }

  #offsetOf(index: number): number {
    if (index < this.#mark.index) this.#mark = { index: 0, offset: this.#offset };
    const offset = this.#mark.offset + codePointsIn(this.#text, this.#mark.index, index);
    this.#mark = { index, offset };
    return offset;
  }

  #forget(index: number): void {
    this.#offset += codePointsIn(this.#text, 0, index);
    this.#text = this.#text.slice(index);
    this.#searched -= index;
    this.#mark = { index: 0, offset: this.#offset };
    const last = this.#pieces.at(-1);
    // A piece that ended earlier cannot be joined any more: a negative end is before anything that follows.
    if (last) last.end -= index;
  }
}
