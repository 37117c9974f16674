import { isAlive, type Health, type HealthState } from '../catalogue/health.ts';

/** So many failed visits in a row, and the server counts as dead. */
const DEAD_AFTER_FAILURES = 3;
/** Dead for so long, and it becomes inactive. */
const INACTIVE_AFTER_MS = 30 * 86_400_000;
/** Of the time between two visits no more counts towards that, so that it takes five visits at least, whatever the clock does. */
const MAX_COUNTED_MS = 7 * 86_400_000;

/** What is known of a server after a visit. @param before absent: there was none at this address */
export function after(
  before: Health | undefined,
  { state, latencyMs }: { readonly state: HealthState; readonly latencyMs?: number },
  nowMs: number,
): Health {
  const latency = latencyMs === undefined ? {} : { latencyMs };
  if (isAlive(state)) return { state, ...latency, checkedAtMs: nowMs, lastOkAtMs: nowMs, failures: 0 };
  const failures = (before?.failures ?? 0) + 1;
  const deadSinceMs = failures < DEAD_AFTER_FAILURES ? undefined : deadSince(before, nowMs);
  return {
    state,
    ...latency,
    checkedAtMs: nowMs,
    ...(before?.lastOkAtMs === undefined ? {} : { lastOkAtMs: before.lastOkAtMs }),
    failures,
    ...(deadSinceMs === undefined ? {} : { deadSinceMs }),
  };
}

function deadSince(before: Health | undefined, nowMs: number): number {
  if (before?.deadSinceMs === undefined) return nowMs;
  const uncountedMs = Math.max(0, nowMs - before.checkedAtMs - MAX_COUNTED_MS);
  return Math.min(before.deadSinceMs + uncountedMs, nowMs);
}

export const isDeadForLong = (deadSinceMs: number, nowMs: number): boolean =>
  nowMs - deadSinceMs >= INACTIVE_AFTER_MS;

/** Hosts that were alive, and those of them that failed in this round. */
interface Losses {
  readonly alive: number;
  readonly failed: number;
}

/** Fewer hosts say nothing of our own network … */
const FEW = 10;
/** … and of as many, no more than this share dies from one round to the next. */
const BELIEVABLE_SHARE = 0.5;

const isMost = ({ alive, failed }: Losses): boolean => failed > alive * BELIEVABLE_SHARE;

/** One vote of each host, however many servers it has: it failed where most of those did that were alive. */
export class Votes {
  readonly #hosts = new Map<string, { alive: number; failed: number }>();

  /** Of a server that was alive. */
  add(host: string, hasFailed: boolean): void {
    const { alive, failed } = this.#hosts.get(host) ?? { alive: 0, failed: 0 };
    this.#hosts.set(host, { alive: alive + 1, failed: failed + (hasFailed ? 1 : 0) });
  }

  get losses(): Losses {
    return { alive: this.#hosts.size, failed: [...this.#hosts.values()].filter(isMost).length };
  }
}

/**
 * Whether it is rather our own network that failed: most of the hosts that were alive are not any more. Where no half of those
 * answers, or none is known, servers that had never been visited are taken for alive, too.
 * @param all `known`, and the votes of those never visited as well
 */
export function isOwnOutage(known: Losses, all: Losses): boolean {
  if (known.alive > 0 && !isMost(known)) return false;
  return all.alive >= FEW && isMost(all);
}

/** Doubt is for a passing fault: after so many rounds in a row … */
const BELIEVED_AFTER_ROUNDS = 3;
/** … and so long a time what fails is believed. */
const BELIEVED_AFTER_MS = 86_400_000;

export const isDoubtedForLong = (
  { count, sinceMs }: { readonly count: number; readonly sinceMs: number },
  nowMs: number,
): boolean => count >= BELIEVED_AFTER_ROUNDS && nowMs - sinceMs >= BELIEVED_AFTER_MS;
