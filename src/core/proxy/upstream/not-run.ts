import { errorOf, HEADER_MISMATCH, UNSUPPORTED_VERSION } from './envelope.ts';
import type { RpcReply } from './rpc.ts';

/**
 * Whether the server refused the version or the headers before it looked at the call. Revision 2026-07-28 has HTTP 400 for
 * that; the same codes in another place, or after the server has spoken of its work, are an answer.
 */
export const isRefusedUnread = ({ status, answer, begun }: RpcReply): boolean => {
  const code = errorOf(answer)?.code;
  return status === 400 && !begun && (code === UNSUPPORTED_VERSION || code === HEADER_MISMATCH);
};

/**
 * Whether an HTTP 404 to a request with a session id means that the session is gone (2025-11-25, Session management). What
 * answers our own request does not, unless it is an error about the session.
 */
export const isAboutSession = ({ answer, ownId, begun }: RpcReply): boolean => {
  if (begun) return false;
  if (!ownId) return true;
  const error = errorOf(answer);
  return error !== undefined && (error.code === -32_001 || /session/i.test(error.message));
};
