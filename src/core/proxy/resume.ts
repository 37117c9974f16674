import { setTimeout as delay } from 'node:timers/promises';
import { abortReason } from '../../platform/race-abort.ts';
import type { HttpAnswer, HttpRequest } from './upstream/buffered-response.ts';
import type { Wire } from './upstream/http-client.ts';

const MAX_RESUMES = 10;
const DEFAULT_RETRY_MS = 1_000;
const MAX_RETRY_MS = 10_000;

/**
 * Goes on with an answer's stream that its server ended before the answer, if it gave its events ids (2025-11-25,
 * Resumability): by GET, after the wait the server asked for. The request itself is never sent again.
 * @param request the POST whose answer it was; its handler takes the further events, its signal ends the waiting.
 * @returns the answer of the POST, its stream as it ended in the end. A server that refuses to resume has ended it.
 */
export async function resume(wire: Wire, request: HttpRequest, first: HttpAnswer): Promise<HttpAnswer> {
  let answer = first;
  for (let resumes = 0; resumes < MAX_RESUMES; resumes++) {
    const { lastEventId, retryMs, stream } = answer;
    if (stream !== 'ended' || lastEventId === undefined) break;
    await pause(Math.min(retryMs ?? DEFAULT_RETRY_MS, MAX_RETRY_MS), request.signal);
    const next = await get(wire, request, lastEventId);
    // Not to be taken for a refusal of the call (401, 404), which would be reason to send that again.
    if (next.status !== 200 || next.stream === 'none') break;
    answer = {
      ...first,
      bytes: answer.bytes + next.bytes,
      stream: next.stream,
      lastEventId: next.lastEventId ?? lastEventId,
      retryMs: next.retryMs ?? retryMs,
    };
  }
  return answer;
}

function get(wire: Wire, request: HttpRequest, lastEventId: string): Promise<HttpAnswer> {
  const { 'content-type': _ofBody, ...headers } = request.headers;
  const { url, signal, onEvent } = request;
  return wire.send({
    url,
    method: 'GET',
    headers: { ...headers, accept: 'text/event-stream', 'last-event-id': lastEventId },
    signal,
    ...(onEvent ? { onEvent } : {}),
  });
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  try {
    await delay(ms, undefined, { signal });
  } catch {
    throw abortReason(signal);
  }
}
