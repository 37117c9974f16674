import { errorOf, type RpcError } from './envelope.ts';
import { isAboutSession } from './not-run.ts';
import type { RpcReply } from './rpc.ts';
import type { Session } from './sessions.ts';

/** `dead`: the server did not run what was asked. `perhaps`: it speaks of the session, and may have. */
export type Loss = 'dead' | 'perhaps' | 'none';

/**
 * Whether a server no longer knows the session a request was sent in.
 *
 * By the protocol it says so with HTTP 404 (2025-11-25, Session management); what answers our own request and is no error about the
 * session is an answer nevertheless. Many servers, server-everything and those made after the SDK's examples among them, look the
 * session up themselves, before they give the request to the protocol, and say HTTP 400 with an error in words of their own.
 * Where these words can mean nothing else, to a request that did carry a session id, they are taken for what they say: what
 * has been given to the protocol is answered with HTTP 200, also when a tool fails. A server that says it of a call it has
 * run, against all this, gets that call a second time, once.
 */
export function lossOf(session: Session, reply: RpcReply): Loss {
  if (session.stream) return ofStream(reply);
  const { status, answer, begun } = reply;
  const error = errorOf(answer);
  const hasId = session.sessionId !== undefined;
  if (status === 404 && hasId) return isAboutSession(reply) ? 'dead' : 'none';
  if (status !== 400 || !error || !speaksOfSession(error)) return 'none';
  return hasId && !begun && NO_SUCH_SESSION.test(error.message) ? 'dead' : 'perhaps';
}

/** Of HTTP+SSE, where the session is the stream and in the URL. */
function ofStream({ status, answer, begun, problem }: RpcReply): Loss {
  if (status === 404 || status === 410) return begun ? 'perhaps' : 'dead';
  if (status !== 400) return 'none';
  const error = errorOf(answer);
  const speaks = error ? speaksOfSession(error) : /session|transport/i.test(problem().detail);
  return speaks ? 'perhaps' : 'none';
}

const speaksOfSession = ({ code, message }: RpcError) => isGrandfathered(code) && /session/i.test(message);

const NO_SUCH_SESSION =
  /\b(?:no valid|invalid|unknown) (?:mcp[- ])?session\b|\bsession (?:id )?(?:was )?not found\b/i;

/** Codes that revisions before 2026-07-28 left to implementations. */
export const isGrandfathered = (code = 0): boolean => code >= -32_019 && code <= -32_000;
