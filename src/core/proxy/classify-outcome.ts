import type { ErrorCode, SwitchboardError } from '../../errors.ts';
import type { Params } from './upstream/envelope.ts';
import { HttpFailure } from './upstream/failures.ts';
import { isObject } from './upstream/json.ts';
import type { UpstreamReply } from './upstream/upstreams.ts';

/**
 * What the end of a call says of its server: it works (true), it failed through its own fault (false), or nothing (undefined).
 * Search ranks by it, so what may be the caller's own doing says nothing: wrong arguments, a sign-in or right that is missing, rate
 * limits, a time limit of the caller's own. A server's words are guessed at; a wrong guess is bounded, as each tenant's calls count up to a
 * cap.
 */
type Verdict = boolean | undefined;

/** Of a tool's error text, what is looked at. */
const MAX_TEXT_CHARS = 2_000;

/** Words of who blames the caller, or wants a sign-in or patience of it. */
const BLAMES_CALLER = new RegExp(
  [
    String.raw`\b(?:invalid|unexpected|missing|unknown|unrecognized|unsupported|malformed|required|bad request)\b`,
    String.raw`\bmust (?:be|have|not)\b|\bnot (?:found|allowed|permitted)\b|\bno such\b|\bdo(?:es)?(?: not|n['’]t) exist\b|\bno (?:results|matches)\b`,
    String.raw`\b(?:un)?auth(?:enticat|ori[sz]|\b)|\b(?:sign|log)[ -]?in\b|\bapi[ _-]?key\b|\btoken\b|\bcredential|\bpermission|\bforbidden\b|\baccess denied\b`,
    String.raw`\brate[ -]?limit|\btoo many requests\b|\bquota\b|\bpayment\b|-32602|\b(?:40[0-4]|409|422|429)\b`,
  ].join('|'),
  'i',
);

/** JSON-RPC: internal error, and what SDKs say when something broke (connection closed, request timed out). */
const SERVER_FAULTS: ReadonlySet<number> = new Set([-32_603, -32_000, -32_001]);

const NOTHING: ReadonlySet<ErrorCode> = new Set([
  'upstream_unauthorized',
  'upstream_forbidden',
  'upstream_rate_limited',
  'upstream_input_required',
]);

/** What Node says when it is our own network that is down. */
const OUR_NETWORK: ReadonlySet<unknown> = new Set(['EAI_AGAIN', 'ENETUNREACH', 'ENETDOWN']);

/** There is nothing at the catalogued URL. */
const GONE: ReadonlySet<number> = new Set([404, 405, 410]);

/**
 * @param error of an upstream that was asked.
 * @param how `isShortened`: the caller waits for less than half of the proxy's own limit; `isPassed`: on the pass-through, where 404 and
 * 405 may mean a session's end or a transport that it does not have.
 */
export function judgeFailure(
  error: SwitchboardError,
  { isShortened, isPassed }: { isShortened: boolean; isPassed: boolean },
): Verdict {
  if (NOTHING.has(error.code) || isOurNetwork(error)) return undefined;
  if (error.code === 'upstream_timeout' && isShortened) return undefined;
  if (error instanceof HttpFailure)
    return !isPassed && GONE.has(error.httpStatus) ? false : judgeStatus(error.httpStatus);
  if (error.code === 'upstream_error') return judgeError(error.upstreamError);
  return false;
}

/** By the HTTP status of an answer that was passed on. */
export function judgeStatus(status: number): Verdict {
  if (status >= 200 && status <= 299) return true;
  const isCallers = status >= 400 && status <= 499;
  return isCallers ? undefined : false;
}

export const judgeReply = ({ answer }: Pick<UpstreamReply, 'answer'>): Verdict =>
  'error' in answer ? judgeError(answer.error) : judgeResult(answer.result);

/** A result of any method; one with `isError` is a tool's own failure. */
export function judgeResult(result: unknown): Verdict {
  if (!isObject(result) || result['isError'] !== true)
    return isObject(result) && result['resultType'] === 'input_required' ? undefined : true;
  const { content } = result;
  const blocks: unknown[] = Array.isArray(content) ? content : [];
  return blocks.some(block => isObject(block) && blamesCaller(block['text'])) ? undefined : false;
}

function judgeError(error: unknown): Verdict {
  if (!isObject(error) || !SERVER_FAULTS.has(Number(error['code']))) return undefined;
  return blamesCaller(error['message']) ? undefined : false;
}

const blamesCaller = (text: unknown): boolean =>
  typeof text === 'string' && BLAMES_CALLER.test(text.slice(0, MAX_TEXT_CHARS));

const isOurNetwork = ({ cause }: SwitchboardError): boolean =>
  isObject(cause) && OUR_NETWORK.has(cause['code']);

/** The tool that a request calls, if it calls one. */
export function toolNamed(method: string, params: Params | undefined): string | undefined {
  const name = method === 'tools/call' ? params?.['name'] : undefined;
  return typeof name === 'string' ? name.slice(0, 1_024) : undefined;
}
