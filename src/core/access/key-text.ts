import { hash as digest, timingSafeEqual } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { monotonicMs, type Clock } from '../../platform/time.ts';
import { base62OfUint32, randomBase62 } from '../../platform/ids.ts';

const PREFIX = 'sbk_live_';
const ID_LENGTH = 12;
const SECRET_LENGTH = 32;
const FORMAT = /^sbk_live_[0-9A-Za-z]{12}_[0-9A-Za-z]{38}$/;

/** Creates a key: `sbk_live_<12 id>_<32 secret><6 CRC-32>`, all base62. The secret has about 190 bits. */
export function generateApiKey(): { id: string; key: string; hash: Uint8Array } {
  const id = randomBase62(ID_LENGTH);
  const body = `${PREFIX}${id}_${randomBase62(SECRET_LENGTH)}`;
  const key = body + base62OfUint32(crc32(body));
  return { id, key, hash: hashApiKey(key) };
}

/** Returns the key's public id, or undefined if its format or checksum is wrong. Needs no database query. */
export function idOfApiKey(key: string): string | undefined {
  if (!FORMAT.test(key)) return undefined;
  const body = key.slice(0, -6);
  if (base62OfUint32(crc32(body)) !== key.slice(-6)) return undefined;
  return key.slice(PREFIX.length, PREFIX.length + ID_LENGTH);
}

/**
 * SHA-256: the secret is random and long, so a slow hash would add no protection. (Hashing it as text takes a third of the time.)
 */
export const hashApiKey = (key: string): Uint8Array => Buffer.from(digest('sha256', key, 'hex'), 'hex');

/** How long a process remembers the digest of a key that was sent, and of how many keys. Longer texts are hashed each time. */
const DIGEST_MS = 2_000;
const MAX_DIGESTS = 1_000;
const MAX_DIGESTED_CHARS = 256;

/** Remembers digests for a moment: the clients of a busy server send the same keys again and again. */
export class Digests {
  readonly #clock: Clock;
  readonly #known = new Map<string, Uint8Array>();
  #sinceMs = -Infinity;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  of(key: string): Uint8Array {
    if (key.length > MAX_DIGESTED_CHARS) return hashApiKey(key);
    const nowMs = monotonicMs(this.#clock);
    if (nowMs - this.#sinceMs >= DIGEST_MS || this.#known.size >= MAX_DIGESTS) {
      this.#known.clear();
      this.#sinceMs = nowMs;
    }
    let found = this.#known.get(key);
    if (!found) this.#known.set(key, (found = hashApiKey(key)));
    return found;
  }
}

/** Compares in constant time. */
export const sameHash = (a: Uint8Array, b: Uint8Array): boolean =>
  a.length === b.length && timingSafeEqual(a, b);
