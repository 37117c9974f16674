import type { Clock } from '../../platform/clock.ts';
import type { Database } from '../../platform/database/database.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { Metrics } from '../metrics.ts';
import { withoutSpan } from '../../platform/telemetry/tracing.ts';
import { raceAbort } from '../../platform/race-abort.ts';
import type { Catalogue, OnProgress } from '../catalogue/catalogue.ts';
import { isAlive, type HealthState } from '../catalogue/health.ts';
import type { Server } from '../catalogue/entry.ts';
import type { Guard } from '../../platform/outbound/guard.ts';
import { byHost } from './by-host.ts';
import type { Verdict } from './classify.ts';
import { FoundTools } from './found-tools.ts';
import type { HealthBoard } from './health-board.ts';
import { after, isDeadForLong, isDoubtedForLong } from './ledger.ts';
import { readState, writeState } from './probing-state.ts';
import { Round, type Failing } from './round.ts';
import { Tried } from './tried.ts';
import { Visits, type Visit } from './visits.ts';

/** Servers visited at the same time, each of another host. */
const AT_ONCE = 4;
/** Visits without an answer in time, in a row, after which a whole round leaves the rest of a host to the next one. */
const MAX_TIMEOUTS = 3;
/** How long the tools that were found may take after the last visit. */
const TOOLS_MS = 120_000;
/** Failing servers that a report names. */
const MAX_NAMED = 1_000;

/** A server that has become inactive since it is dead for too long, or (without a time) active again. */
export interface Turned {
  readonly id: string;
  /** RFC 3339. */
  readonly deadSince?: string;
}

export interface RoundsParts {
  readonly catalogue: Catalogue;
  readonly board: HealthBoard;
  readonly db: Database;
  readonly log: Log;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly guard: Guard;
  /** Told in the transaction in which it happens. */
  readonly onTurned: (tx: Database, turned: Turned) => Promise<void>;
}

export type Counts = Readonly<Record<Verdict, number>>;

export interface ProbeReport extends Counts {
  readonly visited: number;
  readonly deactivated: number;
  readonly reactivated: number;
  /** By id; some of them where there are very many. */
  readonly failing: readonly { readonly id: string; readonly status: HealthState; readonly reason: string }[];
  /** Why nothing was recorded as worse, if so. */
  readonly doubted?: string;
}

export interface Rounding {
  readonly onProgress?: OnProgress | undefined;
  readonly onFound?: ((counts: Counts) => void) | undefined;
  readonly signal: AbortSignal;
  readonly pauseMs: number;
  /** Of all servers that are due, not of some that somebody has named. */
  readonly isWhole: boolean;
  /** See `Round`. */
  readonly aliveElsewhere: readonly Server[];
}

export const DOUBTED =
  'most hosts that were alive, or never visited, failed in one round, which is rather a fault of the own network; nothing was recorded as worse';

/** Visits servers, and notes what that says of them. */
export class Rounds {
  readonly #parts: RoundsParts;

  constructor(parts: RoundsParts) {
    this.#parts = parts;
  }

  async round(servers: readonly Server[], rounding: Rounding): Promise<ProbeReport> {
    const { board, catalogue, clock, db, log } = this.#parts;
    const startedAtMs = clock.now();
    const tried = await Tried.load(db, catalogue);
    const round = new Round(board, clock, rounding.aliveElsewhere);
    const reactivated = await this.#visitAll(servers, { ...rounding, round, tried });
    const isDoubted = await this.#isDoubted(round, rounding, startedAtMs);
    const deactivated = isDoubted ? 0 : await this.#believe(round.failing, tried, rounding.signal);
    if (isDoubted) log.warn(round.counts, `probing: ${DOUBTED}`);
    const done = { visited: round.visited, ...round.counts, deactivated, reactivated };
    log.info(done, 'servers probed');
    const failing = round.failing.map(({ server: { id }, state, reason }) => ({ id, status: state, reason }));
    return {
      ...done,
      failing: failing.toSorted((a, b) => (a.id < b.id ? -1 : 1)).slice(0, MAX_NAMED),
      ...(isDoubted ? { doubted: DOUBTED } : {}),
    };
  }

  /** Counts the rounds in doubt, also over restarts: what they say for long is believed. */
  async #isDoubted(round: Round, { isWhole }: Rounding, startedAtMs: number): Promise<boolean> {
    const { db } = this.#parts;
    const { doubts: stored, ...state } = await readState(db);
    // Of a clock that was ahead once, nothing is known.
    const doubts = stored && stored.sinceMs <= startedAtMs ? stored : undefined;
    if (!round.isOwnOutage) {
      if (isWhole && stored) await writeState(db, state);
      return false;
    }
    const isBelieved = doubts !== undefined && isDoubtedForLong(doubts, startedAtMs);
    const { count, sinceMs } = doubts ?? { count: 0, sinceMs: startedAtMs };
    await writeState(db, isBelieved ? state : { ...state, doubts: { count: count + 1, sinceMs } });
    return !isBelieved;
  }

  /** Resolves to how many servers have become active again. */
  async #visitAll(
    servers: readonly Server[],
    { round, tried, signal, pauseMs, isWhole, onProgress, onFound }: Rounding & Kept,
  ): Promise<number> {
    const { board, clock, metrics } = this.#parts;
    const visits = new Visits(this.#parts);
    const foundTools = new FoundTools(this.#parts);
    const now = clock.now();
    const ordered = tried.inOrder(servers, server => {
      const checkedAtMs = board.of(server)?.checkedAtMs;
      return checkedAtMs !== undefined && checkedAtMs <= now ? checkedAtMs : undefined;
    });
    const maxFailures = isWhole ? MAX_TIMEOUTS : Infinity;
    const isFirst = (server: Server) => isAlive(board.of(server)?.state ?? 'unreachable');
    const pace = { atOnce: AT_ONCE, pauseMs, maxFailures, isFirst, signal };
    let reactivated = 0;
    let isStopped = true;
    try {
      await byHost(ordered, pace, async server => {
        const visit = await withoutSpan(() => visits.visit(server, signal));
        metrics.events.probed(visit.verdict);
        if (round.add(server, visit)) tried.forget(server);
        else tried.add(server);
        if (round.isToBeWritten) await this.#attempt(round.write(), server);
        if (tried.isToBeWritten) await this.#attempt(tried.write(), server);
        foundTools.offer(server, visit.tools ?? []);
        // It may wait for a long write, such as an import: that must not hold up a stop.
        const comesBack = this.#attempt(this.#comesBack(server, visit), server);
        if (await raceAbort(comesBack, signal)) reactivated++;
        onFound?.(round.counts);
        onProgress?.({ done: round.visited, of: servers.length });
        return visit.timedOut !== true;
      });
      isStopped = false;
    } finally {
      const late = AbortSignal.timeout(TOOLS_MS);
      await foundTools.settle(isStopped ? AbortSignal.abort() : AbortSignal.any([signal, late]));
      try {
        await visits.close();
      } finally {
        await Promise.all([round.write(), tried.write()]);
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
  async #believe(failing: readonly Failing[], tried: Tried, signal: AbortSignal): Promise<number> {
    const { catalogue, board, clock, onTurned } = this.#parts;
    await board.reload();
    const found = failing.flatMap(({ server, atMs, ...visit }) => {
      const { id: serverId, remoteUrl, unanswered } = server;
      const known = catalogue.get(serverId);
      if (known?.remoteUrl !== remoteUrl || known.unanswered !== unanswered) return [];
      return { serverId, remoteUrl, health: after(board.of(server), visit, atMs) };
    });
    const written = await board.write(found);
    for (const { server } of failing) tried.forget(server);
    await tried.write();
    let deactivated = 0;
    for (const { serverId: id, remoteUrl, health } of written) {
      signal.throwIfAborted();
      const { deadSinceMs } = health;
      const isToEnd = deadSinceMs !== undefined && isDeadForLong(deadSinceMs, clock.now());
      if (!isToEnd || !catalogue.get(id)?.active) continue;
      const turned = { id, deadSince: new Date(deadSinceMs).toISOString() };
      const turning = catalogue.setUnanswered({ id, remoteUrl }, true, tx => onTurned(tx, turned));
      if (await raceAbort(turning, signal)) deactivated++;
    }
    return deactivated;
  }

  /** Makes a server active again that had become inactive since it did not answer, and answers now. */
  async #comesBack(server: Server, { verdict }: Visit): Promise<boolean> {
    if (!server.unanswered || verdict === 'no_verdict' || !isAlive(verdict)) return false;
    const { catalogue, onTurned } = this.#parts;
    return catalogue.setUnanswered(server, false, tx => onTurned(tx, { id: server.id }));
  }
}

interface Kept {
  readonly round: Round;
  readonly tried: Tried;
}
