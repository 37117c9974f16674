import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Principal } from '../../core/access/caller.ts';
import type { QuotaState } from '../../core/access/quota.ts';
import type { RateLimitState } from '../../core/access/rate-limits.ts';
import type { Caller } from '../../core/access/caller.ts';
import { SwitchboardError, type ErrorCode } from '../../errors.ts';
import type { Span } from '../../platform/telemetry/tracing.ts';

/** What is known of a request while it is served. It stands where Express has its `response.locals`. */
export interface RequestLocals {
  requestId: string;
  /** By the clock that also stamps the use of refresh tokens. */
  arrivedMs: number;
  /** The client's address. */
  ip: string | undefined;
  /** Names and values in turn: what goes out with the answer, whichever it will be (`addHeaders`). */
  headers: string[];
  principal?: Principal;
  /** The path of its endpoint as the code has it, with names for what differs; absent: none was found or looked for. */
  route?: string;
  /** Of the error that it is answered with. */
  code?: ErrorCode;
  /** Absent: the request is not traced. */
  span?: Span;
}

export const localsOf = (response: ServerResponse): RequestLocals =>
  (response as ServerResponse & { locals: RequestLocals }).locals;

/** Aborts when the client has gone before the answer was written whole. */
export function clientSignal(response: ServerResponse): AbortSignal {
  const controller = new AbortController();
  response.once('close', () => {
    if (!response.writableFinished) controller.abort();
  });
  return controller.signal;
}

export const toCaller = (
  principal: Principal,
  request: {
    requestId: string;
    ip?: string | undefined;
    signal: AbortSignal;
    timeoutMs?: number | undefined;
  },
): Caller => ({
  ...principal,
  requestId: request.requestId,
  ...(request.ip === undefined ? {} : { ip: request.ip }),
  ...(request.timeoutMs === undefined ? {} : { timeoutMs: request.timeoutMs }),
  signal: request.signal,
});

/** Headers of the answer to come. They are kept until it is written: `setHeader` costs each about as much as writing it. */
export function addHeaders(response: ServerResponse, headers: Readonly<Record<string, string>>): void {
  const { headers: kept } = localsOf(response);
  for (const [name, value] of Object.entries(headers)) kept.push(name, value);
}

/** The head of an answer, with the headers added before. */
export function writeHead(
  response: ServerResponse,
  status: number,
  headers: Readonly<Record<string, string>>,
): void {
  addHeaders(response, headers);
  response.writeHead(status, localsOf(response).headers);
}

/** Ends a response with a whole body. Headers added before go with it. */
export function sendText(response: ServerResponse, status: number, type: string, text: string): void {
  writeHead(response, status, {
    'Content-Type': `${type}; charset=utf-8`,
    'Content-Length': String(Buffer.byteLength(text)),
  });
  response.end(text);
}

export const sendJson = (response: ServerResponse, status: number, value: unknown): void =>
  sendText(response, status, 'application/json', JSON.stringify(value));

/** How long a caller waits for a proxied call at most: the header and its bounds in milliseconds. */
export const TIMEOUT_HEADER = { name: 'Switchboard-Timeout-Ms', minMs: 1_000, maxMs: 300_000 } as const;

/** @throws SwitchboardError 400 `invalid_request` for a header that is out of bounds or no whole number. */
export function requestedTimeoutMs(request: IncomingMessage): number | undefined {
  const { name, minMs, maxMs } = TIMEOUT_HEADER;
  const value = request.headers[name.toLowerCase()];
  if (value === undefined) return undefined;
  const timeoutMs = typeof value === 'string' && /^\d{1,6}$/.test(value) ? Number(value) : 0;
  if (timeoutMs >= minMs && timeoutMs <= maxMs) return timeoutMs;
  throw new SwitchboardError(
    'invalid_request',
    `${name}: must be a whole number of milliseconds from ${minMs} to ${maxMs}`,
  );
}

/** A header that came once; two of them are joined by Node and never equal a key. */
export function singleHeader(request: IncomingMessage, name: string): string | undefined {
  const value = request.headers[name];
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** `RateLimit` and `RateLimit-Policy` in the list form of draft-ietf-httpapi-ratelimit-headers (since -08). */
export function rateLimitHeaders(state: RateLimitState): Record<string, string> {
  return {
    'RateLimit-Policy': `"${state.class}";q=${state.calls};w=${state.windowSec}`,
    RateLimit: `"${state.class}";r=${state.remaining};t=${state.resetSec}`,
  };
}

/** The same of a monthly quota: a field line of its own beside the rate limit's, which make one list (RFC 9110 §5.3). */
export function quotaHeaders({
  use,
  limit,
  remaining,
  monthSec,
  resetSec,
}: QuotaState): Record<string, string> {
  return {
    'RateLimit-Policy': `"${use}-per-month";q=${limit};w=${monthSec}`,
    RateLimit: `"${use}-per-month";r=${remaining};t=${resetSec}`,
  };
}
