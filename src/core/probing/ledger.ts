import { isAlive, type Health, type HealthState } from '../catalogue/health.ts';

/** So many failed visits in a row, and the server counts as dead. */
const DEAD_AFTER_FAILURES = 3;
/** Dead for so long, and it becomes inactive. */
const INACTIVE_AFTER_MS = 30 * 86_400_000;

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

/** Servers that were alive, and those of them that failed in this round. */
interface Losses {
  readonly alive: number;
  readonly failed: number;
}

/** Fewer servers say nothing of our own network … */
const FEW = 10;
/** … and of as many, no more than this share dies from one round to the next. */
const BELIEVABLE_SHARE = 0.5;

const isMost = ({ alive, failed }: Losses): boolean => failed > alive * BELIEVABLE_SHARE;

/**
 * Whether it is rather our own network that failed: most of the servers that were alive are not any more. Where no half of those
 * answers, or none is known, those that had never been visited are taken for alive, too.
 */
export function isOwnOutage(known: Losses, unvisited: Losses): boolean {
  if (known.alive > 0 && !isMost(known)) return false;
  const all = { alive: known.alive + unvisited.alive, failed: known.failed + unvisited.failed };
  return all.alive >= FEW && isMost(all);
}
