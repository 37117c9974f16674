import { LRUCache } from 'lru-cache';
import type { Clock } from '../clock.ts';
import type { Log } from '../telemetry/log.ts';
import { whyFailed } from './database.ts';

const EVERY_MS = 60_000;

interface LastUsedParts {
  readonly clock: Clock;
  readonly log: Log;
  /** For the log, such as `API key`. */
  readonly what: string;
  readonly write: (id: string, at: Date) => PromiseLike<unknown>;
}

/** Stamps rows with the time of their last use, at most once a minute each and in the background. */
export class LastUsed {
  readonly #parts: LastUsedParts;
  readonly #touchedAt = new LRUCache<string, number>({ max: 10_000 });
  readonly #writes = new Set<Promise<void>>();

  constructor(parts: LastUsedParts) {
    this.#parts = parts;
  }

  /** Never throws and never waits. */
  touch(id: string): void {
    const now = this.#parts.clock.now();
    if (now - (this.#touchedAt.get(id) ?? -EVERY_MS) < EVERY_MS) return;
    this.#touchedAt.set(id, now);
    const write = this.#write(id, new Date(now)).finally(() => this.#writes.delete(write));
    this.#writes.add(write);
  }

  /** Waits for the stamps under way. */
  async close(): Promise<void> {
    await Promise.all(this.#writes);
  }

  async #write(id: string, at: Date): Promise<void> {
    const { log, what, write } = this.#parts;
    try {
      await write(id, at);
    } catch (error) {
      log.warn({ ...whyFailed(error), id }, `last use of ${what} not written`);
    }
  }
}
