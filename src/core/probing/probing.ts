import { SwitchboardError } from '../../errors.ts';
import type { Clock } from '../../infra/clock.ts';
import type { Database, OpenDatabase } from '../../infra/database.ts';
import type { Log } from '../../infra/log.ts';
import type { Metrics } from '../../infra/metrics.ts';
import { withoutSpan } from '../../infra/tracing.ts';
import { unlessAborted } from '../../infra/unless-aborted.ts';
import type { Catalogue, OnProgress } from '../catalogue/catalogue.ts';
import { isAlive, type Health, type HealthState } from '../catalogue/health.ts';
import type { Server } from '../catalogue/entry.ts';
import type { Guard } from '../outbound/guard.ts';
import { LOCKS, Turns } from '../turns.ts';
import { byHost } from './by-host.ts';
import type { Verdict } from './classify.ts';
import type { HealthBoard } from './health-board.ts';
import { after, isDeadForLong } from './ledger.ts';
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
  /** Tests that would wait. */
  readonly pauseMs?: number;
  /** Told in the transaction in which it happens. */
  readonly onTurned: (tx: Database, turned: Turned) => Promise<void>;
}

export interface ProbeOptions {
  /** Absent: all that are active, or inactive since they do not answer. */
  readonly ids?: readonly string[] | undefined;
  readonly onProgress?: OnProgress | undefined;
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
  /** When a round began that says rather more of our own network than of servers. */
  #doubtedAtMs: number | undefined;

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
    return this.#doubtedAtMs === undefined ? undefined : `probing: ${DOUBTED}`;
  }

  /** Undefined: it has not been visited at its present address. */
  healthOf(server: Server): Health | undefined {
    return this.#parts.board.of(server);
  }

  /** @throws SwitchboardError `server_not_found`, `server_inactive` for an id that is not to be visited */
  probe({ ids, onWait = () => {}, onProgress, signal }: ProbeOptions = {}): Promise<ProbeReport> {
    const ended = AbortSignal.any([this.#closing.signal, ...(signal ? [signal] : [])]);
    return this.#settling(
      this.#turns.take(ended, onWait, async held => {
        const { board, catalogue } = this.#parts;
        await board.reload();
        const servers = ids ? this.#named(ids) : [...catalogue.standing()];
        const rounding = { signal: held, pauseMs: 0, onProgress, isWhole: !ids, aliveElsewhere: 0 };
        return this.#round(servers, rounding);
      }),
    );
  }

  /**
   * A round over those that have not been visited for about `everyMs`, unless another process is at one, or there has been one since
   * then: undefined.
   * @param sinceMs on the clock
   */
  probeUnlessProbed(sinceMs: number, everyMs: number): Promise<ProbeReport | undefined> {
    const { board, db, clock, pauseMs = PAUSE_MS } = this.#parts;
    return this.#settling(
      this.#turns.takeIfFree(this.#closing.signal, async signal => {
        if (((await this.probedAtMs()) ?? -Infinity) > sinceMs) return undefined;
        const startedAtMs = clock.now();
        await board.reload();
        const { due, aliveElsewhere } = this.#due(everyMs);
        const rounding = { signal, pauseMs, isWhole: true, aliveElsewhere };
        const report = await this.#round(due, rounding);
        if (report.doubted === undefined) await writeProbedAt(db, startedAtMs);
        return report;
      }),
    );
  }

  /** When the last whole round by schedule began, of any process; one that went well takes back a doubt from before it. */
  async probedAtMs(): Promise<number | undefined> {
    const probedAtMs = await readProbedAt(this.#parts.db);
    if (probedAtMs !== undefined && probedAtMs > (this.#doubtedAtMs ?? Infinity))
      this.#doubtedAtMs = undefined;
    return probedAtMs;
  }

  #settling<T>(work: Promise<T>): Promise<T> {
    // Results that hang on one another would all be kept.
    this.#running = Promise.allSettled([this.#running, work]).then(() => {});
    return work;
  }

  #named(ids: readonly string[]): Server[] {
    const { catalogue } = this.#parts;
    return [...new Set(ids)].map(id => {
      const server = catalogue.get(id);
      return server?.unanswered ? server : catalogue.require(id);
    });
  }

  /** Those that have not been visited for long enough, and how many of the others were alive within `everyMs`. */
  #due(everyMs: number): { due: Server[]; aliveElsewhere: number } {
    const { catalogue, board, clock } = this.#parts;
    const now = clock.now();
    const due: Server[] = [];
    let aliveElsewhere = 0;
    for (const server of catalogue.standing()) {
      const health = board.of(server);
      const passedMs = now - (health?.checkedAtMs ?? -Infinity);
      const rhythmMs = server.unanswered ? Math.max(everyMs, INACTIVE_EVERY_MS) : everyMs;
      // Visits take their time, so that the rhythm is not met to the minute.
      if (passedMs >= rhythmMs - everyMs / 2) due.push(server);
      else if (health && isAlive(health.state) && passedMs <= everyMs) aliveElsewhere++;
    }
    return { due, aliveElsewhere };
  }

  async #round(servers: readonly Server[], rounding: Rounding): Promise<ProbeReport> {
    const { board, clock, log } = this.#parts;
    const startedAtMs = clock.now();
    const round = new Round(board, clock, rounding.aliveElsewhere);
    const reactivated = await this.#visitAll(servers, round, rounding);
    const isDoubted = round.isOwnOutage;
    // Few servers, which somebody has named, say nothing of the network while all is well with them.
    if (isDoubted || rounding.isWhole) this.#doubtedAtMs = isDoubted ? startedAtMs : undefined;
    const deactivated = isDoubted ? 0 : await this.#believe(round.failing, rounding.signal);
    if (isDoubted) log.warn(round.counts, `probing: ${DOUBTED}`);
    const done = { visited: servers.length, ...round.counts, deactivated, reactivated };
    log.info(done, 'servers probed');
    const failing = round.failing.map(({ server: { id }, state, reason }) => ({ id, status: state, reason }));
    return {
      ...done,
      failing: failing.toSorted((a, b) => (a.id < b.id ? -1 : 1)).slice(0, MAX_NAMED),
      ...(isDoubted ? { doubted: DOUBTED } : {}),
    };
  }

  /** Resolves to how many servers have become active again. */
  async #visitAll(
    servers: readonly Server[],
    round: Round,
    { signal, pauseMs, onProgress }: Rounding,
  ): Promise<number> {
    const { metrics } = this.#parts;
    const visits = new Visits(this.#parts);
    let reactivated = 0;
    let done = 0;
    try {
      await byHost(servers, { atOnce: AT_ONCE, pauseMs, signal }, async server => {
        const visit = await withoutSpan(() => visits.visit(server, signal));
        metrics.events.probed(visit.verdict);
        round.add(server, visit);
        if (round.isToBeWritten) await this.#attempt(round.write(), server);
        // These may wait for a long write, such as an import: that must not hold up a stop.
        const comesBack = this.#attempt(this.#comesBack(server, visit), server);
        if (await unlessAborted(comesBack, signal)) reactivated++;
        await unlessAborted(this.#attempt(this.#takeTools(server, visit), server), signal);
        onProgress?.({ done: ++done, of: servers.length });
      });
    } finally {
      try {
        await visits.close();
      } finally {
        await round.write();
      }
    }
    return reactivated;
  }

  /** What fails for a moment must not end a round. Undefined: it failed. */
  async #attempt<T>(writing: Promise<T>, { id }: Server): Promise<T | undefined> {
    try {
      return await writing;
    } catch (error) {
      this.#parts.log.warn({ err: error, serverId: id }, 'what a visit found could not be stored');
      return undefined;
    }
  }

  /**
   * Notes what failed, but for what has moved or been imported again since its visit. Resolves to how many servers have become
   * inactive for it, each in a transaction of its own.
   */
  async #believe(failing: readonly Failing[], signal: AbortSignal): Promise<number> {
    const { catalogue, board, clock, onTurned } = this.#parts;
    await board.reload();
    const found = failing.flatMap(({ server, atMs, ...visit }) => {
      const { id: serverId, remoteUrl, unanswered } = server;
      const known = catalogue.get(serverId);
      if (known?.remoteUrl !== remoteUrl || known.unanswered !== unanswered) return [];
      return { serverId, remoteUrl, health: after(board.of(server), visit, atMs) };
    });
    let deactivated = 0;
    for (const { serverId: id, remoteUrl, health } of await board.write(found)) {
      signal.throwIfAborted();
      const { deadSinceMs } = health;
      const isToEnd = deadSinceMs !== undefined && isDeadForLong(deadSinceMs, clock.now());
      if (!isToEnd || !catalogue.get(id)?.active) continue;
      const turned = { id, deadSince: new Date(deadSinceMs).toISOString() };
      const turning = catalogue.setUnanswered({ id, remoteUrl }, true, tx => onTurned(tx, turned));
      if (await unlessAborted(turning, signal)) deactivated++;
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
    const { catalogue, clock } = this.#parts;
    // Every process would make it ready for searches again, each time.
    if (tools.length > 0) await catalogue.refreshTools(server, tools, clock.now(), { unlessSame: true });
  }

  #standing(): Record<HealthState | 'unvisited' | 'inactive', number> {
    const standing = { ok: 0, needs_sign_in: 0, not_mcp: 0, unreachable: 0, unvisited: 0, inactive: 0 };
    for (const server of this.#parts.catalogue.standing())
      standing[server.unanswered ? 'inactive' : (this.healthOf(server)?.state ?? 'unvisited')]++;
    return standing;
  }
}

interface Rounding extends Pick<ProbeOptions, 'onProgress'> {
  readonly signal: AbortSignal;
  readonly pauseMs: number;
  /** Of all servers that are due, not of some that somebody has named. */
  readonly isWhole: boolean;
  /** See `Round`. */
  readonly aliveElsewhere: number;
}

const DOUBTED =
  'most servers that were alive, or never visited, failed in one round, which is rather a fault of the own network; nothing was recorded as worse';
