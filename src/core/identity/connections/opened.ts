import { LRUCache } from 'lru-cache';
import type { HeldConnection } from './holdings.ts';

/** How long what was decrypted stays in memory. */
const OPENED_MS = 60_000;

/**
 * What was made of the secrets of connections, while their rows stay the same: except for the query, decrypting is the most expensive
 * step of a call.
 */
export class Opened<T extends object> {
  readonly #kept = new LRUCache<string, { readonly row: HeldConnection; readonly made: T }>({
    max: 5_000,
    ttl: OPENED_MS,
  });

  /** Returns what was made of exactly this row; undefined if nothing was, or too long ago. */
  get(row: HeldConnection): T | undefined {
    const kept = this.#kept.get(row.id);
    return kept && isSame(kept.row, row) ? kept.made : undefined;
  }

  set(row: HeldConnection, made: T): void {
    this.#kept.set(row.id, { row, made });
  }
}

/** Returns whether two readings are of the same row in the same state: a sealed text is valid only in its own row. */
const isSame = (one: HeldConnection, other: HeldConnection): boolean =>
  one === other ||
  (one.version === other.version &&
    one.tenantId === other.tenantId &&
    one.userId === other.userId &&
    one.provider === other.provider &&
    one.resource === other.resource &&
    one.issuer === other.issuer &&
    one.sealed === other.sealed);
