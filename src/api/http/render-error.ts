import type { ServerResponse } from 'node:http';
import { QuotaExceeded } from '../../core/access/quota.ts';
import { RateLimited } from '../../core/access/rate-limits.ts';
import { fromThrown } from '../../core/failure.ts';
import { passThroughStatus } from '../../core/proxy/pass-through-messages.ts';
import { CallerAbortError } from '../../core/proxy/proxy.ts';
import { errorKind, SwitchboardError } from '../../errors.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { sendErrorPage } from '../pages/refusals.ts';
import {
  addHeaders,
  limitHeaders,
  localsOf,
  sendJson,
  sendText,
  TIMEOUT_HEADER,
  type Wire,
} from './request.ts';

export type RpcId = string | number | null;

interface Failed {
  readonly wire: Wire;
  readonly log: Log;
  /** The id of the JSON-RPC request. Default: null, if it could not be read (JSON-RPC 2.0 §5). */
  readonly rpcId?: RpcId;
  /** Returns the challenge of a refusal with a status. Default: that for keys. */
  readonly challengeOf?: (status: number) => string | undefined;
}

/** Responds with an error in the caller's format. If the response has already started, closes the connection. */
export function renderError(
  response: ServerResponse,
  thrown: unknown,
  { wire, log, rpcId = null, challengeOf = () => undefined }: Failed,
): void {
  if (response.destroyed) return;
  if (response.headersSent || thrown instanceof CallerAbortError) {
    response.destroy();
    return;
  }
  const { requestId } = localsOf(response);
  const error = toReported(thrown, log, requestId);
  if (wire === 'page') return sendErrorPage(response, error, requestId);
  if (wire === 'rpc' && error.isUpstreamFailure) return sendJson(response, 200, rpcErrorOf(error, rpcId));
  send(response, error, bodyOf(error, wire, requestId, rpcId), {
    type: wire === 'mcp' || wire === 'pass-through' ? 'application/json' : 'application/problem+json',
    status: wire === 'pass-through' ? passThroughStatus(error) : error.status,
    challengeOf,
  });
}

function bodyOf(
  error: SwitchboardError,
  wire: Exclude<Wire, 'page'>,
  requestId: string,
  rpcId: RpcId,
): Record<string, unknown> {
  if (wire === 'mcp') return rpcErrorOf(error, rpcId);
  if (wire === 'pass-through') return rpcErrorOf(relayed(error), rpcId);
  const problem = problemOf(error, requestId, wire);
  if (wire === 'rpc') return { ...problem, ...rpcErrorOf(error, rpcId) };
  if (wire === 'registry') return { ...problem, error: error.detail };
  return problem;
}

/**
 * Converts any thrown value to a SwitchboardError. Logs internal errors unless no log is given because the caller has
 * disconnected. An unreachable database is `unavailable`, never the caller's fault. Express's errors, such as for an
 * undecodable path, have a 4xx status.
 */
export function toReported(thrown: unknown, log: Log | undefined, requestId: string): SwitchboardError {
  const error = isExpressRefusal(thrown)
    ? new SwitchboardError('invalid_request', `The request could not be understood: ${thrown.message}`, {
        cause: thrown,
      })
    : fromThrown(thrown);
  if (error.code === 'internal') log?.error({ err: thrown, requestId }, 'request failed');
  return error;
}

const isExpressRefusal = (thrown: unknown): thrown is Error =>
  thrown instanceof Error &&
  !(thrown instanceof SwitchboardError) &&
  'status' in thrown &&
  typeof thrown.status === 'number' &&
  thrown.status < 500;

/** Returns problem details (RFC 9457), with `code` from the closed list and the request's id. */
export function problemOf(error: SwitchboardError, requestId: string, wire: Wire): Record<string, unknown> {
  const { title, oauth } = errorKind(error.code);
  return {
    type: `urn:switchboard:error:${error.code}`,
    title,
    status: error.status,
    detail: wire === 'command' ? error.operatorDetail : detailOf(error),
    code: error.code,
    request_id: requestId,
    ...(oauth === undefined ? {} : { error: oauth }),
    ...(error.status < 500 ? {} : { retryable: error.retryable }),
    ...(error.retryAfterSec === undefined ? {} : { retry_after: error.retryAfterSec }),
    ...(error.upstreamError === undefined ? {} : { upstream_error: error.upstreamError }),
    ...error.members,
  };
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

/** Returns the text of an error for a tool result, which a model reads. */
export const toolErrorText = ({ detail, code, retryAfterSec }: SwitchboardError): string =>
  `${detail} (${code}${retryAfterSec === undefined ? '' : `, retry after ${retryAfterSec} s`})`;

/** Over HTTP, a caller can allow a slow call more time. */
const detailOf = ({ detail, timeLimitMs = Infinity }: SwitchboardError): string =>
  timeLimitMs >= TIMEOUT_HEADER.maxMs
    ? detail
    : `${detail} To allow more time, send the header ${TIMEOUT_HEADER.name} (up to ${TIMEOUT_HEADER.maxMs}).`;

/**
 * Returns a refusal for a client that shows its user, or its model, no more than the message: the message has the link and the
 * reason. The id of a sign-in session is for the app only.
 */
function relayed(error: SwitchboardError): SwitchboardError {
  if (error.code !== 'connection_required') return error;
  const { session_id: _secret, ...members } = error.members;
  const { auth_url: link, reason } = members;
  const said = [
    ...(typeof link === 'string' ? [`auth_url: ${link}`] : []),
    ...(typeof reason === 'string' ? [`reason: ${reason}`] : []),
  ];
  return new SwitchboardError(error.code, [error.detail, ...said].join('\n'), { members });
}

/** Whole numbers above 2^53 - 1 were rounded during parsing, so they are no longer the caller's id. */
export const isRpcId = (id: unknown): id is string | number =>
  typeof id === 'string' ||
  (typeof id === 'number' && Number.isFinite(id) && (!Number.isInteger(id) || Number.isSafeInteger(id)));

/**
 * Returns the id for the response: null if it could not be read (JSON-RPC 2.0 §5). @param absent the value if the message has none
 */
export function rpcIdOf(message: unknown, absent: RpcId): RpcId {
  if (typeof message !== 'object' || message === null || Array.isArray(message)) return null;
  const id = 'id' in message ? message.id : absent;
  return isRpcId(id) ? id : null;
}

/**
 * Every 401 has a challenge (RFC 9110 §15.5.2) in the format of RFC 6750 §3. This one has no `resource_metadata`, because clients
 * that have sent a key would drop it to look for a sign-in.
 */
const CHALLENGE = 'Bearer realm="switchboard", error="invalid_token"';

function send(
  response: ServerResponse,
  error: SwitchboardError,
  body: Record<string, unknown>,
  {
    type,
    status,
    challengeOf,
  }: { readonly type: string; readonly status: number } & Required<Pick<Failed, 'challengeOf'>>,
): void {
  localsOf(response).code = error.code;
  if (error instanceof RateLimited || error instanceof QuotaExceeded)
    addHeaders(response, limitHeaders(error.state));
  if (status === 401) addHeaders(response, { 'WWW-Authenticate': challengeOf(401) ?? CHALLENGE });
  if (error.code === 'insufficient_scope') {
    const challenge = challengeOf(403);
    if (challenge !== undefined) addHeaders(response, { 'WWW-Authenticate': challenge });
  }
  if (error.retryAfterSec !== undefined) addHeaders(response, { 'Retry-After': String(error.retryAfterSec) });
  sendText(response, status, type, JSON.stringify(body));
}
