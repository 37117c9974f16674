import { gt, sql } from 'drizzle-orm';
import { whyFailed, type Database } from '../../platform/database/database.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { Repeat } from '../../platform/time.ts';
import { apiKeys } from './schema.ts';

/** How often a process asks for keys that another one has revoked. */
const EVERY_MS = 2_000;
/** Several times as long, so that a late or failed query misses none. */
const RECENT_SEC = 30;

interface Parts {
  readonly db: Database;
  readonly log: Log;
  /** True if other processes use the same database. */
  readonly shared: boolean;
}

/** Tells whoever holds a stream open that its key has changed: at once in this process, within two seconds in others. */
export class KeyWatch {
  readonly #parts: Parts;
  readonly #listeners = new Map<string, Set<() => void>>();
  readonly #repeat: Repeat;
  #isAsking = false;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#repeat = new Repeat(EVERY_MS, () => this.#ask());
  }

  /** Calls the listener whenever the key may have been revoked, also more than once. Returns a function that ends this. */
  watch(keyId: string, listener: () => void): () => void {
    const listeners = this.#listeners.get(keyId) ?? new Set();
    this.#listeners.set(keyId, listeners.add(listener));
    if (this.#parts.shared && !this.#isAsking) {
      this.#isAsking = true;
      this.#repeat.start(EVERY_MS);
    }
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0 && this.#listeners.get(keyId) === listeners) this.#listeners.delete(keyId);
    };
  }

  changed(keyId: string): void {
    for (const listener of this.#listeners.get(keyId) ?? []) listener();
  }

  async close(): Promise<void> {
    await this.#repeat.stop();
  }

  async #ask(): Promise<void> {
    if (this.#listeners.size === 0) return;
    const { db, log } = this.#parts;
    try {
      const recently = gt(apiKeys.revokedAt, sql`now() - make_interval(secs => ${RECENT_SEC})`);
      for (const { id } of await db.select({ id: apiKeys.id }).from(apiKeys).where(recently))
        this.changed(id);
    } catch (error) {
      // Each stream asks by itself, too.
      log.warn(whyFailed(error), 'cannot ask which keys were revoked');
    }
  }
}
