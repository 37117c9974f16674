import type { AuditEntry } from '../access/audit.ts';
import { setTimeout as delay } from 'node:timers/promises';
import { SwitchboardError } from '../../errors.ts';
import { monotonicMs, raceAbort, Repeat, type Clock } from '../../platform/time.ts';
import { ClusterLock } from '../../platform/database/cluster-lock.ts';
import type { Database, OpenDatabase } from '../../platform/database/database.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { Metrics } from '../metrics.ts';
import { withoutSpan } from '../../platform/telemetry/tracing.ts';
import type { Catalogue, OnProgress } from '../catalogue/catalogue.ts';
import { isAlive, type Health, type HealthState } from '../catalogue/health.ts';
import type { ServerHead } from '../catalogue/entry.ts';
import { LOCKS } from '../locks.ts';
import { ListedTools } from '../catalogue/tools/refresh.ts';
import type { Inspection } from '../proxy/inspect.ts';
import type { McpProxy } from '../proxy/proxy.ts';
import { refusalOf } from '../proxy/upstream/failures.ts';
import {
  isDeadForLong,
  isDue,
  isOwnOutage,
  nextHealth,
  outcomeOf,
  type Check,
  type Outcome,
} from './policy.ts';
import { readSweptAt, writeSweptAt, type HealthStore, type LocatedHealth } from './store.ts';

/** Servers checked at the same time, each on a different host. */
const HOSTS_AT_ONCE = 4;
/** The pause of a scheduled sweep after each check: at most four servers per second. */
const PAUSE_MS = 1_000;
/** Consecutive timeouts after which the remaining servers of a host are skipped until the next sweep. */
const MAX_TIMEOUTS = 3;
/** How often to check whether a sweep is due. */
const LOOK_EVERY_MS = 60_000;
/** The wait after a sweep that failed or was discarded. */
const RETRY_MS = 3_600_000;
/** Successful results are stored in batches, because each write is announced to every process. */
const BATCH = 20;
/** The maximum number of failing servers in a report. */
const MAX_NAMED = 1_000;
/** How long listed tools may take to reach the catalogue after the last check. */
const TOOLS_MS = 120_000;

const OWN_OUTAGE =
  'most hosts failed in one sweep, which suggests a problem with our own network; no failures were recorded';

/** A server that was deactivated after 30 days dead, or (without a time) reactivated. */
export interface StatusChange {
  readonly id: string;
  /** RFC 3339. */
  readonly deadSince?: string;
}

/** Returns the audit entry for a server that health checks deactivated or reactivated. */
export const auditEntryOf = ({ id, deadSince }: StatusChange): AuditEntry =>
  deadSince === undefined
    ? { event: 'server_reactivated', outcome: 'ok', meta: { server: id } }
    : { event: 'server_deactivated', outcome: 'ok', meta: { server: id, dead_since: deadSince } };

type Counts = Readonly<Record<Outcome, number>>;

export interface SweepReport extends Counts {
  readonly visited: number;
  readonly deactivated: number;
  readonly reactivated: number;
  /** Sorted by id, and limited to 1,000. */
  readonly failing: readonly { readonly id: string; readonly status: HealthState; readonly reason: string }[];
  /** Why no failures were recorded; absent if they were. */
  readonly doubted?: string;
}

export interface SweepOptions {
  /** Absent: every server that is active or was deactivated as dead. */
  readonly ids?: readonly string[] | undefined;
  readonly onProgress?: OnProgress | undefined;
  /** Called after each check with the counts so far. */
  readonly onFound?: ((counts: Counts) => void) | undefined;
  /** Called once if another sweep, here or in another process, has to end first. */
  readonly onWait?: () => void;
  /** Stops the sweep. Successful checks until then are recorded. */
  readonly signal?: AbortSignal;
}

type Refusal = NonNullable<ReturnType<typeof refusalOf>>;

interface HealthSweepParts {
  readonly catalogue: Catalogue;
  readonly store: HealthStore;
  readonly db: Database;
  readonly hold: OpenDatabase['hold'];
  readonly log: Log;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly inspect: McpProxy['inspect'];
  /** Learns from the 401 of a server whose access is unknown. */
  readonly onRefused?: (server: ServerHead, refusal: Refusal) => Promise<unknown>;
  /** Called in the transaction of the change. */
  readonly onStatusChange: (tx: Database, change: StatusChange) => Promise<void>;
  /** The interval between sweeps; 0: no scheduled sweeps. */
  readonly everyMs: number;
  /** Default: a second. */
  readonly pauseMs?: number;
}

interface Sweep extends Pick<SweepOptions, 'onProgress' | 'onFound'> {
  readonly servers: readonly ServerHead[];
  readonly signal: AbortSignal;
  readonly pauseMs: number;
  /** False if an operator has named the servers. */
  readonly isWhole: boolean;
}

interface Failure {
  readonly server: ServerHead;
  readonly state: HealthState;
  readonly latencyMs?: number;
  readonly atMs: number;
  readonly reason: string;
}

/**
 * Checks the health of all servers once per interval, or on request. One sweep runs at a time across all processes on the database.
 * Successes are recorded during the sweep and failures at its end, so an interrupted sweep records no failures.
 */
export class HealthSweep {
  readonly #parts: HealthSweepParts;
  readonly #closing = new AbortController();
  readonly #lock: ClusterLock;
  readonly #schedule = new Repeat(LOOK_EVERY_MS, () => this.sweepIfDue());
  #notBeforeMs = -Infinity;
  /** When the last sweep started, if it was discarded. */
  #outageAtMs: number | undefined;

  constructor(parts: HealthSweepParts) {
    this.#parts = parts;
    this.#lock = new ClusterLock(parts.hold, LOCKS.probing);
    parts.metrics.watch('switchboard_servers', () => this.serversByState());
    parts.metrics.watchDegraded('probing', () => this.degraded !== undefined);
  }

  /** Starts scheduled sweeps, unless the interval is 0. */
  start(): void {
    if (this.#parts.everyMs > 0) this.#schedule.start();
  }

  /** Stops the current sweep; successful checks until then are recorded. */
  async close(): Promise<void> {
    this.#closing.abort(new SwitchboardError('unavailable', 'Switchboard is stopping.'));
    await this.#schedule.stop();
    await this.#lock.settled();
  }

  /** Why the last sweep was discarded; undefined if it was not. */
  get degraded(): string | undefined {
    return this.#outageAtMs === undefined ? undefined : `probing: ${OWN_OUTAGE}`;
  }

  /** Returns undefined for a server that was not checked at its current address. */
  healthOf(server: ServerHead): Health | undefined {
    return this.#parts.store.of(server);
  }

  /** @throws SwitchboardError `server_not_found` or `server_inactive` for an id that cannot be checked */
  sweep({ ids, onWait = () => {}, signal, ...hooks }: SweepOptions = {}): Promise<SweepReport> {
    const ended = AbortSignal.any([this.#closing.signal, ...(signal ? [signal] : [])]);
    return this.#lock.run(ended, onWait, held => {
      const servers = ids ? this.#named(ids) : [...this.#parts.catalogue.listed()];
      return this.#sweep({ ...hooks, servers, signal: held, pauseMs: 0, isWhole: !ids });
    });
  }

  /**
   * Sweeps if the interval has passed since the last sweep of any process. Resolves when it has ended, to undefined if there was
   * nothing to do or it failed.
   */
  async sweepIfDue(): Promise<SweepReport | undefined> {
    const { everyMs, clock, log, pauseMs = PAUSE_MS, catalogue, store, db } = this.#parts;
    const { signal: closing } = this.#closing;
    if (closing.aborted || monotonicMs(clock) < this.#notBeforeMs) return undefined;
    try {
      if (!(await this.#isDue())) return undefined;
      const report = await this.#lock.runIfFree(closing, async signal => {
        // Another process may have finished a sweep in the meantime.
        if (!(await this.#isDue())) return undefined;
        await store.reload();
        const startedAtMs = clock.now();
        const servers = [...catalogue.listed()].filter(server =>
          isDue(server, store.of(server), everyMs, startedAtMs),
        );
        const done = await this.#sweep({ servers, signal, pauseMs, isWhole: true });
        if (done.doubted === undefined) await writeSweptAt(db, startedAtMs);
        return done;
      });
      if (report?.doubted !== undefined) this.#retryLater();
      return report;
    } catch (error) {
      this.#retryLater();
      if (!closing.aborted) log.warn({ err: error }, 'health check failed');
      return undefined;
    }
  }

  #retryLater(): void {
    this.#notBeforeMs = monotonicMs(this.#parts.clock) + Math.min(this.#parts.everyMs, RETRY_MS);
  }

  async #isDue(): Promise<boolean> {
    const { db, clock, everyMs } = this.#parts;
    const sweptAtMs = (await readSweptAt(db)) ?? -Infinity;
    const passedMs = clock.now() - sweptAtMs;
    // A later sweep of another process succeeded.
    if (passedMs >= 0 && sweptAtMs > (this.#outageAtMs ?? Infinity)) this.#outageAtMs = undefined;
    return passedMs < 0 || passedMs >= everyMs;
  }

  #named(ids: readonly string[]): ServerHead[] {
    const { catalogue } = this.#parts;
    return [...new Set(ids)].map(id => {
      const server = catalogue.get(id);
      return server?.unreachable ? server : catalogue.require(id);
    });
  }

  async #sweep(sweep: Sweep): Promise<SweepReport> {
    const { log, clock, store } = this.#parts;
    const startedAtMs = clock.now();
    await store.reload();
    const { counts, visited, checks, failures, reactivated } = await this.#checkAll(sweep);
    const isOutage = isOwnOutage(
      sweep.isWhole ? [...checks, ...this.#aliveElsewhere(sweep.servers)] : checks,
    );
    if (isOutage) log.warn(counts, `probing: ${OWN_OUTAGE}`);
    // A few named servers say nothing about the network if they are healthy.
    if (isOutage || sweep.isWhole) this.#outageAtMs = isOutage ? startedAtMs : undefined;
    const deactivated = isOutage ? 0 : await this.#record(failures, sweep.signal);
    const done = { visited, ...counts, deactivated, reactivated };
    log.info(done, 'servers probed');
    const failing = failures.map(({ server: { id }, state, reason }) => ({ id, status: state, reason }));
    return {
      ...done,
      failing: failing.toSorted((a, b) => (a.id < b.id ? -1 : 1)).slice(0, MAX_NAMED),
      ...(isOutage ? { doubted: OWN_OUTAGE } : {}),
    };
  }

  /** Returns the servers that a sweep skips because they were alive recently: most of them, after an interrupted sweep. */
  #aliveElsewhere(swept: readonly ServerHead[]): Check[] {
    const { catalogue, store, clock, everyMs } = this.#parts;
    const ids = new Set(swept.map(({ id }) => id));
    const isAliveLately = (health: Health | undefined) =>
      health !== undefined && isAlive(health.state) && clock.now() - health.checkedAtMs < everyMs;
    return [...catalogue.listed()]
      .filter(server => !ids.has(server.id) && isAliveLately(store.of(server)))
      .map(server => ({ host: hostOf(server), wasAlive: true, isAlive: true }));
  }

  /** Checks the servers and records those that are alive. */
  async #checkAll({ servers, signal, pauseMs, isWhole, onProgress, onFound }: Sweep): Promise<Findings> {
    const { store, metrics, inspect } = this.#parts;
    const findings = new Findings(this.#parts);
    const tools = new ListedTools(this.#parts);
    const check = async (server: ServerHead) => {
      const inspection = await withoutSpan(() => inspect(server, signal));
      const outcome = outcomeOf(server, inspection);
      metrics.events.probed(outcome);
      findings.add(server, outcome, inspection);
      if (findings.isBatchFull) await this.#attempt(server, findings.save());
      // The catalogue may be busy with a long import, which must not delay shutdown.
      const reactivating = this.#attempt(server, this.#reactivate(server, outcome));
      if (await raceAbort(reactivating, signal)) findings.reactivated++;
      await raceAbort(this.#attempt(server, this.#learn(server, inspection)), signal);
      tools.offer(server, inspection.tools ?? []);
      onFound?.(findings.counts);
      onProgress?.({ done: findings.visited, of: servers.length });
      return inspection.error?.code !== 'upstream_timeout';
    };
    const checkedAtMs = (server: ServerHead) => store.of(server)?.checkedAtMs ?? 0;
    const oldestFirst = servers.toSorted((a, b) => checkedAtMs(a) - checkedAtMs(b));
    const maxFailures = isWhole ? MAX_TIMEOUTS : Infinity;
    let isStopped = true;
    try {
      await byHost(oldestFirst, { pauseMs, maxFailures, signal }, check);
      isStopped = false;
    } finally {
      const timeUp = AbortSignal.timeout(TOOLS_MS);
      await tools.finish(isStopped ? AbortSignal.abort() : AbortSignal.any([signal, timeUp]));
      await findings.save();
    }
    return findings;
  }

  /** Resolves to undefined if storing failed: a temporary database failure must not end a sweep. */
  async #attempt<T>({ id }: ServerHead, writing: Promise<T>): Promise<T | undefined> {
    try {
      return await writing;
    } catch (error) {
      this.#parts.log.warn({ err: error, serverId: id }, 'failed to store a health check result');
      return undefined;
    }
  }

  async #learn(server: ServerHead, { error }: Inspection): Promise<void> {
    const { catalogue, onRefused } = this.#parts;
    const refusal = refusalOf(error);
    if (refusal?.status === 401 && catalogue.hasUnknownAccess(server.id)) await onRefused?.(server, refusal);
  }

  async #reactivate(server: ServerHead, outcome: Outcome): Promise<boolean> {
    if (!server.unreachable || outcome === 'no_verdict' || !isAlive(outcome)) return false;
    const { catalogue, onStatusChange } = this.#parts;
    return catalogue.setUnreachable(server, false, tx => onStatusChange(tx, { id: server.id }));
  }

  /**
   * Records failures, except of servers that have moved or were imported since their check. Resolves to the number of servers
   * deactivated as a result, each in its own transaction.
   */
  async #record(failures: readonly Failure[], signal: AbortSignal): Promise<number> {
    const { catalogue, store, clock, onStatusChange } = this.#parts;
    await store.reload();
    const found = failures.flatMap(({ server, atMs, ...check }) => {
      const { id: serverId, remoteUrl, unreachable } = server;
      const known = catalogue.get(serverId);
      if (known?.remoteUrl !== remoteUrl || known.unreachable !== unreachable) return [];
      return { serverId, remoteUrl, health: nextHealth(store.of(server), check, atMs) };
    });
    let deactivated = 0;
    for (const { serverId: id, remoteUrl, health } of await store.save(found)) {
      signal.throwIfAborted();
      const { deadSinceMs } = health;
      if (deadSinceMs === undefined || !isDeadForLong(deadSinceMs, clock.now())) continue;
      const change = { id, deadSince: new Date(deadSinceMs).toISOString() };
      const deactivating = catalogue.setUnreachable({ id, remoteUrl }, true, tx =>
        onStatusChange(tx, change),
      );
      if (await raceAbort(deactivating, signal)) deactivated++;
    }
    return deactivated;
  }

  /** Counts the active servers by the result of their last check, and those that were deactivated as unreachable. */
  serversByState(): Record<HealthState | 'unvisited' | 'inactive', number> {
    const servers = { ok: 0, needs_sign_in: 0, not_mcp: 0, unreachable: 0, unvisited: 0, inactive: 0 };
    for (const server of this.#parts.catalogue.listed())
      servers[server.unreachable ? 'inactive' : (this.healthOf(server)?.state ?? 'unvisited')]++;
    return servers;
  }
}

/** Results of one sweep. Servers that are alive are recorded during the sweep. */
class Findings {
  readonly #parts: Pick<HealthSweepParts, 'store' | 'clock'>;
  readonly #alive: LocatedHealth[] = [];
  readonly counts: Record<Outcome, number> = {
    ok: 0,
    needs_sign_in: 0,
    not_mcp: 0,
    unreachable: 0,
    no_verdict: 0,
  };
  readonly checks: Check[] = [];
  readonly failures: Failure[] = [];
  visited = 0;
  reactivated = 0;

  constructor(parts: Pick<HealthSweepParts, 'store' | 'clock'>) {
    this.#parts = parts;
  }

  add(server: ServerHead, outcome: Outcome, { latencyMs, error }: Inspection): void {
    this.visited++;
    this.counts[outcome]++;
    if (outcome === 'no_verdict') return;
    const { store, clock } = this.#parts;
    const { id: serverId, remoteUrl } = server;
    const previous = store.of(server);
    const check = { state: outcome, ...(outcome === 'unreachable' ? {} : { latencyMs }) };
    const wasAlive = previous !== undefined && isAlive(previous.state);
    this.checks.push({ host: hostOf(server), wasAlive, isAlive: isAlive(outcome) });
    if (isAlive(outcome))
      this.#alive.push({ serverId, remoteUrl, health: nextHealth(previous, check, clock.now()) });
    else this.failures.push({ server, ...check, atMs: clock.now(), reason: error?.detail ?? '' });
  }

  get isBatchFull(): boolean {
    return this.#alive.length >= BATCH;
  }

  /** Records the servers that are alive; if the write fails, they are recorded with the next ones. */
  async save(): Promise<void> {
    const batch = this.#alive.splice(0);
    try {
      await this.#parts.store.save(batch);
    } catch (error) {
      this.#alive.unshift(...batch);
      throw error;
    }
  }
}

const hostOf = ({ remoteUrl }: ServerHead): string => new URL(remoteUrl).host;

interface Pace {
  readonly pauseMs: number;
  /** Consecutive failures after which the rest of a host is skipped. */
  readonly maxFailures: number;
  readonly signal: AbortSignal;
}

/**
 * Does the work for each server: four hosts at a time, one server of a host at a time, hosts in round-robin order.
 * @param work resolves to false if it failed
 * @throws the signal's reason or the work's error, once nothing is running any more
 */
async function byHost(
  servers: readonly ServerHead[],
  { pauseMs, maxFailures, signal }: Pace,
  work: (server: ServerHead) => Promise<boolean>,
): Promise<void> {
  const hosts = [...Map.groupBy(servers, hostOf).values()].map(waiting => ({ waiting, failures: 0 }));
  const worker = async () => {
    for (let host = hosts.shift(); host; host = hosts.shift()) {
      const [server, ...waiting] = host.waiting;
      if (!server) continue;
      signal.throwIfAborted();
      const failures = (await work(server)) ? 0 : host.failures + 1;
      if (pauseMs > 0) await delay(pauseMs, undefined, { signal });
      if (waiting.length > 0 && failures < maxFailures) hosts.push({ waiting, failures });
    }
  };
  const workers = await Promise.allSettled(Array.from({ length: HOSTS_AT_ONCE }, worker));
  signal.throwIfAborted();
  for (const ended of workers) if (ended.status === 'rejected') throw ended.reason;
}
