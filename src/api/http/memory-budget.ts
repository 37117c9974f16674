import type { ServerResponse } from 'node:http';
import { getHeapStatistics } from 'node:v8';

const MIB = 1024 * 1024;

export interface HeldLimits {
  readonly maxBytesPerKey: number;
  /** Of all keys together. */
  readonly maxBytes: number;
}

/** What is parsed and sent on takes several times its bytes, so all together may come to a sixteenth of the heap's limit. */
export function defaultHeldLimits(heapLimitBytes = getHeapStatistics().heap_size_limit): HeldLimits {
  const maxBytes = Math.min(256 * MIB, Math.max(32 * MIB, Math.floor(heapLimitBytes / 16)));
  return { maxBytes, maxBytesPerKey: Math.floor(maxBytes / 4) };
}

/** What requests under way keep, and what of answers has not been read. */
export interface Held {
  readonly bodies: HeldBytes;
  readonly answers: HeldBytes;
}

/** Counts further bytes. False: there is no room for them, and they are not counted. */
type Hold = (bytes: number) => boolean;

/** Bytes that are kept for requests until their responses are closed, bounded for each key and in all. */
export class HeldBytes {
  readonly #byKey = new Map<string, number>();
  readonly #limits: HeldLimits;
  #bytes = 0;

  constructor(limits: HeldLimits) {
    this.#limits = limits;
  }

  hold(response: ServerResponse, keyId: string): Hold {
    let held = 0;
    response.once('close', () => this.#add(keyId, -held));
    return bytes => {
      // Nothing closes it a second time.
      if (response.closed) return true;
      if (!this.#hasRoom(keyId, bytes)) return false;
      held += bytes;
      this.#add(keyId, bytes);
      return true;
    };
  }

  #hasRoom(keyId: string, bytes: number): boolean {
    const { maxBytesPerKey, maxBytes } = this.#limits;
    return (this.#byKey.get(keyId) ?? 0) + bytes <= maxBytesPerKey && this.#bytes + bytes <= maxBytes;
  }

  #add(keyId: string, bytes: number): void {
    this.#bytes += bytes;
    const ofKey = (this.#byKey.get(keyId) ?? 0) + bytes;
    if (ofKey > 0) this.#byKey.set(keyId, ofKey);
    else this.#byKey.delete(keyId);
  }
}
