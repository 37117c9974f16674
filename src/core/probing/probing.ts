import { SwitchboardError } from '../../errors.ts';
import type { Clock } from '../../infra/clock.ts';
import type { Database, OpenDatabase } from '../../infra/database.ts';
import type { Log } from '../../infra/log.ts';
import type { Metrics } from '../../infra/metrics.ts';
import type { Catalogue, OnProgress } from '../catalogue/catalogue.ts';
import { isAlive, type Health, type HealthState } from '../catalogue/health.ts';
import type { Server } from '../catalogue/entry.ts';
import type { Guard } from '../outbound/guard.ts';
import type { ProxyLimits } from '../proxy/limits.ts';
import { LOCKS, Turns } from '../turns.ts';
import { byHost } from './by-host.ts';
import type { Verdict } from './classify.ts';
import type { HealthBoard } from './health-board.ts';
import { isDeadForLong } from './ledger.ts';
import { readProbedAt, writeProbedAt } from './probing-state.ts';
import { Round, type Failing } from './round.ts';
import { Visits, type Visit } from './visits.ts';

/** Servers visited at the same time, each of another host. */
const AT_ONCE = 4;
/** In a round by schedule: no burst, and four servers a second at most. */
const PAUSE_MS = 1_000;
/** A server that probing has made inactive is not visited again within about a day. */
const INACTIVE_EVERY_MS = 86_400_000;
/** Failing servers that a report names. */
const MAX_NAMED = 1_000;

/** A server that has become inactive since it is dead for too long, or (without a time) active again. */
export interface Turned {
  readonly id: string;
  /** RFC 3339. */
  readonly deadSince?: string;
}

interface ProbingParts {
  readonly catalogue: Catalogue;
  readonly board: HealthBoard;
  readonly db: Database;
  readonly hold: OpenDatabase['hold'];
  readonly log: Log;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly guard: Guard;
  /** Told in the transaction in which it happens. */
  readonly onTurned: (tx: Database, turned: Turned) => Promise<void>;
  readonly limits?: Partial<ProxyLimits> | undefined;
}

export interface ProbeOptions {
  /** Absent: all that are active, or inactive since they do not answer. */
  readonly ids?: readonly string[] | undefined;
  readonly onProgress?: OnProgress;
  /** Hears, once, that another round is under way, here or in another process, which is waited for. */
  readonly onWait?: () => void;
  /** Ends it. What was found alive until then is kept. */
  readonly signal?: AbortSignal;
}

export interface ProbeReport extends Readonly<Record<Verdict, number>> {
  readonly visited: number;
  readonly deactivated: number;
  readonly reactivated: number;
  /** By id; some of them where there are very many. */
  readonly failing: readonly { readonly id: string; readonly status: HealthState; readonly reason: string }[];
  /** Why nothing was recorded as worse, if so. */
  readonly doubted?: string;
}

/** One round at a time, of all processes on the database. */
export class Probing {
  readonly #parts: ProbingParts;
  readonly #closing = new AbortController();
  readonly #turns: Turns;
  #running: Promise<unknown> = Promise.resolve();
  #doubted: string | undefined;

  constructor(parts: ProbingParts) {
    this.#parts = parts;
    this.#turns = new Turns(parts.hold, LOCKS.probing);
    parts.metrics.watch('switchboard_servers', () => this.#standing());
    parts.metrics.watchDegraded('probing', () => this.degraded !== undefined);
  }

  /** Ends what is under way; what it has found alive is kept. */
  async close(): Promise<void> {
    this.#closing.abort(new SwitchboardError('unavailable', 'Switchboard is stopping.'));
    await this.#running;
  }

  /** What the last round here says of our own network; undefined: nothing bad. */
  get degraded(): string | undefined {
    return this.#doubted;
  }

  /** Undefined: it has not been visited at its present address. */
  healthOf(server: Server): Health | undefined {
    return this.#parts.board.of(server);
  }

  /** Brings in what others have written of the servers' health. */
  catchUp(): Promise<void> {
    return this.#parts.board.catchUp();
  }

  /** @throws SwitchboardError `server_not_found`, `server_inactive` for an id that is not to be visited */
  probe({ ids, onWait = () => {}, onProgress, signal }: ProbeOptions = {}): Promise<ProbeReport> {
    const ended = AbortSignal.any([this.#closing.signal, ...(signal ? [signal] : [])]);
    return this.#settling(
      this.#turns.take(ended, onWait, held => {
        const servers = ids ? this.#named(ids) : [...this.#parts.catalogue.standing()];
        return this.#round(servers, { signal: held, pauseMs: 0, onProgress });
      }),
    );
  }

  /**
   * A round over those that have not been visited for about `everyMs`, unless another process is at one, or there has been one since
   * then: undefined.
   * @param sinceMs on the clock
   */
  probeUnlessProbed(sinceMs: number, everyMs: number): Promise<ProbeReport | undefined> {
    const { db, clock } = this.#parts;
    return this.#settling(
      this.#turns.takeIfFree(this.#closing.signal, async signal => {
        if (((await this.probedAtMs()) ?? -Infinity) > sinceMs) {
          this.#doubted = undefined;
          return undefined;
        }
        const startedAtMs = clock.now();
        const servers = this.#due(everyMs);
        const report = await this.#round(servers, { signal, pauseMs: PAUSE_MS });
        if (report.doubted === undefined) await writeProbedAt(db, startedAtMs);
        return report;
      }),
    );
  }

  /** When the last whole round by schedule began, of any process. */
  probedAtMs(): Promise<number | undefined> {
    return readProbedAt(this.#parts.db);
  }

  #settling<T>(work: Promise<T>): Promise<T> {
    this.#running = Promise.allSettled([this.#running, work]);
    return work;
  }

  #named(ids: readonly string[]): Server[] {
    const { catalogue } = this.#parts;
    return [...new Set(ids)].map(id => {
      const server = catalogue.get(id);
      return server?.unanswered ? server : catalogue.require(id);
    });
  }

  #due(everyMs: number): Server[] {
    const { catalogue, board, clock } = this.#parts;
    const now = clock.now();
    return [...catalogue.standing()].filter(server => {
      // Visits take their time, so that the rhythm is not met to the minute.
      const atLeastMs = (server.unanswered ? Math.max(everyMs, INACTIVE_EVERY_MS) : everyMs) / 2;
      return now - (board.of(server)?.checkedAtMs ?? -Infinity) >= atLeastMs;
    });
  }

  async #round(
    servers: readonly Server[],
    {
      signal,
      pauseMs,
      onProgress,
    }: { signal: AbortSignal; pauseMs: number; onProgress?: OnProgress | undefined },
  ): Promise<ProbeReport> {
    const { board, clock, log, metrics } = this.#parts;
    await board.catchUp();
    const visits = new Visits(this.#parts);
    const round = new Round(board, clock);
    let reactivated = 0;
    let visited = 0;
    try {
      await byHost(servers, { atOnce: AT_ONCE, pauseMs, signal }, async server => {
        const visit = await visits.visit(server, signal);
        metrics.events.probed(visit.verdict);
        await round.add(server, visit);
        if (await this.#comesBack(server, visit)) reactivated++;
        await this.#takeTools(server, visit);
        onProgress?.({ done: ++visited, of: servers.length });
      });
    } finally {
      await visits.close();
      await round.write();
    }
    this.#doubted = round.isOwnOutage ? DOUBTED : undefined;
    const deactivated = this.#doubted === undefined ? await this.#believe(round.failing, signal) : 0;
    if (this.#doubted !== undefined) log.warn({ visited, ...round.counts }, this.#doubted);
    const done = { visited, ...round.counts, deactivated, reactivated };
    log.info(done, 'servers probed');
    return {
      ...done,
      failing: round.failing
        .map(({ server: { id }, found, reason }) => ({ id, status: found.health.state, reason }))
        .toSorted((a, b) => (a.id < b.id ? -1 : 1))
        .slice(0, MAX_NAMED),
      ...(this.#doubted === undefined ? {} : { doubted: this.#doubted }),
    };
  }

  /** Notes what failed. Resolves to how many servers have become inactive for it, each in a transaction of its own. */
  async #believe(failing: readonly Failing[], signal: AbortSignal): Promise<number> {
    const { catalogue, board, clock, onTurned } = this.#parts;
    await board.write(failing.map(({ found }) => found));
    let deactivated = 0;
    for (const { server, found } of failing) {
      signal.throwIfAborted();
      const { deadSinceMs } = found.health;
      if (deadSinceMs === undefined || !server.active || !isDeadForLong(deadSinceMs, clock.now())) continue;
      const turned = { id: server.id, deadSince: new Date(deadSinceMs).toISOString() };
      if (await catalogue.setUnanswered(server, true, tx => onTurned(tx, turned))) deactivated++;
    }
    return deactivated;
  }

  /** Makes a server active again that had become inactive since it did not answer, and answers now. */
  async #comesBack(server: Server, { verdict }: Visit): Promise<boolean> {
    if (!server.unanswered || verdict === 'no_verdict' || !isAlive(verdict)) return false;
    const { catalogue, onTurned } = this.#parts;
    return catalogue.setUnanswered(server, false, tx => onTurned(tx, { id: server.id }));
  }

  async #takeTools(server: Server, { tools = [] }: Visit): Promise<void> {
    if (tools.length === 0) return;
    const { catalogue, clock, log } = this.#parts;
    try {
      await catalogue.refreshTools(server, tools, clock.now());
    } catch (error) {
      log.warn({ err: error, serverId: server.id }, 'live tools not brought into the catalogue');
    }
  }

  #standing(): Record<HealthState | 'unvisited' | 'inactive', number> {
    const standing = { ok: 0, needs_sign_in: 0, not_mcp: 0, unreachable: 0, unvisited: 0, inactive: 0 };
    for (const server of this.#parts.catalogue.standing())
      standing[server.unanswered ? 'inactive' : (this.healthOf(server)?.state ?? 'unvisited')]++;
    return standing;
  }
}

const DOUBTED =
  'probing: most servers that were alive failed in one round, which is rather a fault of the own network; nothing was recorded as worse';
