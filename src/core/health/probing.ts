import { SwitchboardError } from '../../errors.ts';
import type { OpenDatabase } from '../../platform/database/database.ts';
import type { OnProgress } from '../catalogue/catalogue.ts';
import { isAlive, type Health, type HealthState } from '../catalogue/health.ts';
import type { Server } from '../catalogue/entry.ts';
import { ClusterLock } from '../../platform/database/cluster-lock.ts';
import { LOCKS } from '../locks.ts';
import { readState, writeState } from './probing-state.ts';
import { DOUBTED, Rounds, type Counts, type ProbeReport, type Rounding, type RoundsParts } from './rounds.ts';

/** In a round by schedule: no burst, and four servers a second at most. */
const PAUSE_MS = 1_000;
/** A server that probing has made inactive is not visited again within about a day. */
const INACTIVE_EVERY_MS = 86_400_000;

interface ProbingParts extends RoundsParts {
  readonly hold: OpenDatabase['hold'];
  /** Tests that would wait. */
  readonly pauseMs?: number;
}

export interface ProbeOptions {
  /** Absent: all that are active, or inactive since they do not answer. */
  readonly ids?: readonly string[] | undefined;
  readonly onProgress?: OnProgress | undefined;
  /** Hears, after each visit, what has been found until then. */
  readonly onFound?: ((counts: Counts) => void) | undefined;
  /** Hears, once, that another round is under way, here or in another process, which is waited for. */
  readonly onWait?: () => void;
  /** Ends it. What was found alive until then is kept. */
  readonly signal?: AbortSignal;
}

/** One round at a time, of all processes on the database. */
export class Probing {
  readonly #parts: ProbingParts;
  readonly #closing = new AbortController();
  readonly #lock: ClusterLock;
  readonly #rounds: Rounds;
  #running: Promise<unknown> = Promise.resolve();
  /** When a round began that says rather more of our own network than of servers. */
  #doubtedAtMs: number | undefined;

  constructor(parts: ProbingParts) {
    this.#parts = parts;
    this.#lock = new ClusterLock(parts.hold, LOCKS.probing);
    this.#rounds = new Rounds(parts);
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
  probe({ ids, onWait = () => {}, signal, ...heard }: ProbeOptions = {}): Promise<ProbeReport> {
    const ended = AbortSignal.any([this.#closing.signal, ...(signal ? [signal] : [])]);
    return this.#settling(
      this.#lock.run(ended, onWait, async held => {
        const { board, catalogue } = this.#parts;
        await board.reload();
        const servers = ids ? this.#named(ids) : [...catalogue.standing()];
        return this.#round(servers, {
          ...heard,
          signal: held,
          pauseMs: 0,
          isWhole: !ids,
          aliveElsewhere: [],
        });
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
      this.#lock.runIfFree(this.#closing.signal, async signal => {
        if (((await this.probedAtMs()) ?? -Infinity) > sinceMs) return undefined;
        const startedAtMs = clock.now();
        await board.reload();
        const { due, aliveElsewhere } = this.#due(everyMs);
        const report = await this.#round(due, { signal, pauseMs, isWhole: true, aliveElsewhere });
        if (report.doubted === undefined) await writeState(db, { probedAtMs: startedAtMs });
        return report;
      }),
    );
  }

  /**
   * When the last whole round by schedule began, of any process; one that went well takes back a doubt from before it. Undefined, too,
   * where that is yet to come: the clock was ahead then.
   */
  async probedAtMs(): Promise<number | undefined> {
    const { probedAtMs } = await readState(this.#parts.db);
    if (probedAtMs !== undefined && probedAtMs > this.#parts.clock.now()) return undefined;
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

  /** Those that have not been visited for long enough, and which of the others were alive within `everyMs`. */
  #due(everyMs: number): { due: Server[]; aliveElsewhere: Server[] } {
    const { catalogue, board, clock } = this.#parts;
    const now = clock.now();
    const due: Server[] = [];
    const aliveElsewhere: Server[] = [];
    for (const server of catalogue.standing()) {
      const health = board.of(server);
      const checkedAtMs = health?.checkedAtMs ?? -Infinity;
      // Where that is yet to come, the clock was ahead: nobody knows when it was.
      const passedMs = checkedAtMs > now ? Infinity : now - checkedAtMs;
      const rhythmMs = server.unanswered ? Math.max(everyMs, INACTIVE_EVERY_MS) : everyMs;
      // Visits take their time, so that the rhythm is not met to the minute.
      if (passedMs >= rhythmMs - everyMs / 2) due.push(server);
      else if (health && isAlive(health.state) && passedMs <= everyMs) aliveElsewhere.push(server);
    }
    return { due, aliveElsewhere };
  }

  async #round(servers: readonly Server[], rounding: Rounding): Promise<ProbeReport> {
    const startedAtMs = this.#parts.clock.now();
    const report = await this.#rounds.round(servers, rounding);
    const isDoubted = report.doubted !== undefined;
    // Few servers, which somebody has named, say nothing of the network while all is well with them.
    if (isDoubted || rounding.isWhole) this.#doubtedAtMs = isDoubted ? startedAtMs : undefined;
    return report;
  }

  #standing(): Record<HealthState | 'unvisited' | 'inactive', number> {
    const standing = { ok: 0, needs_sign_in: 0, not_mcp: 0, unreachable: 0, unvisited: 0, inactive: 0 };
    for (const server of this.#parts.catalogue.standing())
      standing[server.unanswered ? 'inactive' : (this.healthOf(server)?.state ?? 'unvisited')]++;
    return standing;
  }
}
