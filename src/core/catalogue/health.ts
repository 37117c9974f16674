import type { Server } from './entry.ts';

/** What a visit of a server found: the first two are alive, the others failed. */
export const HEALTH_STATES = ['ok', 'needs_sign_in', 'not_mcp', 'unreachable'] as const;
export type HealthState = (typeof HEALTH_STATES)[number];

/** What probing knows of a server at its present address. Times in milliseconds since the epoch. */
export interface Health {
  readonly state: HealthState;
  /** Of the last visit, from its first request to the list of tools; absent: it had no answer. */
  readonly latencyMs?: number;
  readonly checkedAtMs: number;
  /** When it was last alive; absent: never. */
  readonly lastOkAtMs?: number;
  /** Visits in a row that failed. */
  readonly failures: number;
  /** Since when it counts as dead; absent: it does not. */
  readonly deadSinceMs?: number;
}

/** What is known of all servers. */
export interface KnownHealth {
  /** Undefined: it has not been visited at its present address. */
  of(server: Pick<Server, 'id' | 'remoteUrl'>): Health | undefined;
  /** Another number as soon as a server is dead that was not, or the other way round. */
  readonly epoch: number;
}

export const isAlive = (state: HealthState): boolean => state === 'ok' || state === 'needs_sign_in';

/** In the fields of the wire. */
export interface ShownHealth {
  readonly status: HealthState;
  readonly checked_at: string;
  readonly latency_ms?: number;
}

export const shownHealth = ({
  state,
  checkedAtMs,
  latencyMs,
}: Pick<Health, 'state' | 'checkedAtMs' | 'latencyMs'>): ShownHealth => ({
  status: state,
  checked_at: new Date(checkedAtMs).toISOString(),
  ...(latencyMs === undefined ? {} : { latency_ms: latencyMs }),
});
