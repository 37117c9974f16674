import { createHash, randomBytes, randomFillSync } from 'node:crypto';

const BASE62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

/** Random bytes are drawn in bulk: a system call per id would cost more than the rest of creating it. */
const pool = Buffer.alloc(4_096);
let used = pool.length;

/** Returns a byte that has not been used before. */
function randomByte(): number {
  if (used === pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  const byte = pool[used] ?? 0;
  // Bytes that become part of a secret must not remain in memory.
  pool[used++] = 0;
  return byte;
}

/** Returns a random base62 string. Bytes that would cause bias are discarded. */
export function randomBase62(length: number): string {
  let out = '';
  while (out.length < length) {
    const byte = randomByte();
    if (byte < 248) out += BASE62.charAt(byte % 62);
  }
  return out;
}

/** Returns an unsigned 32-bit number as 6 base62 characters, zero-padded. */
export function base62OfUint32(value: number): string {
  let out = '';
  for (let rest = value >>> 0, i = 0; i < 6; i++, rest = Math.floor(rest / 62))
    out = BASE62.charAt(rest % 62) + out;
  return out;
}

/** Returns a prefixed random id with about 131 bits of entropy, such as `qry_…`. */
export const newId = (
  prefix: 'cli' | 'qry' | 'req' | 'jti' | 'fam' | 'con' | 'out' | 'lease' | 'res' | 'evt' | 'whs',
): string => `${prefix}_${randomBase62(22)}`;

/** SHA-256, for secrets of 256 random bits: a slow hash would add no protection. */
export const sha256 = (text: string): Uint8Array => createHash('sha256').update(text).digest();

/** Creates a secret: 256 random bits in base64url, after a prefix that names its kind. */
export const newSecret = (prefix: 'ses' | 'sbr' | 'link' | 'done' | 'code' | 'page' | 'web'): string =>
  `${prefix}_${randomBytes(32).toString('base64url')}`;

/** Creates 256 random bits in base64url, without a prefix (OAuth `state`, `nonce`, PKCE verifier). */
export const newNonce = (): string => randomBytes(32).toString('base64url');

/** Returns whether a text has the format of such a secret; anything else needs no database query. */
export const isSecret = (text: string, prefix: Parameters<typeof newSecret>[0]): boolean =>
  text.length === prefix.length + 44 && text.startsWith(`${prefix}_`) && /^\w+_[\w-]{43}$/.test(text);
