import { monotonicMs, type Clock } from '../../platform/clock.ts';
import { Repeat } from '../../platform/repeat.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { Probing } from './probing.ts';

/** How often it is looked whether a round is due. */
const LOOK_EVERY_MS = 60_000;
/** After a round that failed, or that said nothing since the own network did not work. */
const RETRY_MS = 3_600_000;

interface ScheduleParts {
  readonly probing: Pick<Probing, 'probeUnlessProbed' | 'probedAtMs'>;
  /** 0: never. */
  readonly everyMs: number;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Has the servers visited each time `everyMs` have passed, also while nothing ran. Processes on one database share the rounds: nobody
 * repeats one that began less than half of `everyMs` ago.
 */
export class ProbeSchedule {
  readonly #parts: ScheduleParts;
  /** Not before that time, which no setting of the machine's clock changes. */
  #notBeforeMs = -Infinity;
  readonly #looking = new Repeat(LOOK_EVERY_MS, () => this.probeIfDue());
  #isStopped = false;

  constructor(parts: ScheduleParts) {
    this.#parts = parts;
  }

  start(): void {
    if (this.#parts.everyMs > 0) this.#looking.start();
  }

  stop(): void {
    this.#isStopped = true;
    void this.#looking.stop();
  }

  /** Resolves when a round that was due has ended, or failed. */
  async probeIfDue(): Promise<void> {
    const { probing, everyMs, clock, log } = this.#parts;
    const now = clock.now();
    if (this.#isStopped || monotonicMs(clock) < this.#notBeforeMs) return;
    let isToRetry = false;
    try {
      if (now - ((await probing.probedAtMs()) ?? -Infinity) < everyMs) return;
      isToRetry = true;
      const report = await probing.probeUnlessProbed(now - everyMs / 2, everyMs);
      isToRetry = report?.doubted !== undefined;
    } catch (error) {
      if (!this.#isStopped) log.warn({ err: error }, 'probing failed');
    } finally {
      if (isToRetry) this.#notBeforeMs = monotonicMs(clock) + Math.min(everyMs, RETRY_MS);
    }
  }
}
