import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Readable } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate, createZstdDecompress } from 'node:zlib';
import { depthOf } from '../core/json-depth.ts';
import { SwitchboardError } from '../errors.ts';
import { addHeaders } from './http.ts';

/** Deeper JSON has no honest use here, and walking it could exhaust the stack. */
const MAX_DEPTH = 200;

/**
 * Reads and parses a JSON body: UTF-8 only, and declared as JSON.
 * @throws SwitchboardError 413, 415 or 400 `invalid_json`.
 */
export async function readJsonBody(
  request: IncomingMessage,
  response: ServerResponse,
  maxBytes: number,
): Promise<unknown> {
  requireJson(request.headers['content-type']);
  return parseJsonBody(await readBody(request, response, maxBytes));
}

/**
 * The body's bytes, without their Content-Encoding.
 * @throws SwitchboardError 413, 415 or 400 `invalid_request`.
 */
export async function readBody(
  request: IncomingMessage,
  response: ServerResponse,
  maxBytes: number,
): Promise<Buffer> {
  try {
    if (Number(request.headers['content-length'] ?? 0) > maxBytes) throw tooLarge(maxBytes);
    return await collect(request, decoded(request), maxBytes);
  } catch (error) {
    // What is still to come of such a body is not read.
    addHeaders(response, { Connection: 'close' });
    throw error;
  }
}

/** @throws SwitchboardError 400 `invalid_json`. */
export function parseJsonBody(bytes: Buffer): unknown {
  if (bytes.length === 0)
    throw new SwitchboardError('invalid_json', 'The body is empty. Send a JSON object.');
  if (bytes.length > MAX_DEPTH && depthOf(bytes) > MAX_DEPTH) {
    throw new SwitchboardError(
      'invalid_json',
      `The body nests deeper than ${MAX_DEPTH} levels. Send flatter JSON.`,
    );
  }
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

/** The request itself, or what its Content-Encoding (RFC 9110 §8.4) decodes to. */
function decoded(request: IncomingMessage): Readable {
  const encoding = request.headers['content-encoding']?.trim().toLowerCase() ?? 'identity';
  if (encoding === 'identity' || encoding === '') return request;
  const decoder = DECODERS[encoding]?.();
  if (decoder) return request.pipe(decoder);
  throw new SwitchboardError(
    'unsupported_media_type',
    'Send the body plain or with Content-Encoding gzip, deflate, br or zstd.',
  );
}

/** Everything the source gives, up to the limit; then it is not read on. */
function collect(request: IncomingMessage, source: Readable, maxBytes: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let length = 0;
    const fail = (error: SwitchboardError) => {
      source.off('data', take).pause();
      if (source !== request) source.destroy();
      reject(error);
    };
    const take = (chunk: Buffer) => {
      length += chunk.length;
      if (length > maxBytes) fail(tooLarge(maxBytes));
      else chunks.push(chunk);
    };
    source.on('data', take);
    source.once('end', () => {
      const [first] = chunks;
      resolve(first && chunks.length === 1 ? first : Buffer.concat(chunks, length));
    });
    // A request that is cut short ends with an error, never with `end`.
    for (const stream of new Set([request, source])) stream.once('error', cause => fail(unreadable(cause)));
  });
}

const tooLarge = (maxBytes: number) =>
  new SwitchboardError('payload_too_large', `The body is over ${maxBytes} bytes. Send less.`);

const unreadable = (cause: unknown) =>
  new SwitchboardError('invalid_request', 'The body could not be read: it is cut short or wrongly encoded.', {
    cause,
  });
