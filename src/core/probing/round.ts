import type { Clock } from '../../infra/clock.ts';
import { isAlive, type Health, type HealthState } from '../catalogue/health.ts';
import type { Server } from '../catalogue/entry.ts';
import type { Verdict } from './classify.ts';
import type { HealthBoard } from './health-board.ts';
import type { LocatedHealth } from './health-rows.ts';
import { after, isOwnOutage } from './ledger.ts';
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
  readonly #known: { alive: number; failed: number };
  readonly #unvisited = { alive: 0, failed: 0 };
  readonly failing: Failing[] = [];
  readonly counts: Record<Verdict, number> = {
    ok: 0,
    needs_sign_in: 0,
    not_mcp: 0,
    unreachable: 0,
    no_verdict: 0,
  };

  /** @param aliveElsewhere servers alive that are not visited since they have been a short time ago */
  constructor(board: HealthBoard, clock: Clock, aliveElsewhere: number) {
    this.#board = board;
    this.#clock = clock;
    this.#known = { alive: aliveElsewhere, failed: 0 };
  }

  add(server: Server, { verdict, latencyMs, reason = '' }: Visit): void {
    this.counts[verdict]++;
    if (verdict === 'no_verdict') return;
    const before = this.#board.of(server);
    const found = { state: verdict, ...(latencyMs === undefined ? {} : { latencyMs }) };
    const atMs = this.#clock.now();
    this.#note(before, verdict);
    if (!isAlive(verdict)) {
      this.failing.push({ server, ...found, atMs, reason });
      return;
    }
    const { id: serverId, remoteUrl } = server;
    this.#unwritten.push({ serverId, remoteUrl, health: after(before, found, atMs) });
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
    return isOwnOutage(this.#known, this.#unvisited);
  }

  #note(before: Health | undefined, state: HealthState): void {
    if (before && !isAlive(before.state)) return;
    const losses = before ? this.#known : this.#unvisited;
    losses.alive++;
    if (!isAlive(state)) losses.failed++;
  }
}
