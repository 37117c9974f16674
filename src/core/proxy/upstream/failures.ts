import { errors } from 'undici';
import type { IncomingHttpHeaders } from 'undici/types/header.js';
import { SwitchboardError, type ErrorCode } from '../../../errors.ts';
import { retryAfterMs } from '../../../platform/outbound/fetch.ts';
import { sanitise } from '../../../platform/sanitize.ts';

/** The text for a time-out is the contract's. */
const timeOutText = (totalMs: number) => `The request to the MCP server timed out after ${totalMs / 1000} s.`;

/** Returns the failure for the end of the time that the caller gave, or could have given. The caller learns how to give more. */
export const outOfTime = (limitMs: number): SwitchboardError =>
  new SwitchboardError('upstream_timeout', timeOutText(limitMs), { timeLimitMs: limitMs });

/** Work that several callers share ran out of its time, which is not the time of the caller who waits for it. */
export class SharedWorkTimedOut extends SwitchboardError {
  constructor(totalMs: number) {
    super('upstream_timeout', timeOutText(totalMs));
  }
}

/** No connection was made, so nothing was sent. */
export class NotConnected extends SwitchboardError {
  /** True when a second try a moment later may well succeed: the server is just starting, or closes an idle connection. */
  readonly passing: boolean;

  constructor(code: ErrorCode, detail: string, cause: unknown, passing = false) {
    super(code, detail, { cause });
    this.passing = passing;
  }
}

/** A server may keep one user waiting for this long (HTTP 429). A longer time that it asks for is cut to this. */
export const MAX_RATE_LIMIT_SEC = 5 * 60;
/** A server may keep a tenant waiting for this long (HTTP 503). A longer time that it asks for is cut to this. */
export const MAX_UNAVAILABLE_SEC = 60;

/** An answer that says nothing but an HTTP status of 400 or more. */
export class HttpFailure extends SwitchboardError {
  readonly httpStatus: number;

  constructor(httpStatus: number, code: ErrorCode, detail: string, retryAfterSec?: number) {
    super(code, detail, retryAfterSec === undefined ? {} : { retryAfterSec });
    this.httpStatus = httpStatus;
  }
}

/** The server refused, by HTTP status, a request that it had begun to work on. This must not be sent again. */
export class RefusedAfterBegun extends SwitchboardError {
  /** The refusal as it counts where the work does not matter. */
  readonly refusal: SwitchboardError;

  constructor(httpStatus: number, refusal: SwitchboardError) {
    const detail = `The MCP server began to work on the request and then refused it (HTTP ${httpStatus}).`;
    super('upstream_protocol', detail, { cause: refusal });
    this.refusal = refusal;
  }
}

export const brokeProtocol = (what: string, cause?: unknown): SwitchboardError =>
  new SwitchboardError('upstream_protocol', `The MCP server ${what}.`, { cause });

/** A result had the wrong shape. The exchange itself was in order, so this says nothing about the server's health. */
export class AnsweredWrongly extends SwitchboardError {
  constructor(what: string) {
    super('upstream_protocol', `The MCP server ${what}.`);
  }
}

export const sentTooMuch = (what: string): SwitchboardError =>
  new SwitchboardError('upstream_too_large', `The MCP server ${what}.`);

/**
 * Returns the failure for an HTTP status without a JSON-RPC answer.
 * @param answer its `excerpt` is upstream text, which is cut and cleaned here
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
  // `withAccessAdvice` adds what can be done about 401 and 403.
  if (status === 401)
    return new HttpFailure(status, 'upstream_unauthorized', 'The MCP server wants a sign-in (HTTP 401).');
  if (status === 403) {
    const detail = `The MCP server refused access (HTTP 403)${quoted}`;
    return new HttpFailure(status, 'upstream_forbidden', detail);
  }
  const maxSec = status === 429 ? MAX_RATE_LIMIT_SEC : MAX_UNAVAILABLE_SEC;
  const waitMs = retryAfterMs(answer.headers['retry-after'], answer.nowMs);
  const retryAfterSec = waitMs === undefined ? undefined : Math.min(Math.ceil(waitMs / 1_000), maxSec);
  const when = retryAfterSec === undefined ? '' : ` Try again in ${retryAfterSec} s.`;
  if (status === 429) {
    const detail = `The MCP server is rate limiting (HTTP 429).${when}`;
    return new HttpFailure(status, 'upstream_rate_limited', detail, retryAfterSec);
  }
  if (status === 503 && retryAfterSec !== undefined) {
    const detail = `The MCP server says that it is unavailable (HTTP 503).${when}`;
    return new HttpFailure(status, 'upstream_unavailable', detail, retryAfterSec);
  }
  const detail = `The MCP server answered with HTTP ${status}${quoted}`;
  return new HttpFailure(status, 'upstream_http_error', detail);
}

const NOT_CONNECTED: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'refused the connection',
  ENOTFOUND: 'has a host name that does not resolve',
  EAI_AGAIN: 'has a host name that does not resolve at the moment',
  EHOSTUNREACH: 'is not reachable over the network',
  ENETUNREACH: 'is not reachable over the network',
};

const isTlsCode = (code: string) =>
  /^(ERR_TLS_|ERR_SSL_|CERT_|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_|HOSTNAME_MISMATCH|EPROTO)/.test(code);

/** The progress of an exchange when its connection failed. */
export type Stage = 'unsent' | 'sent' | 'answering';

/**
 * Returns the failure to tell the caller for a failure of the connection. Host names and addresses stay in the cause, which
 * is logged and never shown.
 */
export function connectionFailure(error: unknown, stage: Stage): SwitchboardError {
  if (error instanceof SwitchboardError) return error;
  const code = codeOf(error);
  if (code === 'UND_ERR_DESTROYED' || code === 'UND_ERR_CLOSED') {
    return stopping(error);
  }
  if (code === 'UND_ERR_HEADERS_OVERFLOW')
    return brokeProtocol('sent response headers over the limit', error);
  // Without its cause, which quotes what was sent: answers do not belong in the log.
  if (error instanceof errors.HTTPParserError) return brokeProtocol('sent what is not HTTP');
  if (code === 'UND_ERR_RES_CONTENT_LENGTH_MISMATCH')
    return brokeProtocol('sent an answer that is not as long as it says', error);
  if (stage === 'answering') return brokeProtocol('broke off its answer', error);
  if (stage === 'unsent') return notConnected(code, error);
  const detail = 'The MCP server closed the connection without an answer.';
  return new SwitchboardError('upstream_unreachable', detail, { cause: error });
}

export const stopping = (cause?: unknown): SwitchboardError =>
  new SwitchboardError('unavailable', 'This service is shutting down.', { cause });

const PASSING: ReadonlySet<string> = new Set(['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'UND_ERR_SOCKET']);

function notConnected(code: string, cause: unknown): SwitchboardError {
  if (code === 'UND_ERR_CONNECT_TIMEOUT' || code === 'ETIMEDOUT') {
    const detail = 'The request to the MCP server timed out: no connection was made.';
    return new NotConnected('upstream_timeout', detail, cause);
  }
  const why = isTlsCode(code) ? 'failed the TLS handshake' : (NOT_CONNECTED[code] ?? 'could not be reached');
  const detail = `The MCP server ${why}. Nothing was sent: try again later. If it stays so, its catalogued URL may be out of date.`;
  return new NotConnected('upstream_unreachable', detail, cause, PASSING.has(code));
}

/** Returns the failure with another text. */
export const restated = (
  error: SwitchboardError,
  detail: string,
  retryable = error.retryable,
): SwitchboardError => {
  const { code, retryAfterSec, timeLimitMs, upstreamError, members, cause } = error;
  // Its class is evidence of the server's health.
  if (error instanceof HttpFailure) return new HttpFailure(error.httpStatus, code, detail, retryAfterSec);
  const waiting = retryAfterSec === undefined ? {} : { retryAfterSec };
  const kept = { ...waiting, timeLimitMs, upstreamError, members, cause, retryable };
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
 * Returns the failure of a call that was written and not answered. It says that the call may have run, unless the call is a
 * mere read: nobody should send it again unseen.
 */
export function markMayHaveRun(error: unknown, method: string): unknown {
  if (!(error instanceof SwitchboardError)) return error;
  if (isRead(method)) return error instanceof RefusedAfterBegun ? error.refusal : error;
  // The server, or a gateway that knows no more than we do, failed at some point. A server that asks to be called again
  // (503 with `Retry-After`) has not run the call.
  const isFault =
    error instanceof HttpFailure && error.httpStatus >= 500 && error.code === 'upstream_http_error';
  if (!isFault && !MAY_HAVE_RUN.has(error.code)) return error;
  return restated(error, `${error.detail.replace(/\.$/, '')}; the call may have run.`, false);
}

const codeOf = (error: unknown): string =>
  typeof error === 'object' && error !== null && 'code' in error && typeof error.code === 'string'
    ? error.code
    : '';
