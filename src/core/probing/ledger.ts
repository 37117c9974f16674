import { isAlive, type Health, type HealthState } from '../catalogue/health.ts';

/** So many failed visits in a row, and the server counts as dead. */
export const DEAD_AFTER_FAILURES = 3;
/** Dead for so long, and it becomes inactive. */
export const INACTIVE_AFTER_MS = 30 * 86_400_000;

/** What is known of a server after a visit. @param before absent: there was none at this address */
export function after(
  before: Health | undefined,
  { state, latencyMs }: { readonly state: HealthState; readonly latencyMs?: number },
  nowMs: number,
): Health {
  const latency = latencyMs === undefined ? {} : { latencyMs };
  if (isAlive(state)) return { state, ...latency, checkedAtMs: nowMs, lastOkAtMs: nowMs, failures: 0 };
  const failures = (before?.failures ?? 0) + 1;
  const deadSinceMs = before?.deadSinceMs ?? (failures >= DEAD_AFTER_FAILURES ? nowMs : undefined);
  return {
    state,
    ...latency,
    checkedAtMs: nowMs,
    ...(before?.lastOkAtMs === undefined ? {} : { lastOkAtMs: before.lastOkAtMs }),
    failures,
    ...(deadSinceMs === undefined ? {} : { deadSinceMs }),
  };
}

export const isDeadForLong = (deadSinceMs: number, nowMs: number): boolean =>
  nowMs - deadSinceMs >= INACTIVE_AFTER_MS;

/** Fewer servers that were alive say nothing of our own network … */
const FEW = 10;
/** … and of as many, no more than this share dies from one round to the next. */
const BELIEVABLE_SHARE = 0.5;

/**
 * Whether it is rather our own network that failed: most of the servers that were alive are not any more.
 * @param wasAlive visited servers that were alive before, or had never been visited
 * @param failed those of them that failed now
 */
export const isOwnOutage = ({
  wasAlive,
  failed,
}: {
  readonly wasAlive: number;
  readonly failed: number;
}): boolean => wasAlive >= FEW && failed > wasAlive * BELIEVABLE_SHARE;
