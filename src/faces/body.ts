import express, { type Request, type RequestHandler, type Response } from 'express';
import { SwitchboardError } from '../errors.ts';

/** Deeper JSON has no honest use here, and walking it could exhaust the stack. */
const MAX_DEPTH = 200;

/**
 * Reads and parses a JSON body. Stricter than Express's own parser, which turns invalid UTF-8 into U+FFFD, takes UTF-16,
 * and lets a body without a content type through as undefined.
 * @throws SwitchboardError 413, 415 or 400 `invalid_json`.
 */
export async function readJsonBody(request: Request, response: Response, maxBytes: number): Promise<unknown> {
  requireJson(request.headers['content-type']);
  if (Number(request.headers['content-length'] ?? 0) > maxBytes) {
    // Without reading it: the rest of such a body has no use.
    response.set('Connection', 'close');
    throw tooLarge(maxBytes);
  }
  const bytes = await readBytes(request, response, maxBytes);
  if (bytes.length === 0)
    throw new SwitchboardError('invalid_json', 'The body is empty. Send a JSON object.');
  if (depthOf(bytes) > MAX_DEPTH) {
    throw new SwitchboardError(
      'invalid_json',
      `The body nests deeper than ${MAX_DEPTH} levels. Send flatter JSON.`,
    );
  }
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch (cause) {
    const reason = cause instanceof SyntaxError ? 'is not valid JSON' : 'is not valid UTF-8';
    throw new SwitchboardError('invalid_json', `The body ${reason}.`, { cause });
  }
}

function requireJson(contentType: string | undefined): void {
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

const readers = new Map<number, RequestHandler>();

async function readBytes(request: Request, response: Response, maxBytes: number): Promise<Buffer> {
  const reader = readers.get(maxBytes) ?? express.raw({ type: () => true, limit: maxBytes });
  readers.set(maxBytes, reader);
  const failure = await new Promise<unknown>(resolve => void reader(request, response, resolve));
  if (failure !== undefined) throw bodyError(failure, maxBytes);
  return Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
}

const tooLarge = (maxBytes: number) =>
  new SwitchboardError('payload_too_large', `The body is over ${maxBytes} bytes. Send less.`);

function bodyError(failure: unknown, maxBytes: number): SwitchboardError {
  const type = failure instanceof Error && 'type' in failure ? failure.type : undefined;
  switch (type) {
    case 'entity.too.large':
      return tooLarge(maxBytes);
    case 'encoding.unsupported':
      return new SwitchboardError(
        'unsupported_media_type',
        'Send the body plain or with Content-Encoding gzip, deflate or br.',
      );
  }
  return new SwitchboardError(
    'invalid_request',
    'The body could not be read: it is cut short or wrongly encoded.',
    {
      cause: failure,
    },
  );
}

/** The deepest nesting of brackets outside strings. */
function depthOf(json: Uint8Array): number {
  let depth = 0;
  let deepest = 0;
  let inString = false;
  for (let at = 0; at < json.length; at++) {
    const byte = json[at];
    if (inString) {
      if (byte === 0x5c) at++;
      else if (byte === 0x22) inString = false;
    } else if (byte === 0x22) inString = true;
    else if (byte === 0x7b || byte === 0x5b) deepest = Math.max(deepest, ++depth);
    else if (byte === 0x7d || byte === 0x5d) depth--;
  }
  return deepest;
}
