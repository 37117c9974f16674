import { isUtf8 } from 'node:buffer';
import { GrowingBuffer } from './growing-buffer.ts';

export interface SseEvent {
  /** The `event:` field; `message` when there was none. */
  readonly event: string;
  readonly data: string;
}

const LF = 10;
const CR = 13;
const COLON = 58;
/** What a line of data costs beyond its bytes. */
const LINE_BYTES = 32;
const FIELDS: ReadonlySet<string> = new Set(['data', 'event', 'id', 'retry']);
const HEADER_SAFE = /^[\x21-\x7e](?:[\x20-\x7e]{0,1022}[\x21-\x7e])?$/;
const BOM = Buffer.from([0xef, 0xbb, 0xbf]);

/**
 * An incremental parser of `text/event-stream` (HTML §9.2.6): one pass over the bytes, lines may end in LF, CR or CRLF, and
 * chunks may be cut anywhere. Other than the standard says, invalid UTF-8 is an error, not U+FFFD: a tool's result must not be
 * changed on the way.
 */
export class SseParser {
  readonly #line = new GrowingBuffer();
  #afterCr = false;
  #atStart = true;
  #event = '';
  #data: string[] = [];
  #dataBytes = 0;
  #nextId: string | undefined;
  #lastId: string | undefined;
  #retryMs: number | undefined;

  /** The events this chunk completes. @throws SyntaxError on invalid UTF-8. */
  push(chunk: Buffer): SseEvent[] {
    const events: SseEvent[] = [];
    let start = 0;
    for (const end of lineEnds(chunk)) {
      const secondHalfOfCrLf = this.#afterCr && end === start && chunk[end] === LF;
      const event = secondHalfOfCrLf ? undefined : this.#endLine(chunk.subarray(start, end));
      if (event) events.push(event);
      this.#afterCr = chunk[end] === CR;
      start = end + 1;
    }
    if (start < chunk.length) {
      this.#line.append(chunk.subarray(start));
      this.#afterCr = false;
    }
    return events;
  }

  /** Whether the stream, were it to end here, would end in the middle of an event. */
  get midEvent(): boolean {
    return this.#line.length > 0 || this.#data.length > 0;
  }

  /** The id of the last event that had one, with which the stream can be resumed; undefined if it cannot stand in a header. */
  get lastEventId(): string | undefined {
    return this.#lastId;
  }

  /** How long the server wants to be left alone before the stream is resumed. */
  get retryMs(): number | undefined {
    return this.#retryMs;
  }

  /** Bytes held of an event that is not complete. */
  get pendingBytes(): number {
    return this.#line.length + this.#dataBytes;
  }

  #endLine(rest: Buffer): SseEvent | undefined {
    let line = rest;
    if (this.#line.length > 0) {
      this.#line.append(rest);
      line = this.#line.take();
    }
    if (this.#atStart) {
      this.#atStart = false;
      if (line.subarray(0, 3).equals(BOM)) line = line.subarray(3);
    }
    return line.length === 0 ? this.#endEvent() : this.#field(line);
  }

  #endEvent(): SseEvent | undefined {
    const event =
      this.#data.length === 0 ? undefined : { event: this.#event || 'message', data: this.#data.join('\n') };
    this.#event = '';
    this.#data = [];
    this.#dataBytes = 0;
    if (this.#nextId !== undefined) this.#lastId = HEADER_SAFE.test(this.#nextId) ? this.#nextId : undefined;
    this.#nextId = undefined;
    return event;
  }

  #field(line: Buffer): undefined {
    const colon = line.indexOf(COLON);
    const name = (colon === -1 ? line : line.subarray(0, colon)).toString('latin1');
    if (!FIELDS.has(name)) return;
    let value = colon === -1 ? line.subarray(line.length) : line.subarray(colon + 1);
    if (value[0] === 32) value = value.subarray(1);
    if (!isUtf8(value)) throw new SyntaxError('invalid UTF-8');
    this.#set(name, value.toString(), value.length);
  }

  #set(name: string, value: string, bytes: number): void {
    if (name === 'data') {
      this.#data.push(value);
      this.#dataBytes += bytes + LINE_BYTES;
    } else if (name === 'event') this.#event = value;
    else if (name === 'id') this.#nextId = value;
    else if (/^\d{1,9}$/.test(value)) this.#retryMs = Number(value);
  }
}

/** Where the line-ending bytes stand, in order; each kind is searched for once over the chunk. */
function* lineEnds(chunk: Buffer): Generator<number> {
  let lf = chunk.indexOf(LF);
  let cr = chunk.indexOf(CR);
  while (lf !== -1 || cr !== -1) {
    if (cr === -1 || (lf !== -1 && lf < cr)) {
      yield lf;
      lf = chunk.indexOf(LF, lf + 1);
    } else {
      yield cr;
      cr = chunk.indexOf(CR, cr + 1);
    }
  }
}
