import { errors } from 'undici';
import type { IncomingHttpHeaders } from 'undici/types/header.js';
import { SwitchboardError, type ErrorCode, type ErrorExtras } from '../../../errors.ts';
import { isOutOfFiles } from '../../../platform/open-files.ts';
import { retryAfterMs } from '../../../platform/outbound/fetch.ts';
import { sanitise } from '../../../platform/sanitize.ts';
import type { Refusal } from '../../identity/connections/server-credentials.ts';
import { readChallenge } from '../../identity/oauth/challenge.ts';

/** The text of a timeout is part of the contract. */
const timeOutText = (totalMs: number) => `The request to the MCP server timed out after ${totalMs / 1000} s.`;

/** Returns the failure for a timeout that the caller has set or could have raised. The caller learns how to get more time. */
export const outOfTime = (limitMs: number): SwitchboardError =>
  new SwitchboardError('upstream_timeout', timeOutText(limitMs), { timeLimitMs: limitMs });

/** Shared work timed out, which is not the timeout of the waiting caller. */
export class SharedWorkTimedOut extends SwitchboardError {
  constructor(totalMs: number) {
    super('upstream_timeout', timeOutText(totalMs));
  }
}

/** No connection was established, so nothing was sent. */
export class NotConnected extends SwitchboardError {
  /** True if an immediate retry is likely to succeed: the server is starting, or closing an idle connection. */
  readonly passing: boolean;

  constructor(code: ErrorCode, detail: string, cause: unknown, passing = false) {
    super(code, detail, { cause });
    this.passing = passing;
  }
}

/** The maximum wait per user after HTTP 429. Longer times are capped. */
export const MAX_RATE_LIMIT_SEC = 5 * 60;
/** The maximum wait per tenant after HTTP 503. Longer times are capped. */
export const MAX_UNAVAILABLE_SEC = 60;

/** A response that has only an HTTP status of 400 or more. */
export class HttpFailure extends SwitchboardError {
  readonly httpStatus: number;
  /** `WWW-Authenticate`, for 401 and 403. */
  readonly challenge: string | readonly string[] | undefined;

  constructor(
    httpStatus: number,
    code: ErrorCode,
    detail: string,
    {
      challenge,
      ...extras
    }: Pick<ErrorExtras, 'retryAfterSec' | 'advice'> & { challenge?: HttpFailure['challenge'] } = {},
  ) {
    super(code, detail, extras);
    this.httpStatus = httpStatus;
    this.challenge = challenge;
  }
}

/**
 * Returns the refusal of a failure that another credential could avoid: 401, or 403 for a lack of scopes (RFC 6750 §3.1). Returns
 * undefined for any other failure.
 */
export function refusalOf(error: unknown): Refusal | undefined {
  return error instanceof HttpFailure ? refusalBy(error.httpStatus, error.challenge) : undefined;
}

/** Returns the refusal in a status and its `WWW-Authenticate` header; undefined if another credential would not help. */
export function refusalBy(status: number, header: HttpFailure['challenge']): Refusal | undefined {
  if (status !== 401 && status !== 403) return undefined;
  const challenge = readChallenge(header);
  return status === 401 || challenge.error === 'insufficient_scope' ? { status, challenge } : undefined;
}

/** The server refused, by HTTP status, a request that it had started to process. It must not be repeated. */
export class RefusedAfterBegun extends SwitchboardError {
  /** The underlying refusal, for cases where the work does not matter. */
  readonly refusal: SwitchboardError;

  constructor(httpStatus: number, refusal: SwitchboardError) {
    const detail = `The MCP server started to process the request and then rejected it (HTTP ${httpStatus}).`;
    super('upstream_protocol', detail, { cause: refusal });
    this.refusal = refusal;
  }
}

export const brokeProtocol = (what: string, cause?: unknown): SwitchboardError =>
  new SwitchboardError('upstream_protocol', `The MCP server ${what}.`, { cause });

/** A result had an invalid shape. The exchange itself was in order, so this says nothing about the server's health. */
export class AnsweredWrongly extends SwitchboardError {
  constructor(what: string) {
    super('upstream_protocol', `The MCP server ${what}.`);
  }
}

export const sentTooMuch = (what: string): SwitchboardError =>
  new SwitchboardError('upstream_too_large', `The MCP server ${what}.`);

/**
 * Returns the failure for an HTTP status without a JSON-RPC response.
 * @param answer its `excerpt` is upstream text, which is shortened and cleaned here
 */
export function httpFailure(answer: {
  status: number;
  headers: IncomingHttpHeaders;
  nowMs: number;
  excerpt: string;
}): SwitchboardError {
  const { status } = answer;
  const text = sanitise(answer.excerpt);
  const quoted = text === '' ? '.' : `: ${text}`;
  // `withAccessAdvice` adds advice for 401 and 403.
  const challenge = answer.headers['www-authenticate'];
  const asked = challenge === undefined ? {} : { challenge };
  if (status === 401) {
    const detail = 'The MCP server requires a sign-in (HTTP 401).';
    return new HttpFailure(status, 'upstream_unauthorized', detail, asked);
  }
  if (status === 403) {
    const detail = `The MCP server refused access (HTTP 403)${quoted}`;
    return new HttpFailure(status, 'upstream_forbidden', detail, asked);
  }
  const maxSec = status === 429 ? MAX_RATE_LIMIT_SEC : MAX_UNAVAILABLE_SEC;
  const waitMs = retryAfterMs(answer.headers['retry-after'], answer.nowMs);
  const retryAfterSec = waitMs === undefined ? undefined : Math.min(Math.ceil(waitMs / 1_000), maxSec);
  const wait = retryAfterSec === undefined ? {} : { retryAfterSec };
  const when = retryAfterSec === undefined ? '' : ` Try again in ${retryAfterSec} s.`;
  if (status === 429) {
    const detail = `The MCP server's rate limit was exceeded (HTTP 429).${when}`;
    return new HttpFailure(status, 'upstream_rate_limited', detail, wait);
  }
  if (status === 503 && retryAfterSec !== undefined) {
    const detail = `The MCP server is unavailable (HTTP 503).${when}`;
    return new HttpFailure(status, 'upstream_unavailable', detail, wait);
  }
  const detail = `The MCP server returned HTTP ${status}${quoted}`;
  return new HttpFailure(status, 'upstream_http_error', detail);
}

const NOT_CONNECTED: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'refused the connection',
  ENOTFOUND: 'has a host name that does not resolve',
  EAI_AGAIN: 'has a host name that currently does not resolve',
  EHOSTUNREACH: 'cannot be reached over the network',
  ENETUNREACH: 'cannot be reached over the network',
};

const isTlsCode = (code: string) =>
  /^(ERR_TLS_|ERR_SSL_|CERT_|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_|HOSTNAME_MISMATCH|EPROTO)/.test(code);

/** The progress of an exchange when its connection failed. */
export type Stage = 'unsent' | 'sent' | 'answering';

/**
 * Returns the caller's error for a connection failure. Host names and addresses stay in the cause, which is logged and never shown.
 */
export function connectionFailure(error: unknown, stage: Stage): SwitchboardError {
  if (error instanceof SwitchboardError) return error;
  const code = codeOf(error);
  if (code === 'UND_ERR_DESTROYED' || code === 'UND_ERR_CLOSED') {
    return new Stopping(error);
  }
  if (code === 'UND_ERR_HEADERS_OVERFLOW')
    return brokeProtocol('sent response headers that are too large', error);
  // The cause is dropped, because it quotes the response, which must not be logged.
  if (error instanceof errors.HTTPParserError) return brokeProtocol('sent an invalid HTTP response');
  if (code === 'UND_ERR_RES_CONTENT_LENGTH_MISMATCH')
    return brokeProtocol('sent a response whose length does not match its Content-Length', error);
  if (stage === 'answering')
    return brokeProtocol('closed the connection in the middle of the response', error);
  if (stage === 'unsent') return isOutOfFiles(error) ? outOfFiles(error) : notConnected(code, error);
  const detail = 'The MCP server closed the connection without a response.';
  return new SwitchboardError('upstream_unreachable', detail, { cause: error });
}

/** The call was cut off because Switchboard stops. */
export class Stopping extends SwitchboardError {
  constructor(cause?: unknown) {
    super('unavailable', 'This service is shutting down.', { cause });
  }
}

/** No evidence about the server: nothing was sent. */
const outOfFiles = (cause: unknown): SwitchboardError =>
  new SwitchboardError(
    'unavailable',
    'Switchboard has run out of file descriptors, so it could not connect to the MCP server. Nothing was sent. Try again later. If this persists, the operator has to raise the limit of open files (ulimit -n).',
    { cause },
  );

const PASSING: ReadonlySet<string> = new Set(['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'UND_ERR_SOCKET']);

function notConnected(code: string, cause: unknown): SwitchboardError {
  if (code === 'UND_ERR_CONNECT_TIMEOUT' || code === 'ETIMEDOUT') {
    const detail = 'The request to the MCP server timed out: no connection could be established.';
    return new NotConnected('upstream_timeout', detail, cause);
  }
  const why = isTlsCode(code) ? 'failed the TLS handshake' : (NOT_CONNECTED[code] ?? 'could not be reached');
  const detail = `The MCP server ${why}. Nothing was sent. Try again later. If this persists, its catalogued URL may be out of date.`;
  return new NotConnected('upstream_unreachable', detail, cause, PASSING.has(code));
}

/** Returns the failure with another text. */
export const restated = (
  error: SwitchboardError,
  detail: string,
  { retryable = error.retryable, advice }: Pick<ErrorExtras, 'retryable' | 'advice'> = {},
): SwitchboardError => {
  const { code, retryAfterSec, timeLimitMs, upstreamError, members, cause } = error;
  const waiting = retryAfterSec === undefined ? {} : { retryAfterSec };
  // The class is evidence of the server's health.
  if (error instanceof HttpFailure) {
    const { httpStatus, challenge } = error;
    return new HttpFailure(httpStatus, code, detail, { ...waiting, challenge, advice });
  }
  const kept = { ...waiting, timeLimitMs, upstreamError, members, cause, retryable, advice };
  return new SwitchboardError(code, detail, kept);
};

const MAY_HAVE_RUN: ReadonlySet<string> = new Set([
  'upstream_timeout',
  'upstream_unreachable',
  'upstream_protocol',
  'upstream_too_large',
  'unavailable',
]);

/** Returns whether the method changes nothing on the server: `tools/list`, `prompts/get`, `resources/read`, … */
export const isRead = (method: string) => method === 'ping' || /\/(list|get|read|complete)$/.test(method);

/**
 * Returns the failure of a call that was sent without getting a response. Unless the call is a read, it says that the call
 * may have run, so that it is not repeated blindly.
 */
export function markMayHaveRun(error: unknown, method: string): unknown {
  if (!(error instanceof SwitchboardError)) return error;
  if (isRead(method)) return error instanceof RefusedAfterBegun ? error.refusal : error;
  // The server, or a gateway that knows no more than we do, failed at some point. A server that asks for a retry (503 with
  // `Retry-After`) has not run the call.
  const isFault =
    error instanceof HttpFailure && error.httpStatus >= 500 && error.code === 'upstream_http_error';
  if (!isFault && !MAY_HAVE_RUN.has(error.code)) return error;
  return restated(error, `${error.detail.replace(/\.$/, '')}; the call may have run.`, {
    retryable: false,
  });
}

const codeOf = (error: unknown): string =>
  typeof error === 'object' && error !== null && 'code' in error && typeof error.code === 'string'
    ? error.code
    : '';
