import type { IncomingHttpHeaders } from 'node:http';
import type { IncomingHttpHeaders as AnswerHeaders } from 'undici/types/header.js';
import { SwitchboardError } from '../../errors.ts';
import type { TraceContext } from '../../platform/telemetry/tracing.ts';

/** What of a client's headers a server gets, besides `mcp-*`. No key, token, cookie, host or origin. */
const REQUEST_HEADERS = ['accept', 'content-type', 'last-event-id', 'traceparent', 'tracestate'] as const;
/** What of a server's headers the client gets: no cookie, no challenge to sign in, nothing about the connection. */
const ANSWER_HEADERS = [
  'content-type',
  'mcp-protocol-version',
  'cache-control',
  'allow',
  'retry-after',
  'x-accel-buffering',
  // The framing: undici has checked that the body has that length, or breaks it off.
  'content-length',
] as const;

export const SESSION_ID = 'mcp-session-id';
/** Below the 16 KiB that common servers take in all. */
const MAX_REQUEST_HEADER_CHARS = 12 * 1024;

/**
 * The headers a server gets, but for the session id, whose value is the caller's sealed one. Node's parser has refused line
 * breaks and the like in values.
 * @param trace in place of the client's own trace context.
 * @throws SwitchboardError `invalid_request` when there are more than servers commonly take.
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
      `The headers that are passed on have over ${MAX_REQUEST_HEADER_CHARS} characters. Send fewer Mcp-Param-* headers.`,
    );
  }
  return headers;
}

/** The headers a client gets, but for the session id. A value that is not plain text is left out. */
export function answerHeaders(from: AnswerHeaders): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const name of ANSWER_HEADERS) {
    const value = from[name];
    if (typeof value === 'string' && isPlain(value)) headers[name] = value;
  }
  // Buffering proxies in front of us would hold back what is meant to be seen at once.
  if (headers['content-type']?.toLowerCase().startsWith('text/event-stream'))
    headers['x-accel-buffering'] = 'no';
  return headers;
}

const isPlain = (value: string) => /^[\x20-\x7e]*$/.test(value);
