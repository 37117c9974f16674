import { randomFillSync } from 'node:crypto';

const BASE62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

/** Random bytes are drawn many at a time: one system call for each id costs more than all the rest of making it. */
const pool = Buffer.alloc(4_096);
let used = pool.length;

/** Returns a byte that has not been given out before. */
function randomByte(): number {
  if (used === pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  const byte = pool[used] ?? 0;
  // Bytes that become a secret must not be found in memory afterwards.
  pool[used++] = 0;
  return byte;
}

/** Returns a random base62 string. Bytes that would favour some characters are thrown away, so all are equally likely. */
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
export const newId = (prefix: 'qry' | 'req' | 'jti' | 'fam' | 'con' | 'out' | 'lease' | 'res'): string =>
  `${prefix}_${randomBase62(22)}`;
