import type { ServerResponse } from 'node:http';
import { QuotaExceeded } from '../../core/access/quota.ts';
import { RateLimited } from '../../core/access/rate-limits.ts';
import { toFailure } from '../../core/failure.ts';
import { errorKind, SwitchboardError } from '../../errors.ts';
import {
  addHeaders,
  localsOf,
  quotaHeaders,
  rateLimitHeaders,
  sendJson,
  sendText,
  TIMEOUT_HEADER,
} from './http.ts';

export type RpcId = string | number | null;

/** Problem details (RFC 9457), plus `code` from the closed list and the request's id. */
export function problemOf(error: SwitchboardError, requestId: string): Record<string, unknown> {
  return {
    type: `urn:switchboard:error:${error.code}`,
    title: errorKind(error.code).title,
    status: error.status,
    detail: error.detail,
    code: error.code,
    request_id: requestId,
    ...oauthErrorOf(error),
    ...(error.status < 500 ? {} : { retryable: error.retryable }),
    ...(error.retryAfterSec === undefined ? {} : { retry_after: error.retryAfterSec }),
    ...(error.upstreamError === undefined ? {} : { upstream_error: error.upstreamError }),
    ...error.members,
  };
}

const oauthErrorOf = ({ code }: SwitchboardError) => {
  const { oauth } = errorKind(code);
  return oauth === undefined ? {} : { error: oauth };
};

/** @param members what clients of one API look for besides */
export function sendProblem(
  response: ServerResponse,
  error: SwitchboardError,
  requestId: string,
  members: Readonly<Record<string, unknown>> = {},
): void {
  send(response, error, { ...problemOf(error, requestId), detail: detailOf(error), ...members });
}

/** Over HTTP itself, a call that took too long can be given more time. */
const detailOf = ({ detail, timeLimitMs = Infinity }: SwitchboardError): string =>
  timeLimitMs >= TIMEOUT_HEADER.maxMs
    ? detail
    : `${detail} The header ${TIMEOUT_HEADER.name} allows a call more time, up to ${TIMEOUT_HEADER.maxMs}.`;

/**
 * The error of the generic call: a JSON-RPC response and problem details at once, so that clients of either kind
 * understand it. What the upstream did wrong is a 200 with the JSON-RPC error alone (DESIGN §3).
 */
export function sendRpcError(
  response: ServerResponse,
  error: SwitchboardError,
  requestId: string,
  id: RpcId,
): void {
  const envelope = rpcErrorOf(error, id);
  if (error.isUpstreamFailure) sendJson(response, 200, envelope);
  else send(response, error, { ...problemOf(error, requestId), ...envelope });
}

/** A refusal on the MCP endpoints: a JSON-RPC error and nothing else, as their clients check what they read. */
export function sendMcpError(
  response: ServerResponse,
  error: SwitchboardError,
  id: RpcId,
  status = error.status,
): void {
  send(response, error, rpcErrorOf(error, id), 'application/json', status);
}

const rpcErrorOf = (error: SwitchboardError, id: RpcId) => ({
  jsonrpc: '2.0',
  id,
  error: {
    code: error.rpcCode,
    message: detailOf(error),
    data: {
      ...error.members,
      origin: 'switchboard',
      reason: error.code,
      retryable: error.retryable,
      ...(error.retryAfterSec === undefined ? {} : { retry_after: error.retryAfterSec }),
    },
  },
});

/** Whole numbers beyond 2^53 - 1 have been rounded when they were read: they are not the caller's id any more. */
export const isRpcId = (id: unknown): id is string | number =>
  typeof id === 'string' ||
  (typeof id === 'number' && Number.isFinite(id) && (!Number.isInteger(id) || Number.isSafeInteger(id)));

/** The id to answer with: null where it could not be read (JSON-RPC 2.0 §5). @param absent where the message has none. */
export function rpcIdOf(message: unknown, absent: RpcId): RpcId {
  if (typeof message !== 'object' || message === null || Array.isArray(message)) return null;
  const id = 'id' in message ? message.id : absent;
  return isRpcId(id) ? id : null;
}

/**
 * Every 401 has one (RFC 9110 §15.5.2), in the form of RFC 6750 §3. Without `resource_metadata`: there is no sign-in to be
 * discovered here, and clients that look for one drop the key they were given.
 */
const CHALLENGE = 'Bearer realm="switchboard", error="invalid_token"';

function send(
  response: ServerResponse,
  error: SwitchboardError,
  body: Record<string, unknown>,
  type = 'application/problem+json',
  status = error.status,
): void {
  localsOf(response).code = error.code;
  if (error instanceof RateLimited) addHeaders(response, rateLimitHeaders(error.state));
  if (error instanceof QuotaExceeded) addHeaders(response, quotaHeaders(error.state));
  if (status === 401) addHeaders(response, { 'WWW-Authenticate': CHALLENGE });
  if (error.retryAfterSec !== undefined) addHeaders(response, { 'Retry-After': String(error.retryAfterSec) });
  sendText(response, status, type, JSON.stringify(body));
}

/**
 * Anything a handler or Express itself threw. A database that cannot be reached is a 503, never the caller's fault. Express's
 * refusals, such as a path it cannot decode, carry a 4xx status.
 */
export function errorOf(thrown: unknown): SwitchboardError {
  const isRefusal =
    thrown instanceof Error &&
    !(thrown instanceof SwitchboardError) &&
    'status' in thrown &&
    typeof thrown.status === 'number' &&
    thrown.status < 500;
  if (!isRefusal) return toFailure(thrown);
  return new SwitchboardError('invalid_request', `The request could not be understood: ${thrown.message}`, {
    cause: thrown,
  });
}
