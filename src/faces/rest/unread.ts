import type { ServerResponse } from 'node:http';
import { SwitchboardError } from '../../errors.ts';

/** What is smaller, the sockets' own buffers take about whole. */
const SMALL_BYTES = 64 * 1024;
const DEFAULT_LIMITS = {
  maxBytesPerKey: 64 * 1024 * 1024,
  /** How long a client may take nothing of its answer. */
  idleMs: 30_000,
};

/**
 * Answers that were sent and not taken yet: a client that asks for large ones and reads none would have them all kept for it.
 * An answer nobody reads is given up after a while; what one key's clients may leave unread together is bounded.
 */
export class UnreadAnswers {
  readonly #byKey = new Map<string, number>();
  readonly #limits: typeof DEFAULT_LIMITS;

  constructor(limits = DEFAULT_LIMITS) {
    this.#limits = limits;
  }

  /** Counts an answer that is about to be sent. @throws SwitchboardError `unavailable`. */
  add(response: ServerResponse, keyId: string, bytes: number): void {
    if (bytes < SMALL_BYTES) return;
    const { maxBytesPerKey, idleMs } = this.#limits;
    const held = this.#byKey.get(keyId) ?? 0;
    if (held > 0 && held + bytes > maxBytesPerKey) throw tooMuchUnread(held);
    this.#byKey.set(keyId, held + bytes);
    response.once('close', () => this.#remove(keyId, bytes));
    response.setTimeout(idleMs, () => response.destroy());
  }

  #remove(keyId: string, bytes: number): void {
    const left = (this.#byKey.get(keyId) ?? 0) - bytes;
    if (left > 0) this.#byKey.set(keyId, left);
    else this.#byKey.delete(keyId);
  }
}

const tooMuchUnread = (held: number) =>
  new SwitchboardError(
    'unavailable',
    `Earlier answers to this key, of ${held} bytes together, have not been read yet, so this one was dropped. Read them, or close their connections.`,
    { retryAfterSec: 1, retryable: false },
  );
