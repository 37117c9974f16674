import { setTimeout as delay } from 'node:timers/promises';
import type { Installation } from './installation.ts';
import type { Operation } from './load.ts';
import type { Name } from './replicas.ts';

/** How long Redis, an upstream, a crashed Postgres or a killed replica is away; in shorter runs it is this share of the run. */
const AWAY_MS = 30_000;
const AWAY_SHARE = 0.04;
/** How long after its end a fault may still be felt: a pool's connections, a replica's first seconds. */
const GRACE_MS = 5_000;
/** An upstream that was down is tried again after a time that doubles from 5 s on (docs/reliability.md). */
const CIRCUIT_GRACE_MS = 30_000;

type Touched = Pick<Operation, 'kind' | 'server' | 'failure' | 'life'>;

interface FaultKind {
  readonly name: string;
  /** Whether an operation may fail in this way because of it, as documented. */
  readonly explains: (operation: Touched) => boolean;
  readonly graceMs: number;
  readonly inject: (installation: Installation, awayMs: number, signal: AbortSignal) => Promise<void>;
}

/** A fault as it was: milliseconds since the load began. */
export interface Fault extends Pick<FaultKind, 'name' | 'explains' | 'graceMs'> {
  readonly startMs: number;
  /** When what it took away was back. Infinity until then. */
  endMs: number;
}

const ofFailing = ({ kind, server = '' }: Touched) => kind === 'call' && server.startsWith('failing-');
const among =
  (...codes: readonly string[]) =>
  ({ failure = '' }: Touched) =>
    codes.includes(failure);
const inTime = (ms: number, signal: AbortSignal) => delay(ms, undefined, { signal }).catch(() => {});

const POSTGRES_RESTART: FaultKind = {
  name: 'Postgres restart',
  // 503: what needs the database while there is none.
  explains: among('unavailable'),
  graceMs: GRACE_MS,
  async inject({ postgres }) {
    await postgres.stop('SIGINT');
    await postgres.start();
  },
};

const POSTGRES_CRASH: FaultKind = {
  ...POSTGRES_RESTART,
  name: 'Postgres crash',
  async inject({ postgres }, awayMs, signal) {
    await postgres.stop('SIGQUIT');
    await inTime(awayMs, signal);
    await postgres.start();
  },
};

const REDIS_GONE: FaultKind = {
  name: 'Redis gone',
  // Without it each process counts alone: nothing fails.
  explains: () => false,
  graceMs: GRACE_MS,
  async inject({ redis }, awayMs, signal) {
    await redis.kill();
    await inTime(awayMs, signal);
    await redis.start();
  },
};

const UPSTREAM_DOWN: FaultKind = {
  name: 'upstream down',
  // A connection that it had is cut in the midst of a call, new ones are refused, then the circuit opens.
  explains: operation =>
    ofFailing(operation) && among('upstream_unreachable', 'upstream_unavailable')(operation),
  graceMs: CIRCUIT_GRACE_MS,
  async inject({ failing }, awayMs, signal) {
    await failing.kill();
    await inTime(awayMs, signal);
    await failing.start();
  },
};

const UPSTREAM_HANGS: FaultKind = {
  name: 'upstream hangs',
  // When it wakes it finds connections idle for too long, and cuts them with the calls that came on them meanwhile.
  explains: operation =>
    ofFailing(operation) &&
    among('client_timeout', 'upstream_timeout', 'upstream_unreachable', 'upstream_unavailable')(operation),
  graceMs: CIRCUIT_GRACE_MS,
  async inject({ failing }, awayMs, signal) {
    failing.pause();
    await inTime(awayMs, signal);
    failing.resume();
  },
};

const ROLLING_RESTART: FaultKind = {
  name: 'rolling restart',
  explains: () => false,
  graceMs: GRACE_MS,
  async inject({ replicas }) {
    for (const replica of replicas) {
      const code = await replica.stop('SIGTERM');
      if (code !== 0) throw new Error(`replica ${replica.name} ended with ${code} after SIGTERM`);
      await replica.start();
    }
  },
};

/** The replica that is killed. */
export const KILLED: Name = 'b';

const REPLICA_KILLED: FaultKind = {
  name: 'replica killed',
  // What it was doing; its port refuses at once, and the balancer goes on.
  explains: operation => operation.life?.name === KILLED && among('ECONNRESET', 'EPIPE')(operation),
  graceMs: 0,
  async inject({ replicas }, awayMs, signal) {
    const replica = replicas.find(({ name }) => name === KILLED);
    await replica?.stop('SIGKILL');
    await inTime(awayMs, signal);
    await replica?.start();
  },
};

/** What happens when, as a share of the run. One waits for the end of the one before; the rest of the run is quiet. */
const PLAN: readonly (readonly [at: number, kind: FaultKind])[] = [
  [0.1, POSTGRES_RESTART],
  [0.17, REDIS_GONE],
  [0.25, UPSTREAM_DOWN],
  [0.34, UPSTREAM_HANGS],
  [0.45, ROLLING_RESTART],
  [0.66, REPLICA_KILLED],
  [0.76, POSTGRES_CRASH],
  [0.84, POSTGRES_RESTART],
];

/** Carries the plan out; resolves when all is well again. `faults` grows as it goes. */
export async function injectFaults(
  installation: Installation,
  { seconds, clock, faults }: { seconds: number; clock: () => number; faults: Fault[] },
  { signal, say }: { signal: AbortSignal; say: (what: string) => void },
): Promise<void> {
  const awayMs = Math.min(AWAY_MS, seconds * 1_000 * AWAY_SHARE);
  for (const [at, { name, explains, graceMs, inject }] of PLAN) {
    await inTime(Math.max(0, at * seconds * 1_000 - clock()), signal);
    if (signal.aborted) return;
    const fault: Fault = { name, explains, graceMs, startMs: clock(), endMs: Infinity };
    faults.push(fault);
    say(`${name} …`);
    await inject(installation, awayMs, signal);
    fault.endMs = clock();
    say(`${name}: over after ${((fault.endMs - fault.startMs) / 1_000).toFixed(1)} s`);
  }
}

/** The last fault that explains why an operation failed, if any was there while it was under way. */
export const explanationOf = (faults: readonly Fault[], operation: Operation): Fault | undefined =>
  faults.findLast(
    fault =>
      operation.endedMs >= fault.startMs &&
      operation.dueMs <= fault.endMs + fault.graceMs &&
      fault.explains(operation),
  );

/** Whether nothing was wrong at that moment, nor just before. */
export const isQuiet = (faults: readonly Fault[], ms: number): boolean =>
  faults.every(({ startMs, endMs, graceMs }) => ms < startMs || ms > endMs + Math.max(graceMs, GRACE_MS));
