import { Action, NEXT, State } from './grammar.ts';
import { MAX_JSON_DEPTH } from './limits.ts';
import { Utf8Check } from './utf8-check.ts';

/** The names of members to find, of at most 64 ASCII characters, each with the names to find inside its value. */
interface Wanted {
  readonly [name: string]: Wanted;
}

/** A value found in a JSON text. */
export interface FoundJson {
  /** The offset of its first byte in all bytes of the text, including a byte order mark. */
  readonly start: number;
  /** The offset after its last byte. */
  readonly end: number;
  /** True if its object has this name more than once. Like `JSON.parse`, the scan returns the last one. */
  readonly repeated: boolean;
  /** The wanted members of an object, by name. */
  readonly members: ReadonlyMap<string, FoundJson>;
}

export interface JsonScanOptions {
  readonly find?: Wanted;
  readonly maxDepth?: number;
  /** Skips a byte order mark at the start. Otherwise it is an error, as in `JSON.parse`. */
  readonly allowBom?: boolean;
}

const PROBLEMS = { syntax: 'invalid JSON', encoding: 'invalid UTF-8', depth: 'JSON is nested too deeply' };

/** Says why a text was refused. The message does not quote it. */
export class JsonScanError extends SyntaxError {
  override readonly name = 'JsonScanError';
  readonly reason: keyof typeof PROBLEMS;

  constructor(reason: keyof typeof PROBLEMS, offset: number) {
    super(`${PROBLEMS[reason]} before byte ${offset + 1}`);
    this.reason = reason;
  }
}

interface Found extends FoundJson {
  start: number;
  end: number;
  members: Map<string, Found>;
  readonly wanted: Wanted;
}

/** An open object in which members are wanted. The outermost level has no object: its member is the whole value. */
interface Level {
  readonly depth: number;
  readonly parent: Level | undefined;
  readonly object: Found | undefined;
  /** The wanted member that is being read. */
  member: Found | undefined;
}

/** The longest name that can be wanted, with each of its characters escaped. */
const MAX_NAME_BYTES = 6 * 64;
const NO_BYTES: Buffer = Buffer.alloc(0);
/** The members of a value that is no object. Nothing is added to it. */
const NO_MEMBERS: Map<string, Found> = new Map();
const NO_QUADS: Int32Array = new Int32Array();
/** Shorter chunks are not worth a view of their quads. */
const MIN_QUADS_BYTES = 256;

/**
 * Validates a JSON text that arrives in chunks, and finds members, so that their bytes can be copied instead of parsed. It
 * accepts exactly what `JSON.parse` accepts, if that is UTF-8 and within the depth. Its time is proportional to the text, and
 * its memory only depends on the wanted names. After an error it must not be used.
 */
export class JsonScan {
  readonly #utf8 = new Utf8Check();
  readonly #root: Found;
  readonly #maxDepth: number;
  /** By depth, 1 for an open object and 0 for an open array. */
  readonly #isObject: Uint8Array;
  #state: number;
  #depth = 0;
  #level: Level;
  /** The number of bytes before the current chunk. */
  #offset = 0;
  #chunk = NO_BYTES;
  /** Where the current name begins in the chunk, or -1 outside names in which members are wanted. */
  #nameAt = -1;
  /** The bytes of the name in earlier chunks. */
  #nameHead = NO_BYTES;

  constructor({ find = {}, maxDepth = MAX_JSON_DEPTH, allowBom = false }: JsonScanOptions = {}) {
    this.#root = { start: 0, end: 0, repeated: false, members: NO_MEMBERS, wanted: find };
    this.#level = { depth: 0, parent: undefined, object: undefined, member: this.#root };
    this.#maxDepth = maxDepth;
    this.#isObject = new Uint8Array(maxDepth + 1);
    this.#state = allowBom ? State.Start : State.WantedValue;
  }

  /** Reads the next bytes of the text. @throws JsonScanError */
  push(chunk: Buffer): void {
    if (!this.#utf8.push(chunk)) throw new JsonScanError('encoding', this.#offset + chunk.length);
    this.#chunk = chunk;
    if (this.#nameAt !== -1) this.#nameAt = 0;
    const quads = quadsOf(chunk);
    const { length } = chunk;
    // Constants of other modules are looked up on each use.
    const next = NEXT;
    const { InText, InName } = State;
    const { Fail } = Action;
    let state = this.#state;
    for (let at = 0; at < length; at++) {
      if (state === InText || state === InName) {
        at = skipPlain(chunk, quads, at);
        if (at === length) break;
      }
      state = next[state * 256 + (chunk[at] ?? 0)] ?? Fail;
      if (state >= Fail) state = this.#act(state, at);
    }
    this.#state = state;
    if (this.#nameAt !== -1) this.#keepName(chunk.length);
    this.#chunk = NO_BYTES;
    this.#offset += chunk.length;
  }

  /** Ends the text and returns its value. @throws JsonScanError */
  end(): FoundJson {
    const isNumber = this.#state >= State.Zero && this.#state <= State.Exponent;
    if (isNumber) this.#state = this.#endValue(0);
    if (this.#state !== State.End) throw this.#failure('syntax', 0);
    return this.#root;
  }

  /** Does what the grammar demands at a byte of the chunk, and returns the next state. */
  #act(action: number, at: number): number {
    switch (action) {
      case Action.BeginWanted:
        this.#beginWanted(at);
        return this.#again(State.Value, at);
      case Action.EndNumber:
        return this.#again(this.#endValue(at), at);
      case Action.EndValue:
        return this.#endValue(at + 1);
      case Action.BeginName:
        this.#beginName(at + 1);
        return State.InName;
      case Action.EndName:
        this.#endName(at);
        return State.Colon;
      case Action.Colon:
        return this.#isAtMember ? State.WantedValue : State.Value;
      case Action.Comma:
        return this.#isObject[this.#depth] === 1 ? State.Name : State.Value;
      default:
        return this.#bracket(action, at);
    }
  }

  #bracket(action: number, at: number): number {
    switch (action) {
      case Action.OpenObject:
        return this.#open(1, at);
      case Action.OpenArray:
        return this.#open(0, at);
      case Action.CloseObject:
        return this.#close(1, at);
      case Action.CloseArray:
        return this.#close(0, at);
      default:
        throw this.#failure('syntax', at);
    }
  }

  /** Reads the byte again in another state. */
  #again(state: number, at: number): number {
    const next = NEXT[state * 256 + (this.#chunk[at] ?? 0)] ?? Action.Fail;
    return next >= Action.Fail ? this.#act(next, at) : next;
  }

  get #isAtMember(): boolean {
    return this.#level.member !== undefined && this.#level.depth === this.#depth;
  }

  #open(isObject: 0 | 1, at: number): number {
    const isWanted = this.#isAtMember;
    if (++this.#depth > this.#maxDepth) throw this.#failure('depth', at);
    this.#isObject[this.#depth] = isObject;
    if (isObject === 0) return State.ValueOrEnd;
    if (isWanted) this.#openWanted();
    return State.NameOrEnd;
  }

  #openWanted(): void {
    const parent = this.#level;
    const object = parent.member;
    if (object) object.members = new Map();
    this.#level = { depth: this.#depth, parent, object, member: undefined };
  }

  #close(isObject: 0 | 1, at: number): number {
    if (this.#isObject[this.#depth] !== isObject) throw this.#failure('syntax', at);
    if (this.#level.depth === this.#depth) this.#level = this.#level.parent ?? this.#level;
    this.#depth--;
    return this.#endValue(at + 1);
  }

  #endValue(at: number): number {
    if (this.#isAtMember && this.#level.member) {
      this.#level.member.end = this.#offset + at;
      this.#level.member = undefined;
    }
    return this.#depth === 0 ? State.End : State.CommaOrEnd;
  }

  #beginWanted(start: number): void {
    if (this.#level.member) this.#level.member.start = this.#offset + start;
  }

  #beginName(start: number): void {
    if (this.#level.object && this.#level.depth === this.#depth) this.#nameAt = start;
  }

  /** Keeps the bytes of a name in the chunk, and not many more than a wanted one can have. */
  #keepName(end: number): void {
    const most = MAX_NAME_BYTES + 1 - this.#nameHead.length;
    const part = this.#chunk.subarray(this.#nameAt, Math.min(end, this.#nameAt + most));
    this.#nameHead = Buffer.concat([this.#nameHead, part]);
  }

  #endName(end: number): void {
    if (this.#nameAt === -1) return;
    const name =
      this.#nameHead.length === 0 ? this.#text(this.#chunk, this.#nameAt, end) : this.#joinedName(end);
    this.#nameAt = -1;
    const { object } = this.#level;
    if (object === undefined || name === undefined || !Object.hasOwn(object.wanted, name)) return;
    const repeated = object.members.has(name);
    const wanted = object.wanted[name] ?? {};
    this.#level.member = { start: 0, end: 0, repeated, members: NO_MEMBERS, wanted };
    object.members.set(name, this.#level.member);
  }

  #joinedName(end: number): string | undefined {
    this.#keepName(end);
    const bytes = this.#nameHead;
    this.#nameHead = NO_BYTES;
    return this.#text(bytes, 0, bytes.length);
  }

  /** Returns the text between a valid string's quotes, unless it is too long for a wanted name. */
  #text(bytes: Buffer, start: number, end: number): string | undefined {
    if (end - start > MAX_NAME_BYTES) return undefined;
    const text = bytes.toString('utf8', start, end);
    return text.includes('\\') ? (JSON.parse(`"${text}"`) as string) : text;
  }

  #failure(reason: JsonScanError['reason'], at: number): JsonScanError {
    return new JsonScanError(reason, this.#offset + at);
  }
}

/** Scans a whole text. @throws JsonScanError */
export function scanJson(text: Buffer, options?: JsonScanOptions): FoundJson {
  const scan = new JsonScan(options);
  scan.push(text);
  return scan.end();
}

/** Returns the chunk in aligned units of four bytes, the first of which may begin before it. */
function quadsOf({ buffer, byteOffset, length }: Buffer): Int32Array {
  if (length < MIN_QUADS_BYTES) return NO_QUADS;
  const skew = byteOffset & 3;
  return new Int32Array(buffer, byteOffset - skew, (length + skew) >> 2);
}

/** Returns the index of the next byte that is not plain inside a string, otherwise the chunk's length. */
function skipPlain(chunk: Buffer, quads: Int32Array, start: number): number {
  const skew = chunk.byteOffset & 3;
  let at = start;
  for (; at < chunk.length && isPlain(chunk[at] ?? 0); at++) {
    if (((at + skew) & 3) !== 0) continue;
    let quad = (at + skew) >> 2;
    while (quad < quads.length && isPlainQuad(quads[quad] ?? 0)) quad++;
    // The loop goes on at the first quad that is not plain, or that the chunk does not have completely.
    at = Math.max(at, (quad << 2) - skew - 1);
  }
  return at;
}

const isPlain = (byte: number): boolean => byte >= 0x20 && byte !== 0x22 && byte !== 0x5c;

/** Does the same for four bytes at once: a byte is zero, or below 0x20, if the subtraction borrows into its highest bit. */
const isPlainQuad = (quad: number): boolean => {
  const quotes = quad ^ 0x22222222;
  const backslashes = quad ^ 0x5c5c5c5c;
  const borrowed =
    ((quad - 0x20202020) & ~quad) |
    ((quotes - 0x01010101) & ~quotes) |
    ((backslashes - 0x01010101) & ~backslashes);
  return (borrowed & 0x80808080) === 0;
};
