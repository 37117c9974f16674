import { SwitchboardError } from '../../errors.ts';
import { NotAdmitted } from './admission.ts';
import { brokeProtocol, HttpFailure, httpFailure } from './upstream/failures.ts';
import type { ProxyLimits } from './limits.ts';
import type { Streamed } from './upstream/streamed-response.ts';

/** One text for every reason, so that it tells nothing about others' sessions. */
export const sessionNotFound = (): SwitchboardError =>
  new SwitchboardError('mcp_session_not_found', 'There is no such session here. Initialize again.');

export function tooManyStreams(bound: 'key' | 'all', limits: ProxyLimits): SwitchboardError {
  if (bound === 'all')
    return new SwitchboardError('unavailable', 'Too many streams are open here. Try again later.', {
      retryAfterSec: 30,
    });
  return new SwitchboardError(
    'rate_limited',
    `This key has ${limits.maxStreamsPerKey} streams open already. Close one first.`,
    { retryAfterSec: 30 },
  );
}

const OTHER_WAYS = 'POST /v1/mcp/call, or through call_remote_tool at /mcp';

export const oldTransport = (serverId: string): SwitchboardError =>
  new NotAdmitted(
    'upstream_protocol',
    `The MCP server ${serverId} uses the old HTTP+SSE transport (2024-11-05), which has no pass-through. Call it with ${OTHER_WAYS}.`,
  );

export const perhapsOldTransport = (status: number): SwitchboardError =>
  new HttpFailure(
    status,
    'upstream_http_error',
    `The MCP server answered with HTTP ${status}, and not in MCP. It may speak only the old HTTP+SSE transport (2024-11-05), which has no pass-through: then call it with ${OTHER_WAYS}. Otherwise its catalogued URL may be out of date.`,
  );

/** What an answer means that is not passed on. Of HTML nothing is quoted. */
export function refusedAnswer(answer: Streamed, nowMs: number): SwitchboardError {
  if (answer.status >= 400) return httpFailure({ ...answer, nowMs });
  return brokeProtocol(
    `answered with HTTP ${answer.status} and a body that is neither JSON nor a stream of events`,
  );
}

/**
 * The status that a client of the server itself knows what to do with: the server's own, where it gave one. 502 for what
 * would be taken for ours (401, 403, 407).
 */
export function passThroughStatus(error: SwitchboardError): number {
  if (error.code === 'upstream_rate_limited') return 429;
  if (error.code === 'upstream_unavailable') return 503;
  const isServers = error instanceof HttpFailure && error.code === 'upstream_http_error';
  return isServers && error.httpStatus !== 407 ? error.httpStatus : error.status;
}
