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
  readonly server: Server;
  readonly found: LocatedHealth;
  readonly reason: string;
}

/** The results of one round. What is good is kept as it comes; what failed only at the end, when it is known whether that can be. */
export class Round {
  readonly #board: HealthBoard;
  readonly #clock: Clock;
  #unwritten: LocatedHealth[] = [];
  readonly #known = { alive: 0, failed: 0 };
  readonly #unvisited = { alive: 0, failed: 0 };
  readonly failing: Failing[] = [];
  readonly counts: Record<Verdict, number> = {
    ok: 0,
    needs_sign_in: 0,
    not_mcp: 0,
    unreachable: 0,
    no_verdict: 0,
  };

  constructor(board: HealthBoard, clock: Clock) {
    this.#board = board;
    this.#clock = clock;
  }

  async add(server: Server, { verdict, latencyMs, reason = '' }: Visit): Promise<void> {
    this.counts[verdict]++;
    if (verdict === 'no_verdict') return;
    const before = this.#board.of(server);
    const found = {
      serverId: server.id,
      remoteUrl: server.remoteUrl,
      health: after(
        before,
        { state: verdict, ...(latencyMs === undefined ? {} : { latencyMs }) },
        this.#clock.now(),
      ),
    };
    this.#note(before, verdict);
    if (!isAlive(verdict)) {
      this.failing.push({ server, found, reason });
      return;
    }
    this.#unwritten.push(found);
    if (this.#unwritten.length >= BATCH) await this.write();
  }

  /** What is good and not yet written. */
  async write(): Promise<void> {
    const found = this.#unwritten;
    this.#unwritten = [];
    await this.#board.write(found);
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
