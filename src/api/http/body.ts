import type { ServerResponse, IncomingMessage } from 'node:http';
import { getHeapStatistics } from 'node:v8';
import type { Readable } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate, createZstdDecompress } from 'node:zlib';
import { SwitchboardError } from '../../errors.ts';
import { MAX_JSON_DEPTH, shapeOf } from '../../platform/json-limits.ts';
import { addHeaders } from './request.ts';

const MIB = 1024 * 1024;
/** The sockets' own buffers take smaller answers about whole. */
const SMALL_ANSWER_BYTES = 64 * 1024;

export interface MemoryLimits {
  readonly maxBytesPerKey: number;
  /** For all keys together. */
  readonly maxBytes: number;
}

/** Returns limits by the heap's: parsed data takes several times its bytes, so all together may come to a sixteenth of the heap. */
export function defaultMemoryLimits(heapLimitBytes = getHeapStatistics().heap_size_limit): MemoryLimits {
  const maxBytes = Math.min(256 * MIB, Math.max(32 * MIB, Math.floor(heapLimitBytes / 16)));
  return { maxBytes, maxBytesPerKey: Math.floor(maxBytes / 4) };
}

/** Counts further bytes. Returns false where there is no room for them; then they are not counted. */
type Hold = (bytes: number) => boolean;

/**
 * Bounds, for each key and in all, the bytes that are kept for requests until their responses are closed: bodies under way, and
 * answers that their clients have not read.
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
      // A closed response never closes again, so nothing would be given back.
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
 * Counts an answer that is about to be sent. A client that asks for large answers and reads none would have them all kept for it.
 * @throws SwitchboardError `unavailable`.
 */
export function holdAnswer(
  budget: MemoryBudget,
  response: ServerResponse,
  keyId: string,
  text: string,
): void {
  const bytes = Buffer.byteLength(text);
  if (bytes < SMALL_ANSWER_BYTES || budget.hold(response, keyId)(bytes)) return;
  throw new SwitchboardError(
    'unavailable',
    'Too much of earlier answers has not been read yet, so this one was dropped. Read them, or close their connections.',
    { retryAfterSec: 1, retryable: false },
  );
}

/** Returns what an MCP handler writes its answer to. It is counted as it is written; where it is too much, the connection ends. */
export function countedAnswer(budget: MemoryBudget, response: ServerResponse, keyId: string) {
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
    writeHead: (status: number, headers?: Record<string, string>) =>
      response.writeHead(status, headers && withoutConnection(headers)),
    write(chunk: string | Uint8Array) {
      if (chunk.length >= SMALL_ANSWER_BYTES && !hasRoom(chunk.length)) response.destroy();
      return response.write(chunk);
    },
    end: () => response.end(),
  };
}

/** Drops the Connection header: the handler's event streams would keep alive what its client, its server or Node wants to close. */
const withoutConnection = (headers: Readonly<Record<string, string>>) =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => name.toLowerCase() !== 'connection'));

/** Far more than useful data has: 4 MiB of nothing but brackets take 90 MB once they are parsed. */
const MAX_CONTAINERS = 100_000;
/** Estimates what an object, an array or a member takes in memory besides its text. */
const PART_BYTES = 64;
/** Smaller bodies are not counted: most are, and the rate limits bound them. */
const SMALL_BYTES = 16 * 1024;

interface Room {
  readonly maxBytes: number;
  /** Counts the body while its request is under way. */
  readonly budget: MemoryBudget;
  readonly keyId: string;
}

/**
 * Reads and parses a JSON body: UTF-8 only, and declared as JSON.
 * @throws SwitchboardError 413, 415, 503 or 400 `invalid_json`.
 */
export async function readJsonBody(
  request: IncomingMessage,
  response: ServerResponse,
  room: Room,
): Promise<unknown> {
  requireJson(request.headers['content-type']);
  const bytes = await readBody(request, response, room);
  const partBytes = PART_BYTES * partsOf(bytes);
  if (partBytes >= SMALL_BYTES && !room.budget.hold(response, room.keyId)(partBytes)) throw tooMuchHeld();
  return parse(bytes);
}

/**
 * Reads the body's bytes, without their Content-Encoding.
 * @throws SwitchboardError 413, 415, 503 or 400 `invalid_request`.
 */
export async function readBody(
  request: IncomingMessage,
  response: ServerResponse,
  room: Room,
): Promise<Buffer> {
  try {
    if (Number(request.headers['content-length'] ?? 0) > room.maxBytes) throw tooLarge(room.maxBytes);
    return await collect(request, response, decodedBody(request), room);
  } catch (error) {
    await letGoBy(request);
    addHeaders(response, { Connection: 'close' });
    throw error;
  }
}

/** Limits how much of a refused body is read and dropped, and for how long. */
const LINGER_MS = 2_000;
const LINGER_BYTES = 16 * 1024 * 1024;

/**
 * Reads and drops the rest of a refused body for a moment. A client that is still sending when its connection is closed mostly finds it
 * broken, and never sees the answer.
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

/** Counts objects, arrays and members; 0 for short texts. @throws SwitchboardError 413 or 400 `invalid_json`. */
function partsOf(bytes: Buffer): number {
  if (bytes.length <= MAX_JSON_DEPTH) return 0;
  const { depth, containers, members } = shapeOf(bytes);
  if (depth > MAX_JSON_DEPTH) {
    throw new SwitchboardError(
      'invalid_json',
      `The body nests deeper than ${MAX_JSON_DEPTH} levels. Send flatter JSON.`,
    );
  }
  if (containers > MAX_CONTAINERS) {
    throw new SwitchboardError(
      'payload_too_large',
      `The body has more than ${MAX_CONTAINERS} objects and arrays. Send fewer.`,
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

/** Returns the request itself, or what its Content-Encoding (RFC 9110 §8.4) decodes to. */
export function decodedBody(request: IncomingMessage): Readable {
  const encoding = request.headers['content-encoding']?.trim().toLowerCase() ?? 'identity';
  if (encoding === 'identity' || encoding === '') return request;
  const decoder = DECODERS[encoding]?.();
  if (decoder) return request.pipe(decoder);
  throw new SwitchboardError(
    'unsupported_media_type',
    'Send the body plain or with Content-Encoding gzip, deflate, br or zstd.',
  );
}

/** Collects everything the source gives, as long as there is room; then it is not read on. */
function collect(
  request: IncomingMessage,
  response: ServerResponse,
  source: Readable,
  { maxBytes, budget, keyId }: Room,
): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let length = 0;
    let counted = 0;
    let hold: ReturnType<MemoryBudget['hold']> | undefined;
    const hasRoom = () => {
      if (length - counted < SMALL_BYTES) return true;
      hold ??= budget.hold(response, keyId);
      if (!hold(length - counted)) return false;
      counted = length;
      return true;
    };
    const fail = (error: SwitchboardError) => {
      source.off('data', take).pause();
      if (source !== request) source.destroy();
      reject(error);
    };
    const take = (chunk: Buffer) => {
      length += chunk.length;
      if (length > maxBytes) fail(tooLarge(maxBytes));
      else if (!hasRoom()) fail(tooMuchHeld());
      else chunks.push(chunk);
    };
    source.on('data', take);
    source.once('end', () => {
      const [first] = chunks;
      resolve(first && chunks.length === 1 ? first : Buffer.concat(chunks, length));
    });
    // A request that is cut short ends with an error, never with `end`.
    const onError = (cause: unknown) => fail(unreadable(cause));
    source.once('error', onError);
    if (source !== request) request.once('error', onError);
  });
}

const tooLarge = (maxBytes: number) =>
  new SwitchboardError('payload_too_large', `The body is over ${maxBytes} bytes. Send less.`);

const tooMuchHeld = () =>
  new SwitchboardError(
    'unavailable',
    'Too much data of other requests is being worked on, of this key or in all, so this request was not read. Send it again when some are done.',
    { retryAfterSec: 1 },
  );

const unreadable = (cause: unknown) =>
  new SwitchboardError('invalid_request', 'The body could not be read: it is cut short or wrongly encoded.', {
    cause,
  });
