import type { IncomingHttpHeaders } from 'node:http';
import type { IncomingHttpHeaders as AnswerHeaders } from 'undici/types/header.js';
import { SwitchboardError } from '../../errors.ts';
import { scanJson, type FoundJson } from '../../platform/json/scan.ts';
import type { TraceContext } from '../../platform/telemetry/tracing.ts';
import { NotAdmitted } from './admission.ts';
import type { ProxyLimits } from './limits.ts';
import { brokeProtocol, HttpFailure, httpFailure } from './upstream/failures.ts';
import type { Streamed } from './upstream/http-stream.ts';

/** Client headers that are forwarded to the server, in addition to `mcp-*`: no key, token, cookie, host or origin. */
const REQUEST_HEADERS = ['accept', 'content-type', 'last-event-id', 'traceparent', 'tracestate'] as const;
/** Server headers that are forwarded to the client: no cookies, sign-in challenges or connection headers. */
const ANSWER_HEADERS = [
  'content-type',
  'mcp-protocol-version',
  'cache-control',
  'allow',
  'retry-after',
  'x-accel-buffering',
  // The length is forwarded because undici verifies it.
  'content-length',
] as const;

export const SESSION_ID = 'mcp-session-id';
/** Below the usual server limit of 16 KiB in total. */
const MAX_REQUEST_HEADER_CHARS = 12 * 1024;

/**
 * Selects the headers for the server, except the session id, whose value is sealed for the caller. Node's parser has already
 * rejected line breaks and the like.
 * @param trace replaces the client's own trace context
 * @throws SwitchboardError `invalid_request` if there are more than servers usually accept
 */
export function requestHeaders(client: IncomingHttpHeaders, trace?: TraceContext): Record<string, string> {
  const from = trace ? { ...client, tracestate: undefined, ...trace } : client;
  const headers: Record<string, string> = { 'accept-encoding': 'identity', 'user-agent': 'switchboard' };
  let chars = 0;
  const take = (name: string, value: unknown) => {
    if (typeof value !== 'string') return;
    headers[name] = value;
    chars += name.length + value.length;
  };
  for (const name of REQUEST_HEADERS) take(name, from[name]);
  for (const name in from) if (name.startsWith('mcp-') && name !== SESSION_ID) take(name, from[name]);
  if (chars > MAX_REQUEST_HEADER_CHARS) {
    throw new SwitchboardError(
      'invalid_request',
      `The forwarded headers have more than ${MAX_REQUEST_HEADER_CHARS} characters. Send fewer Mcp-Param-* headers.`,
    );
  }
  return headers;
}

/** Selects the headers for the client, except the session id. Values that are not plain text are dropped. */
export function answerHeaders(from: AnswerHeaders): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const name of ANSWER_HEADERS) {
    const value = from[name];
    if (typeof value === 'string' && isPlainText(value)) headers[name] = value;
  }
  // Buffering proxies in front of us would delay stream events.
  if (headers['content-type']?.toLowerCase().startsWith('text/event-stream'))
    headers['x-accel-buffering'] = 'no';
  return headers;
}

const isPlainText = (value: string) => /^[\x20-\x7e]*$/.test(value);

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COLON = 0x3a;
const BYTE_ORDER_MARK = Buffer.from('\uFEFF');
const [OPEN_OBJECT, CLOSE_OBJECT, OPEN_LIST, CLOSE_LIST] = [0x7b, 0x7d, 0x5b, 0x5d];

/**
 * Finds the top-level member `method` of a JSON-RPC message without parsing the rest, because clients write it early. Returns
 * undefined for a response, a batch, and invalid JSON. Of several methods the first counts, which only a sender can cause
 * deliberately.
 */
export function methodOf(body: Buffer): string | undefined {
  let depth = 0;
  for (let at = 0; at < body.length; at++) {
    const byte = body[at];
    if (byte === OPEN_OBJECT || byte === OPEN_LIST) depth++;
    else if (byte === CLOSE_OBJECT || byte === CLOSE_LIST) depth--;
    if (byte !== QUOTE) continue;
    const end = endOfString(body, at);
    if (end === -1) return undefined;
    const isKey = depth === 1 && body.toString('latin1', at, end + 1) === '"method"';
    at = end;
    if (!isKey) continue;
    const colon = skipSpace(body, end + 1);
    if (body[colon] === COLON) return stringAt(body, skipSpace(body, colon + 1));
  }
  return undefined;
}

/** The method of a message, and the tool that it calls. */
export interface PassedCall {
  readonly method: string | undefined;
  readonly tool?: string | undefined;
}

/**
 * Reads the method of a message, and the tool that a `tools/call` names, as `JSON.parse` would: of several the last counts. Users are
 * told what was called, so this reads the whole body. For one that is not JSON, it returns what `methodOf` finds.
 */
export function callOf(body: Buffer): PassedCall {
  try {
    const { members } = scanJson(body, { find: { method: {}, params: { name: {} } }, allowBom: true });
    const text = (found: FoundJson | undefined) => {
      const value: unknown = found && JSON.parse(body.toString('utf8', found.start, found.end));
      return typeof value === 'string' ? value : undefined;
    };
    const method = text(members.get('method'));
    return {
      method,
      tool: method === 'tools/call' ? text(members.get('params')?.members.get('name')) : undefined,
    };
  } catch {
    return { method: methodOf(body) };
  }
}

/** Returns whether a body is a batch (revision 2025-03-26), which may have several messages. */
export function isBatch(body: Buffer): boolean {
  // A byte order mark is not JSON, but many parsers skip it.
  const start = body.subarray(0, 3).equals(BYTE_ORDER_MARK) ? 3 : 0;
  return body[skipSpace(body, start)] === OPEN_LIST;
}

/** Counts the messages in a body. Returns at least 1. */
export function messagesIn(body: Buffer): number {
  if (!isBatch(body)) return 1;
  let depth = 0;
  let messages = 0;
  for (let at = 0; at < body.length; at++) {
    const byte = body[at];
    if (byte === QUOTE) {
      const end = endOfString(body, at);
      if (end === -1) break;
      at = end;
    } else if (byte === OPEN_OBJECT || byte === OPEN_LIST) {
      if (++depth === 2) messages++;
    } else if (byte === CLOSE_OBJECT || byte === CLOSE_LIST) depth--;
  }
  return Math.max(1, messages);
}

/** Returns the index of the closing quote of the string that starts here; -1 if there is none. */
function endOfString(body: Buffer, start: number): number {
  let end = body.indexOf(QUOTE, start + 1);
  while (end !== -1 && isEscaped(body, end)) end = body.indexOf(QUOTE, end + 1);
  return end;
}

function isEscaped(body: Buffer, quote: number): boolean {
  let first = quote;
  while (body[first - 1] === BACKSLASH) first--;
  return (quote - first) % 2 === 1;
}

function skipSpace(body: Buffer, from: number): number {
  let at = from;
  while (body[at] === 0x20 || body[at] === 0x0a || body[at] === 0x0d || body[at] === 0x09) at++;
  return at;
}

function stringAt(body: Buffer, start: number): string | undefined {
  const end = body[start] === QUOTE ? endOfString(body, start) : -1;
  return end === -1 ? undefined : body.toString('utf8', start + 1, end);
}

/** One text for every reason, so that it reveals nothing about others' sessions. */
export const sessionNotFound = (): SwitchboardError =>
  new SwitchboardError('mcp_session_not_found', 'The session does not exist. Initialize again.');

export function tooManyStreams(bound: 'key' | 'all', limits: ProxyLimits): SwitchboardError {
  if (bound === 'all')
    return new SwitchboardError('unavailable', 'Too many streams are open. Try again later.', {
      retryAfterSec: 30,
    });
  return new SwitchboardError(
    'rate_limited',
    `This key already has ${limits.maxStreamsPerKey} open streams. Close one first.`,
    { retryAfterSec: 30 },
  );
}

const OTHER_WAYS = 'POST /v1/mcp/call, or with call_remote_tool at /mcp';

export const oldTransport = (serverId: string): SwitchboardError =>
  new NotAdmitted(
    'upstream_protocol',
    `The MCP server ${serverId} uses the old HTTP+SSE transport (2024-11-05), which has no pass-through. Call it with ${OTHER_WAYS}.`,
  );

export const perhapsOldTransport = (status: number): SwitchboardError =>
  new HttpFailure(
    status,
    'upstream_http_error',
    `The MCP server returned HTTP ${status} without an MCP message. If it supports only the old HTTP+SSE transport (2024-11-05), which has no pass-through, call it with ${OTHER_WAYS}. Otherwise its catalogued URL may be out of date.`,
  );

/** Returns the failure for a response that is not passed on. HTML is never quoted. */
export function refusedAnswer(answer: Streamed, nowMs: number): SwitchboardError {
  if (answer.status >= 400) return httpFailure({ ...answer, nowMs });
  return brokeProtocol(`returned HTTP ${answer.status} with a body that is neither JSON nor an event stream`);
}

/**
 * Returns a status that a client of the server understands: the server's own, if there is one. The result is 502 for statuses
 * that the client would attribute to Switchboard (401, 403, 407).
 */
export function passThroughStatus(error: SwitchboardError): number {
  if (error.code === 'upstream_rate_limited') return 429;
  if (error.code === 'upstream_unavailable') return 503;
  const isServers = error instanceof HttpFailure && error.code === 'upstream_http_error';
  return isServers && error.httpStatus !== 407 ? error.httpStatus : error.status;
}
