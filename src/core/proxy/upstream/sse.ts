import { isUtf8 } from 'node:buffer';
import { LargeAnswerScan } from './large-answer.ts';

/** JSON of this size and more is scanned as it arrives. Less is parsed, which is about as fast and simpler. */
export const LARGE_BYTES = 32 * 1024;

export interface SseEvent {
  /** The `event:` field; `message` if there was none. */
  readonly event: string;
  readonly data: string;
  /** The data of a large event in one line, as it was scanned. */
  readonly large?: LargeData | undefined;
}

/** Valid UTF-8. */
interface LargeData {
  readonly bytes: Buffer;
  readonly scan: LargeAnswerScan;
}

/** An event whose data becomes a string only if it is read. */
class LargeEvent implements SseEvent {
  readonly event: string;
  readonly large: LargeData;

  constructor(event: string, large: LargeData) {
    this.event = event;
    this.large = large;
  }

  get data(): string {
    return this.large.bytes.toString();
  }
}

const LF = 10;
const CR = 13;
const COLON = 58;
const SPACE = 32;
/** The overhead of a data line beyond its bytes. */
const LINE_BYTES = 32;
/** The relevant fields, by their first byte. */
const FIELDS: Readonly<Record<number, string>> = { 100: 'data', 101: 'event', 105: 'id', 114: 'retry' };
/** Up to this many bytes, a loop is faster than a search. */
const SHORT_LINE = 32;
const HEADER_SAFE = /^[\x21-\x7e](?:[\x20-\x7e]{0,1022}[\x21-\x7e])?$/;
const BOM = Buffer.from([0xef, 0xbb, 0xbf]);

/**
 * Parses `text/event-stream` (HTML §9.2.6) incrementally, in one pass over the bytes. Lines may end with LF, CR or CRLF, and
 * chunks may be split anywhere. Streams of line breaks or meaningless lines cost little more than their bytes. Unlike in the
 * standard, invalid UTF-8 is an error instead of U+FFFD, because a tool's result must not change in transit.
 */
export class SseParser {
  readonly #line = new GrowingBuffer();
  readonly #scansLarge: boolean;
  /** The scan of a long data line, and how much of the line it has read. */
  #scan: LargeAnswerScan | undefined;
  #scanned = 0;
  #afterCr = false;
  #atStart = true;
  #event = '';
  #data: (string | LargeData)[] = [];
  #dataBytes = 0;
  #nextId: string | undefined;
  #lastId: string | undefined;
  #retryMs: number | undefined;

  /** @param scansLarge whether the data of large events is scanned as it arrives (`SseEvent.large`) */
  constructor({ scansLarge = false } = {}) {
    this.#scansLarge = scansLarge;
  }

  /** Returns the events that this chunk completes. @throws SyntaxError for invalid UTF-8. */
  push(chunk: Buffer): SseEvent[] {
    const events: SseEvent[] = [];
    const lineEnds = new LineEnds(chunk);
    let start = this.#afterCr && chunk[0] === LF ? 1 : 0;
    while (start < chunk.length) {
      if (this.#isBetweenEvents) start = afterBreaks(chunk, start);
      const end = lineEnds.from(start);
      if (end === chunk.length) break;
      const event = this.#endLine(chunk, start, end);
      if (event) events.push(event);
      start = chunk[end] === CR && chunk[end + 1] === LF ? end + 2 : end + 1;
    }
    if (start < chunk.length) this.#appendLine(chunk.subarray(start));
    if (chunk.length > 0) this.#afterCr = chunk.at(-1) === CR;
    return events;
  }

  /** True if the stream ended now, in the middle of an event. */
  get midEvent(): boolean {
    return this.#line.length > 0 || this.#data.length > 0;
  }

  /** The id of the last event that had one, for resuming the stream. Undefined if it is not a valid header value. */
  get lastEventId(): string | undefined {
    return this.#lastId;
  }

  /** The server's requested wait before the stream is resumed. */
  get retryMs(): number | undefined {
    return this.#retryMs;
  }

  /** The buffered bytes of an incomplete event. */
  get pendingBytes(): number {
    return this.#line.length + this.#dataBytes;
  }

  /** True while no part of an event has arrived, so that empty lines are ignored. */
  get #isBetweenEvents(): boolean {
    return (
      this.#line.length === 0 &&
      this.#data.length === 0 &&
      this.#event === '' &&
      this.#nextId === undefined &&
      !this.#atStart
    );
  }

  #endLine(chunk: Buffer, start: number, end: number): SseEvent | undefined {
    if (this.#line.length === 0 && !this.#atStart) return this.#readLine(chunk, start, end);
    this.#appendLine(chunk.subarray(start, end));
    const line = this.#scan ? this.#line.give() : this.#line.take();
    const from = this.#startOf(line);
    this.#atStart = false;
    return this.#readLine(line, from, line.length);
  }

  /** Returns where a line starts: after the byte order mark, if it is the first one. */
  #startOf(line: Buffer): number {
    return this.#atStart && line.subarray(0, BOM.length).equals(BOM) ? BOM.length : 0;
  }

  #appendLine(part: Buffer): void {
    this.#line.append(part);
    if (this.#scansLarge && this.#line.length >= LARGE_BYTES) this.#scanLine(this.#line.bytes);
  }

  /** Scans what has arrived since the last time of a long line with the first data of its event. */
  #scanLine(line: Buffer): void {
    if (!this.#scan) {
      const start = this.#startOf(line);
      if (this.#data.length > 0 || fieldOf(line, start, line.length) !== 'data') return;
      this.#scan = new LargeAnswerScan({ allowBom: false });
      this.#scanned = valueStart('data', line, start, line.length);
    }
    this.#scan.push(line.subarray(this.#scanned));
    this.#scanned = line.length;
  }

  #readLine(bytes: Buffer, start: number, end: number): SseEvent | undefined {
    return start === end ? this.#endEvent() : this.#field(bytes, start, end);
  }

  #endEvent(): SseEvent | undefined {
    const event = this.#data.length === 0 ? undefined : eventOf(this.#event || 'message', this.#data);
    this.#event = '';
    this.#data = [];
    this.#dataBytes = 0;
    if (this.#nextId !== undefined) this.#lastId = HEADER_SAFE.test(this.#nextId) ? this.#nextId : undefined;
    this.#nextId = undefined;
    return event;
  }

  #field(bytes: Buffer, start: number, end: number): undefined {
    const name = fieldOf(bytes, start, end);
    if (name === undefined) return;
    const scan = this.#scan;
    this.#scan = undefined;
    const from = valueStart(name, bytes, start, end);
    if (from === end) {
      this.#set(name, '', 0);
      return;
    }
    const value = bytes.subarray(from, end);
    if (!isUtf8(value)) throw new SyntaxError('invalid UTF-8');
    if (scan) this.#addData({ bytes: value, scan }, value.length);
    else this.#set(name, value.toString(), value.length);
  }

  #addData(data: string | LargeData, bytes: number): void {
    this.#data.push(data);
    this.#dataBytes += bytes + LINE_BYTES;
  }

  #set(name: string, value: string, bytes: number): void {
    if (name === 'data') this.#addData(value, bytes);
    else if (name === 'event') this.#event = value;
    else if (name === 'id') {
      // The standard ignores an id with a NUL.
      if (!value.includes('\0')) this.#nextId = value;
    } else if (/^\d{1,9}$/.test(value)) this.#retryMs = Number(value);
  }
}

/** Returns the field that a line sets, if it is relevant. */
function fieldOf(bytes: Buffer, start: number, end: number): string | undefined {
  const name = FIELDS[bytes[start] ?? 0];
  if (name === undefined) return undefined;
  const nameEnd = start + name.length;
  if (nameEnd > end || (nameEnd < end && bytes[nameEnd] !== COLON)) return undefined;
  for (let i = 1; i < name.length; i++) if (bytes[start + i] !== name.charCodeAt(i)) return undefined;
  return name;
}

/** Returns where a field's value starts: after the colon and one space. */
function valueStart(name: string, bytes: Buffer, start: number, end: number): number {
  const from = Math.min(start + name.length + 1, end);
  return from < end && bytes[from] === SPACE ? from + 1 : from;
}

function eventOf(event: string, lines: readonly (string | LargeData)[]): SseEvent {
  const [first] = lines;
  if (lines.length === 1 && typeof first === 'object') return new LargeEvent(event, first);
  return {
    event,
    data: lines.map(line => (typeof line === 'string' ? line : line.bytes.toString())).join('\n'),
  };
}

const isBreak = (byte: number | undefined) => byte === LF || byte === CR;

function afterBreaks(chunk: Buffer, start: number): number {
  let at = start;
  while (at < chunk.length && isBreak(chunk[at])) at++;
  return at;
}

/** Finds the ends of a chunk's lines. Searches a long line once for each kind of line end. */
class LineEnds {
  readonly #chunk: Buffer;
  #lf = -1;
  #cr = -1;

  constructor(chunk: Buffer) {
    this.#chunk = chunk;
  }

  /** Returns the first line break from `start` on, otherwise the chunk's length. */
  from(start: number): number {
    const near = Math.min(start + SHORT_LINE, this.#chunk.length);
    for (let at = start; at < near; at++) if (isBreak(this.#chunk[at])) return at;
    if (this.#lf < near) this.#lf = this.#find(LF, near);
    if (this.#cr < near) this.#cr = this.#find(CR, near);
    return Math.min(this.#lf, this.#cr);
  }

  #find(byte: number, from: number): number {
    const at = this.#chunk.indexOf(byte, from);
    return at === -1 ? this.#chunk.length : at;
  }
}

/**
 * Collects bytes by copying them into one buffer that doubles. A list of chunks would cost about 100 bytes per chunk, so a
 * server that sends single bytes could use many times the size limit.
 */
export class GrowingBuffer {
  #bytes = Buffer.alloc(0);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** The bytes so far, valid until the next `append`. */
  get bytes(): Buffer {
    return this.#bytes.subarray(0, this.#length);
  }

  append(chunk: Uint8Array): void {
    const needed = this.#length + chunk.length;
    if (needed > this.#bytes.length) {
      const grown = Buffer.allocUnsafe(Math.max(needed, this.#bytes.length * 2));
      this.#bytes.copy(grown, 0, 0, this.#length);
      this.#bytes = grown;
    }
    this.#bytes.set(chunk, this.#length);
    this.#length = needed;
  }

  /** Gives the bytes away and empties the buffer. */
  give(): Buffer {
    const given = this.take();
    this.#bytes = Buffer.alloc(0);
    return given;
  }

  /** Returns the bytes and empties the buffer. They are valid until the next `append`. */
  take(): Buffer {
    const taken = this.bytes;
    this.#length = 0;
    return taken;
  }
}
