import type { Clock } from '../../platform/clock.ts';
import { Repeat } from '../../platform/repeat.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { RegistrySync } from './sync.ts';

/** Everything is asked for once a day: it heals whatever listings of changes have missed. */
const FULL_EVERY_MS = 86_400_000;
/** How often it is looked whether one is due. */
const LOOK_EVERY_MS = 60_000;

interface ScheduleParts {
  readonly sync: RegistrySync;
  readonly sources: readonly string[];
  readonly everyMs: number;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Syncs with every registry each time `everyMs` have passed, also while nothing ran; a failure waits as long as a success.
 * Processes on one database share the syncs: nobody repeats what another did less than half of `everyMs` ago.
 */
export class SyncSchedule {
  readonly #parts: ScheduleParts;
  readonly #triedAtMs = new Map<string, number>();
  readonly #looking = new Repeat(LOOK_EVERY_MS, () => this.syncDue());
  #isStopped = false;

  constructor(parts: ScheduleParts) {
    this.#parts = parts;
  }

  start(): void {
    if (this.#parts.sources.length > 0) this.#looking.start();
  }

  stop(): void {
    this.#isStopped = true;
    void this.#looking.stop();
  }

  /** Resolves when every registry that was due has been synced with, or has failed. */
  async syncDue(): Promise<void> {
    for (const source of this.#parts.sources) {
      if (!this.#isStopped) await this.#syncIfDue(source);
    }
  }

  async #syncIfDue(source: string): Promise<void> {
    const { sync, everyMs, clock, log } = this.#parts;
    try {
      const { syncedAtMs, fullAtMs } = await sync.state(source);
      const now = clock.now();
      const lastMs = Math.max(syncedAtMs ?? -Infinity, this.#triedAtMs.get(source) ?? -Infinity);
      if (now - lastMs < everyMs) return;
      this.#triedAtMs.set(source, now);
      const full = now - (fullAtMs ?? -Infinity) >= FULL_EVERY_MS;
      const report = await sync.syncUnlessSynced(source, now - everyMs / 2, full);
      if (report) return;
      this.#triedAtMs.delete(source);
      log.info({ registry: source }, 'registry sync left to another process');
    } catch (error) {
      if (!this.#isStopped) log.warn({ registry: source, err: error }, 'registry sync failed');
    }
  }
}
