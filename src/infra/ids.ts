import { randomBytes } from 'node:crypto';

const BASE62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

/** A random base62 string. Bytes that would favour some characters are thrown away, so every character is equally likely. */
export function randomBase62(length: number): string {
  let out = '';
  while (out.length < length) {
    for (const byte of randomBytes(length)) {
      if (byte < 248 && out.length < length) out += BASE62.charAt(byte % 62);
    }
  }
  return out;
}

/** An unsigned 32-bit number as 6 base62 characters, zero-padded. */
export function base62OfUint32(value: number): string {
  let out = '';
  for (let rest = value >>> 0, i = 0; i < 6; i++, rest = Math.floor(rest / 62))
    out = BASE62.charAt(rest % 62) + out;
  return out;
}

/** A prefixed random id with about 131 bits of entropy, such as `qry_…`. */
export const newId = (prefix: 'qry' | 'req' | 'jti' | 'fam' | 'con' | 'out' | 'lease'): string =>
  `${prefix}_${randomBase62(22)}`;
