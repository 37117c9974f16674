import type { Clock } from '../../platform/clock.ts';
import { isAlive, type HealthState } from '../catalogue/health.ts';
import type { Server } from '../catalogue/entry.ts';
import type { Verdict } from './classify.ts';
import type { HealthBoard } from './health-board.ts';
import type { LocatedHealth } from './health-rows.ts';
import { hostOf } from './by-host.ts';
import { after, isOwnOutage, Votes } from './ledger.ts';
import type { Visit } from './visits.ts';

/** Good news are written so many at a time: each write is told to every process. */
const BATCH = 20;

/** A server whose visit failed. */
export interface Failing {
  /** As it was visited. */
  readonly server: Server;
  readonly state: HealthState;
  readonly latencyMs?: number;
  readonly atMs: number;
  readonly reason: string;
}

/** The results of one round. What is good is kept as it comes; what failed only at the end, when it is known whether that can be. */
export class Round {
  readonly #board: HealthBoard;
  readonly #clock: Clock;
  #unwritten: LocatedHealth[] = [];
  readonly #known = new Votes();
  readonly #all = new Votes();
  visited = 0;
  readonly failing: Failing[] = [];
  readonly counts: Record<Verdict, number> = {
    ok: 0,
    needs_sign_in: 0,
    not_mcp: 0,
    unreachable: 0,
    no_verdict: 0,
  };

  /** @param aliveElsewhere those that are alive, and not visited since they have been a short time ago */
  constructor(board: HealthBoard, clock: Clock, aliveElsewhere: readonly Server[]) {
    this.#board = board;
    this.#clock = clock;
    for (const server of aliveElsewhere) this.#vote(server, false, this.#known, this.#all);
  }

  /** Whether it is kept by `write`. */
  add(server: Server, { verdict, latencyMs, reason = '' }: Visit): boolean {
    this.visited++;
    this.counts[verdict]++;
    if (verdict === 'no_verdict') return false;
    const before = this.#board.of(server);
    const found = { state: verdict, ...(latencyMs === undefined ? {} : { latencyMs }) };
    const atMs = this.#clock.now();
    if (!before) this.#vote(server, !isAlive(verdict), this.#all);
    else if (isAlive(before.state)) this.#vote(server, !isAlive(verdict), this.#known, this.#all);
    if (!isAlive(verdict)) {
      this.failing.push({ server, ...found, atMs, reason });
      return false;
    }
    const { id: serverId, remoteUrl } = server;
    this.#unwritten.push({ serverId, remoteUrl, health: after(before, found, atMs) });
    return true;
  }

  get isToBeWritten(): boolean {
    return this.#unwritten.length >= BATCH;
  }

  /** What is good and not yet written; where that fails, it is still to be written. */
  async write(): Promise<void> {
    const found = this.#unwritten;
    this.#unwritten = [];
    try {
      await this.#board.write(found);
    } catch (error) {
      this.#unwritten.unshift(...found);
      throw error;
    }
  }

  /** Whether most of what was alive has failed at once: nothing of that is to be believed. */
  get isOwnOutage(): boolean {
    return isOwnOutage(this.#known.losses, this.#all.losses);
  }

  #vote(server: Server, hasFailed: boolean, ...votes: readonly Votes[]): void {
    for (const each of votes) each.add(hostOf(server), hasFailed);
  }
}
