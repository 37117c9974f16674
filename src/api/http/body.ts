import type { ServerResponse, IncomingMessage } from 'node:http';
import { getHeapStatistics } from 'node:v8';
import type { Readable } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate, createZstdDecompress } from 'node:zlib';
import { SwitchboardError } from '../../errors.ts';
import { MAX_JSON_DEPTH, shapeOf, type JsonParts } from '../../platform/json/limits.ts';
import { addHeaders, localsOf } from './request.ts';

const MIB = 1024 * 1024;
/** The sockets' own buffers usually hold smaller responses completely. */
const SMALL_ANSWER_BYTES = 64 * 1024;

export interface MemoryLimits {
  readonly maxBytesPerKey: number;
  /** For all keys together. */
  readonly maxBytes: number;
}

/**
 * Returns limits based on the heap size: parsed data takes several times its bytes, so all of it together may take a sixteenth of
 * the heap.
 */
export function defaultMemoryLimits(heapLimitBytes = getHeapStatistics().heap_size_limit): MemoryLimits {
  const maxBytes = Math.min(256 * MIB, Math.max(32 * MIB, Math.floor(heapLimitBytes / 16)));
  return { maxBytes, maxBytesPerKey: Math.floor(maxBytes / 4) };
}

/** Counts further bytes. Returns false, without counting them, if they exceed the limit. */
type Hold = (bytes: number) => boolean;

/**
 * Limits the bytes kept for requests until their responses are closed, per key and in total: request bodies in progress and unread
 * responses.
 */
export class MemoryBudget {
  readonly #byKey = new Map<string, number>();
  readonly #limits: MemoryLimits;
  #bytes = 0;

  constructor(limits: MemoryLimits) {
    this.#limits = limits;
  }

  hold(response: ServerResponse, keyId: string): Hold {
    let held = 0;
    response.once('close', () => this.#add(keyId, -held));
    return bytes => {
      // A closed response emits no further event, so the bytes would never be released.
      if (response.closed) return true;
      if (!this.#hasRoom(keyId, bytes)) return false;
      held += bytes;
      this.#add(keyId, bytes);
      return true;
    };
  }

  #hasRoom(keyId: string, bytes: number): boolean {
    const { maxBytesPerKey, maxBytes } = this.#limits;
    return (this.#byKey.get(keyId) ?? 0) + bytes <= maxBytesPerKey && this.#bytes + bytes <= maxBytes;
  }

  #add(keyId: string, bytes: number): void {
    this.#bytes += bytes;
    const ofKey = (this.#byKey.get(keyId) ?? 0) + bytes;
    if (ofKey > 0) this.#byKey.set(keyId, ofKey);
    else this.#byKey.delete(keyId);
  }
}

/**
 * Counts a response that is about to be sent. Otherwise a client that requests large responses and reads none would make the server
 * buffer them all.
 * @throws SwitchboardError `unavailable`
 */
export function holdAnswer(
  budget: MemoryBudget,
  response: ServerResponse,
  keyId: string,
  json: string | JsonParts,
): void {
  // A character is at most three bytes.
  if (typeof json === 'string' && json.length < SMALL_ANSWER_BYTES / 3) return;
  const bytes = typeof json === 'string' ? Buffer.byteLength(json) : json.byteLength;
  if (bytes < SMALL_ANSWER_BYTES || budget.hold(response, keyId)(bytes)) return;
  throw new SwitchboardError(
    'unavailable',
    'This response was dropped because too much data of earlier responses is still unread. Read those responses or close their connections.',
    { retryAfterSec: 1, retryable: false },
  );
}

/**
 * Wraps the response of an MCP handler so that it is counted as it is written; over the limit, the connection is closed. It has the
 * headers that were added before: an event stream may start before or after a call's limits are known.
 */
export function countedAnswer(budget: MemoryBudget, response: ServerResponse, keyId: string) {
  const added = [...localsOf(response).headers];
  let hold: Hold | undefined;
  const hasRoom = (bytes: number) => {
    hold ??= budget.hold(response, keyId);
    return hold(bytes);
  };
  return {
    get destroyed() {
      return response.destroyed;
    },
    on: response.on.bind(response),
    writeHead: (status: number, headers: Record<string, string> = {}) =>
      response.writeHead(status, [...added, ...withoutConnection(headers)]),
    write(chunk: string | Uint8Array) {
      if (chunk.length >= SMALL_ANSWER_BYTES && !hasRoom(chunk.length)) response.destroy();
      return response.write(chunk);
    },
    end: () => response.end(),
  };
}

/**
 * Drops the Connection header: the handler's event streams would keep connections alive that the client, the server or Node wants
 * to close.
 */
const withoutConnection = (headers: Readonly<Record<string, string>>): string[] =>
  Object.entries(headers).flatMap(header => (header[0].toLowerCase() === 'connection' ? [] : header));

/** Far more than legitimate data has: 4 MiB of brackets take 90 MB once parsed. */
const MAX_CONTAINERS = 100_000;
/** The estimated memory of an object, an array or a member, in addition to its text. */
const PART_BYTES = 64;
/** Smaller bodies are not counted: most are smaller, and the rate limits bound them. */
const SMALL_BYTES = 16 * 1024;

interface Room {
  readonly maxBytes: number;
  /** Counts the body while its request is running. */
  readonly budget: MemoryBudget;
  readonly keyId: string;
}

/**
 * Reads and parses a JSON body, which must be UTF-8 and declared as JSON.
 * @throws SwitchboardError 413, 415, 503 or 400 `invalid_json`
 */
export function readJsonBody(
  request: IncomingMessage,
  response: ServerResponse,
  room: Room,
): Promise<unknown> {
  requireJson(request.headers['content-type']);
  return collect(request, response, room, bytes => {
    const partBytes = PART_BYTES * partsOf(bytes);
    if (partBytes >= SMALL_BYTES && !room.budget.hold(response, room.keyId)(partBytes)) throw tooMuchHeld();
    return parse(bytes);
  });
}

/**
 * Reads the decoded bytes of the body.
 * @throws SwitchboardError 413, 415, 503 or 400 `invalid_request`
 */
export const readBody = (request: IncomingMessage, response: ServerResponse, room: Room): Promise<Buffer> =>
  collect(request, response, room, bytes => bytes);

/** Limits how much of a refused body is discarded, and for how long. */
const LINGER_MS = 2_000;
const LINGER_BYTES = 16 * 1024 * 1024;

/**
 * Discards the rest of a refused body for a moment. If the connection were closed while the client is still sending, it would
 * usually see a broken connection instead of the response.
 */
export async function letGoBy(request: IncomingMessage): Promise<void> {
  if (request.readableEnded || request.destroyed) return;
  const { promise: enough, resolve } = Promise.withResolvers<void>();
  let bytes = 0;
  const drop = (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > LINGER_BYTES) resolve();
  };
  const timer = setTimeout(resolve, LINGER_MS);
  request.unpipe().on('data', drop).once('end', resolve).once('close', resolve).resume();
  await enough;
  clearTimeout(timer);
  request.off('data', drop).off('end', resolve).off('close', resolve).pause();
}

/** Parses JSON within the limits of a body. @throws SwitchboardError 413 or 400 `invalid_json`. */
export function parseJsonBody(bytes: Buffer): unknown {
  partsOf(bytes);
  return parse(bytes);
}

/** Counts objects, arrays and members; 0 for short texts. @throws SwitchboardError 413 or 400 `invalid_json` */
function partsOf(bytes: Buffer): number {
  if (bytes.length <= MAX_JSON_DEPTH) return 0;
  const { depth, containers, members } = shapeOf(bytes);
  if (depth > MAX_JSON_DEPTH) {
    throw new SwitchboardError(
      'invalid_json',
      `The body is nested more than ${MAX_JSON_DEPTH} levels deep. Send flatter JSON.`,
    );
  }
  if (containers > MAX_CONTAINERS) {
    throw new SwitchboardError(
      'payload_too_large',
      `The body contains more than ${MAX_CONTAINERS} objects and arrays. Send fewer.`,
    );
  }
  return containers + members;
}

function parse(bytes: Buffer): unknown {
  if (bytes.length === 0)
    throw new SwitchboardError('invalid_json', 'The body is empty. Send a JSON object.');
  try {
    return JSON.parse(utf8.decode(bytes));
  } catch (cause) {
    const reason = cause instanceof SyntaxError ? 'is not valid JSON' : 'is not valid UTF-8';
    throw new SwitchboardError('invalid_json', `The body ${reason}.`, { cause });
  }
}

const utf8 = new TextDecoder('utf-8', { fatal: true });

function requireJson(contentType: string | undefined): void {
  if (contentType === 'application/json') return;
  const [type = '', ...parameters] = (contentType ?? '')
    .toLowerCase()
    .split(';')
    .map(part => part.trim());
  const charset = parameters
    .find(parameter => parameter.startsWith('charset='))
    ?.slice(8)
    .replaceAll('"', '');
  if (type === 'application/json' && (charset === undefined || charset === 'utf-8' || charset === 'utf8'))
    return;
  throw new SwitchboardError(
    'unsupported_media_type',
    'Send the body as Content-Type: application/json in UTF-8.',
  );
}

const DECODERS: Readonly<Record<string, () => NodeJS.ReadWriteStream & Readable>> = {
  gzip: createGunzip,
  deflate: createInflate,
  br: createBrotliDecompress,
  zstd: createZstdDecompress,
};

/** Returns the request itself, or a stream that decodes its Content-Encoding (RFC 9110 §8.4). */
export function decodedBody(request: IncomingMessage): Readable {
  const encoding = request.headers['content-encoding']?.trim().toLowerCase() ?? 'identity';
  if (encoding === 'identity' || encoding === '') return request;
  const decoder = DECODERS[encoding]?.();
  if (decoder) return request.pipe(decoder);
  throw new SwitchboardError(
    'unsupported_media_type',
    'Send the body uncompressed or with Content-Encoding gzip, deflate, br or zstd.',
  );
}

/**
 * Collects the decoded bytes of the body, and stops reading at the limit. A connection whose body was not read to its end is
 * closed after the response.
 * @param read returns the result from the bytes
 */
const collect = <T>(
  request: IncomingMessage,
  response: ServerResponse,
  room: Room,
  read: (bytes: Buffer) => T,
): Promise<T> =>
  new Promise((resolve, reject) =>
    new BodyReader(request, response, room, bytes => resolve(read(bytes)), reject).start(),
  );

/** Reads one body. */
class BodyReader {
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #room: Room;
  readonly #onBytes: (bytes: Buffer) => void;
  readonly #onError: (error: unknown) => void;
  readonly #chunks: Buffer[] = [];
  #length = 0;
  /** The bytes that the budget knows of. */
  #counted = 0;
  #hold: Hold | undefined;
  #source: Readable | undefined;
  #isRefused = false;

  /** @param onBytes may throw */
  constructor(
    request: IncomingMessage,
    response: ServerResponse,
    room: Room,
    onBytes: (bytes: Buffer) => void,
    onError: (error: unknown) => void,
  ) {
    this.#request = request;
    this.#response = response;
    this.#room = room;
    this.#onBytes = onBytes;
    this.#onError = onError;
  }

  start(): void {
    const request = this.#request;
    const { maxBytes } = this.#room;
    if (Number(request.headers['content-length'] ?? 0) > maxBytes) return this.#refuse(tooLarge(maxBytes));
    let source: Readable;
    try {
      source = decodedBody(request);
    } catch (error) {
      return this.#refuse(error);
    }
    this.#source = source;
    // A truncated request ends with an error, never with `end`.
    source.on('data', this.#take).on('end', this.#end).on('error', this.#fail);
    if (source !== request) request.on('error', this.#fail);
  }

  readonly #take = (chunk: Buffer): void => {
    this.#length += chunk.length;
    const { maxBytes } = this.#room;
    if (this.#length > maxBytes) this.#stop(tooLarge(maxBytes));
    else if (!this.#hasRoom()) this.#stop(tooMuchHeld());
    else this.#chunks.push(chunk);
  };

  readonly #end = (): void => {
    // The rest of a refused body ends, too.
    if (this.#isRefused) return;
    const [first] = this.#chunks;
    try {
      this.#onBytes(first && this.#chunks.length === 1 ? first : Buffer.concat(this.#chunks, this.#length));
    } catch (error) {
      this.#onError(error);
    }
  };

  readonly #fail = (cause: unknown): void => this.#stop(unreadable(cause));

  #hasRoom(): boolean {
    const more = this.#length - this.#counted;
    if (more < SMALL_BYTES) return true;
    this.#hold ??= this.#room.budget.hold(this.#response, this.#room.keyId);
    if (!this.#hold(more)) return false;
    this.#counted = this.#length;
    return true;
  }

  #stop(error: SwitchboardError): void {
    if (this.#isRefused) return;
    this.#source?.off('data', this.#take).pause();
    if (this.#source !== this.#request) this.#source?.destroy();
    this.#refuse(error);
  }

  #refuse(error: unknown): void {
    this.#isRefused = true;
    void letGoBy(this.#request).then(() => {
      addHeaders(this.#response, { Connection: 'close' });
      this.#onError(error);
    });
  }
}

const tooLarge = (maxBytes: number) =>
  new SwitchboardError('payload_too_large', `The body is larger than ${maxBytes} bytes. Send less data.`);

const tooMuchHeld = () =>
  new SwitchboardError(
    'unavailable',
    'Other requests currently use all the memory that this key or this server allows, so this request was not read. Try again when some of them have finished.',
    { retryAfterSec: 1 },
  );

const unreadable = (cause: unknown) =>
  new SwitchboardError(
    'invalid_request',
    'The body could not be decoded: it is truncated or does not match its Content-Encoding.',
    {
      cause,
    },
  );
