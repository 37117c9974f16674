import {
  createCipheriv,
  createDecipheriv,
  createSecretKey,
  hkdfSync,
  randomBytes,
  type KeyObject,
} from 'node:crypto';
import { systemClock, type Clock } from './time.ts';

/** A key-encryption key of 256 bits. Everything it encrypts carries its id. */
interface SealingKey {
  readonly id: string;
  readonly key: Uint8Array;
}

const ALGORITHM = 'aes-256-gcm';
const IV_BYTES = 12;
const TAG_BYTES = 16;
const SEALED = /^([a-z0-9_-]{1,64})\.([\w-]+)$/;

/**
 * Encrypts texts that clients keep and send back (AES-256-GCM). A text can be decrypted only for its original purpose and
 * owner, until it expires, by any process with the same keys. After a rotation, texts encrypted with an older key remain
 * valid. Each purpose has its own derived key (HKDF, RFC 5869), so a text for one purpose cannot be used for another.
 */
export class Sealing {
  readonly #active: SealingKey;
  readonly #keys: ReadonlyMap<string, SealingKey>;
  readonly #clock: Clock;
  readonly #derived = new Map<string, KeyObject>();

  /** The first key encrypts, all decrypt. */
  constructor(keys: readonly SealingKey[], clock: Clock = systemClock) {
    const [active] = keys;
    if (!active) throw new Error('sealing needs a key');
    this.#active = active;
    this.#keys = new Map(keys.map(key => [key.id, key]));
    this.#clock = clock;
  }

  /**
   * @param boundTo identifies the owner and purpose; decryption needs the same list
   * @returns visible ASCII, suitable for a header: `<key id>.<base64url>`
   */
  seal(purpose: string, boundTo: readonly string[], text: string, ttlMs: number): string {
    const { id } = this.#active;
    const iv = randomBytes(IV_BYTES);
    const cipher = createCipheriv(ALGORITHM, this.#keyFor(this.#active, purpose), iv);
    cipher.setAAD(contextOf(id, purpose, boundTo));
    const sealed = [
      iv,
      cipher.update(`${this.#clock.now() + ttlMs}:${text}`),
      cipher.final(),
      cipher.getAuthTag(),
    ];
    return `${id}.${Buffer.concat(sealed).toString('base64url')}`;
  }

  /** Returns the text; undefined if it has expired, belongs to another owner or purpose, or is not ours. */
  open(purpose: string, boundTo: readonly string[], sealed: string): string | undefined {
    const [, id = '', body = ''] = SEALED.exec(sealed) ?? [];
    const key = this.#keys.get(id);
    const bytes = Buffer.from(body, 'base64url');
    // Base64url can encode the same bytes in several ways; only the canonical one is accepted.
    if (!key || bytes.length < IV_BYTES + TAG_BYTES || bytes.toString('base64url') !== body) return undefined;
    const decipher = createDecipheriv(ALGORITHM, this.#keyFor(key, purpose), bytes.subarray(0, IV_BYTES), {
      authTagLength: TAG_BYTES,
    });
    decipher.setAAD(contextOf(id, purpose, boundTo)).setAuthTag(bytes.subarray(-TAG_BYTES));
    let text: string;
    try {
      const opened = [decipher.update(bytes.subarray(IV_BYTES, -TAG_BYTES)), decipher.final()];
      text = Buffer.concat(opened).toString();
    } catch {
      return undefined;
    }
    const end = text.indexOf(':');
    return Number(text.slice(0, end)) > this.#clock.now() ? text.slice(end + 1) : undefined;
  }

  /** Returns secrets for signing what clients keep, one of each key, the active one's first. */
  secretsFor(purpose: string): readonly string[] {
    const others = [...this.#keys.values()].filter(key => key !== this.#active);
    return [this.#active, ...others].map(key => this.#keyFor(key, purpose).export().toString('base64url'));
  }

  #keyFor({ id, key }: SealingKey, purpose: string): KeyObject {
    const name = `${id} ${purpose}`;
    const known = this.#derived.get(name);
    if (known) return known;
    const derived = createSecretKey(Buffer.from(hkdfSync('sha256', key, '', `switchboard/${purpose}`, 32)));
    this.#derived.set(name, derived);
    return derived;
  }
}

const contextOf = (keyId: string, purpose: string, boundTo: readonly string[]): Buffer =>
  Buffer.from(JSON.stringify(['v1', keyId, purpose, ...boundTo]));
