import type { ErrorCode } from '../../errors.ts';
import { isAlive, type Health, type HealthState } from '../catalogue/health.ts';
import type { ServerHead } from '../catalogue/entry.ts';
import type { Inspection } from '../proxy/inspect.ts';
import { HttpFailure } from '../proxy/upstream/failures.ts';
import { HandshakeRefused } from '../proxy/upstream/era.ts';

/** Consecutive failed checks after which a server counts as dead. */
const DEAD_AFTER_FAILURES = 3;
const DAY_MS = 86_400_000;
/** How long a server stays dead before it is deactivated. */
const DEACTIVATED_AFTER_MS = 30 * DAY_MS;
/** Fewer hosts than this say nothing about our own network. */
const MIN_HOSTS = 10;

/** The result of one check. `no_verdict` is inconclusive and leaves the server's health unchanged. */
export type Outcome = HealthState | 'no_verdict';

/** An error code that is not listed here is our own fault or caused by shutdown. */
const OUTCOMES: Partial<Record<ErrorCode, Outcome>> = {
  upstream_unauthorized: 'needs_sign_in',
  upstream_forbidden: 'needs_sign_in',
  upstream_rate_limited: 'no_verdict',
  upstream_timeout: 'unreachable',
  upstream_unreachable: 'unreachable',
  upstream_unavailable: 'unreachable',
  upstream_blocked: 'unreachable',
  upstream_http_error: 'not_mcp',
  upstream_protocol: 'not_mcp',
  upstream_too_large: 'not_mcp',
  // A JSON-RPC error for tools/list: the server may have no tools, but it speaks MCP.
  upstream_error: 'ok',
};

/** HTTP 402 asks for something missing, like 401 and 403. */
const PAYMENT_REQUIRED = 402;

/** Statuses that say that nothing is there, also with a JSON-RPC error as the body, which some gateways send. */
const NOT_THERE: ReadonlySet<number> = new Set([404, 405, 410]);

/** Returns whether a server that refuses the handshake may accept it with credentials. */
const wantsMore = ({ kind }: ServerHead['auth'], status: number) => kind !== 'none' && !NOT_THERE.has(status);

/** Returns the health check result of an inspection. */
export function outcomeOf({ auth }: Pick<ServerHead, 'auth'>, { error, hasEntered }: Inspection): Outcome {
  if (!error) return 'ok';
  const isRefused = error instanceof HandshakeRefused;
  const status = isRefused || error instanceof HttpFailure ? error.httpStatus : 0;
  if (status >= 500) return 'unreachable';
  if (isRefused) return wantsMore(auth, status) ? 'needs_sign_in' : 'not_mcp';
  if (status === PAYMENT_REQUIRED) return 'needs_sign_in';
  const outcome = OUTCOMES[error.code] ?? 'no_verdict';
  // Only an MCP server completes the handshake, whatever its later responses.
  return outcome === 'not_mcp' && hasEntered ? 'ok' : outcome;
}

/**
 * Returns the health of a server after a check.
 * @param previous its health at this address; undefined before the first check
 */
export function nextHealth(
  previous: Health | undefined,
  { state, latencyMs }: { readonly state: HealthState; readonly latencyMs?: number },
  nowMs: number,
): Health {
  const checked = { state, ...(latencyMs === undefined ? {} : { latencyMs }), checkedAtMs: nowMs };
  if (isAlive(state)) return { ...checked, lastOkAtMs: nowMs, failures: 0 };
  const failures = (previous?.failures ?? 0) + 1;
  return {
    ...checked,
    ...(previous?.lastOkAtMs === undefined ? {} : { lastOkAtMs: previous.lastOkAtMs }),
    failures,
    ...(failures < DEAD_AFTER_FAILURES ? {} : { deadSinceMs: previous?.deadSinceMs ?? nowMs }),
  };
}

/** Returns true if a server has been dead for 30 days and must be deactivated. */
export const isDeadForLong = (deadSinceMs: number, nowMs: number): boolean =>
  nowMs - deadSinceMs >= DEACTIVATED_AFTER_MS;

/**
 * Returns true if a sweep should check the server, because its last check is older than half the interval. A sweep after a
 * restart thus continues where the last one ended. A server that was deactivated as dead is checked at most once a day.
 */
export function isDue(
  server: ServerHead,
  health: Health | undefined,
  everyMs: number,
  nowMs: number,
): boolean {
  if (!health) return true;
  const passedMs = nowMs - health.checkedAtMs;
  const intervalMs = server.unreachable ? Math.max(everyMs, DAY_MS) : everyMs;
  // A time in the future only means that the clock was ahead.
  return passedMs < 0 || passedMs >= intervalMs - everyMs / 2;
}

/** One check, and whether the server was alive before it. */
export interface Check {
  readonly host: string;
  readonly wasAlive: boolean;
  readonly isAlive: boolean;
}

/**
 * Returns true if a sweep says more about our own network than about the servers: more than half of at least ten hosts failed. Only
 * hosts that were alive before are counted, or all hosts if none was. A host failed if none of its servers is alive.
 */
export function isOwnOutage(checks: readonly Check[]): boolean {
  const hosts = [...Map.groupBy(checks, ({ host }) => host).values()];
  const alive = hosts.filter(host => host.some(({ wasAlive }) => wasAlive));
  const counted = alive.length > 0 ? alive : hosts;
  const failed = counted.filter(host => !host.some(check => check.isAlive));
  return counted.length >= MIN_HOSTS && failed.length > counted.length / 2;
}
