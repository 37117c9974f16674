import { toSwitchboardError, type ErrorCode } from '../../errors.ts';
import type { HealthState } from '../catalogue/health.ts';
import type { Server } from '../catalogue/entry.ts';
import { HttpFailure } from '../proxy/upstream/failures.ts';
import { HandshakeRefused } from '../proxy/upstream/interpret-reply.ts';

/** What a visit says of the server; `no_verdict`: nothing, so that it stays what it was. */
export type Verdict = HealthState | 'no_verdict';

/** By the failure's code. What is not here says nothing of the server: it is our own fault, or that we stop. */
const BY_CODE: Partial<Record<ErrorCode, Verdict>> = {
  upstream_unauthorized: 'needs_sign_in',
  upstream_forbidden: 'needs_sign_in',
  upstream_rate_limited: 'no_verdict',
  upstream_timeout: 'unreachable',
  upstream_unreachable: 'unreachable',
  upstream_unavailable: 'unreachable',
  // An address that may not be asked, or a name that leads to one: from here nobody comes there.
  upstream_blocked: 'unreachable',
  upstream_http_error: 'not_mcp',
  upstream_protocol: 'not_mcp',
  upstream_too_large: 'not_mcp',
  // A JSON-RPC error in answer to tools/list: there may be no tools, but there is a server.
  upstream_error: 'ok',
};

/** HTTP 402: like 401 and 403, it says what is missing for an answer. */
const PAYMENT_REQUIRED = 402;

/**
 * What the failure of a visit says of the server.
 * @param hasEntered the handshake went well: what fails afterwards, other than the connection, fails in a server of MCP
 */
export function verdictOf(thrown: unknown, { auth }: Pick<Server, 'auth'>, hasEntered: boolean): Verdict {
  const error = toSwitchboardError(thrown);
  if (error instanceof HandshakeRefused) return auth.kind === 'none' ? 'not_mcp' : 'needs_sign_in';
  if (error instanceof HttpFailure && error.httpStatus >= 500) return 'unreachable';
  if (error instanceof HttpFailure && error.httpStatus === PAYMENT_REQUIRED) return 'needs_sign_in';
  const verdict = BY_CODE[error.code] ?? 'no_verdict';
  return verdict === 'not_mcp' && hasEntered ? 'ok' : verdict;
}
