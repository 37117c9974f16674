import type { components, operations } from './openapi.ts';

/** The body of an error response (RFC 9457). */
export type Problem = components['schemas']['Problem'];

/** A session that waits for the user. */
export type Session = operations['createSession']['responses'][200]['content']['application/json'];

/**
 * The codes of the API, and `unexpected_response` for an error that is not Switchboard's, such as the page of a proxy in
 * between. A newer Switchboard may send a code that is not among them.
 */
export type ErrorCode = Problem['code'] | 'unexpected_response';

/** An error response. A request without a response rejects with the error of `fetch` instead. */
export class SwitchboardError<Code extends ErrorCode = ErrorCode> extends Error {
  override readonly name = 'SwitchboardError';
  readonly code: Code;
  readonly status: number;
  /** What happened and what to do. */
  readonly detail: string;
  /** The id of the request in the server's log. */
  readonly requestId: string | undefined;
  /** Seconds to wait before retrying. */
  readonly retryAfter: number | undefined;
  /** The session that `connection_required` has created, unless only an operator can connect the server. */
  readonly session: Session | undefined;
  /** The whole body. Some codes have more fields. */
  readonly problem: Problem | undefined;

  constructor(code: Code, response: Response, problem?: Problem) {
    const detail = problem?.detail ?? `The response is HTTP ${response.status} without problem details.`;
    super(`${code}: ${detail}`);
    this.code = code;
    this.status = response.status;
    this.detail = detail;
    this.requestId = problem?.request_id ?? response.headers.get('x-request-id') ?? undefined;
    this.retryAfter = problem?.retry_after ?? secondsIn(response.headers.get('retry-after'));
    this.session = sessionIn(problem);
    this.problem = problem;
  }
}

/** Returns whether it is an error response, with one of the codes if any are given. */
export function isSwitchboardError<Code extends ErrorCode = ErrorCode>(
  error: unknown,
  ...codes: readonly Code[]
): error is SwitchboardError<Code> {
  return error instanceof SwitchboardError && (codes.length === 0 || codes.some(code => code === error.code));
}

/** The sign-in of a session failed, or the user did not finish it in time. */
export class SessionFailed extends Error {
  override readonly name = 'SessionFailed';
  /** The code of the failure, such as `access_denied`, `session_expired` or `account_mismatch`. */
  readonly reason: string;

  /** @param message the error of the session's status: the reason, a colon, and a sentence */
  constructor(message: string) {
    super(message);
    this.reason = message.split(':', 1)[0] ?? '';
  }
}

/** Resolves to the data of a response. @throws SwitchboardError */
export async function unwrap<Data>(
  answer: Promise<{ readonly data?: Data; readonly error?: unknown; readonly response: Response }>,
): Promise<Data> {
  const { data, error, response } = await answer;
  if (response.ok && data !== undefined) return data;
  if (isProblem(error)) throw new SwitchboardError(error.code, response, error);
  throw new SwitchboardError('unexpected_response', response);
}

/** Returns the least time after which another attempt may succeed. undefined: it fails in the same way. */
export function retryDelayMs(error: unknown): number | undefined {
  // The error of `fetch` without a response.
  if (error instanceof TypeError) return 0;
  if (!isSwitchboardError(error) || (error.code !== 'rate_limited' && error.status < 500)) return undefined;
  return 1000 * (error.retryAfter ?? 0);
}

export const isProblem = (body: unknown): body is Problem =>
  typeof body === 'object' && body !== null && 'code' in body && 'detail' in body;

function sessionIn({ session_id, auth_url, expires_at }: Partial<Problem> = {}): Session | undefined {
  if (session_id === undefined || auth_url === undefined || expires_at === undefined) return undefined;
  return { session_id, auth_url, expires_at };
}

/** A proxy may send a date instead (RFC 9110 §10.2.3), which is of no use without its clock. */
const secondsIn = (retryAfter: string | null): number | undefined =>
  retryAfter !== null && /^\d+$/.test(retryAfter) ? Number(retryAfter) : undefined;
