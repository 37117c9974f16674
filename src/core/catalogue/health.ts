import type { ServerHead } from './entry.ts';

/** Results of a health check: the first two mean alive, the others failed. */
export const HEALTH_STATES = ['ok', 'needs_sign_in', 'not_mcp', 'unreachable'] as const;
export type HealthState = (typeof HEALTH_STATES)[number];

/** Health of a server at its current address. Times are milliseconds since the epoch. */
export interface Health {
  readonly state: HealthState;
  /** Latency of the last check, from its first request to the list of tools; absent: there was no response. */
  readonly latencyMs?: number;
  readonly checkedAtMs: number;
  /** When the server was last alive; absent: never. */
  readonly lastOkAtMs?: number;
  /** Consecutive failed checks. */
  readonly failures: number;
  /** When it became dead, with its third failure; absent: it is not dead. */
  readonly deadSinceMs?: number;
}

/** Gives the health of every server. */
export interface KnownHealth {
  /** Returns undefined for a server that was not checked at its current address. */
  of(server: Pick<ServerHead, 'id' | 'remoteUrl'>): Health | undefined;
  /** Changes whenever a server becomes dead or stops being dead. */
  readonly epoch: number;
}

export const isAlive = (state: HealthState): boolean => state === 'ok' || state === 'needs_sign_in';

/** Health in the format of the API. */
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
