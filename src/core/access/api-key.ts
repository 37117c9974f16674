import { hash, timingSafeEqual } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { base62OfUint32, randomBase62 } from '../../platform/ids.ts';

const PREFIX = 'sbk_live_';
const ID_LENGTH = 12;
const SECRET_LENGTH = 32;
const FORMAT = /^sbk_live_[0-9A-Za-z]{12}_[0-9A-Za-z]{38}$/;

/** A new key: `sbk_live_<12 id>_<32 secret><6 CRC-32>`, all base62; the secret has about 190 bits. */
export function generateApiKey(): { id: string; key: string; hash: Uint8Array } {
  const id = randomBase62(ID_LENGTH);
  const body = `${PREFIX}${id}_${randomBase62(SECRET_LENGTH)}`;
  const key = body + base62OfUint32(crc32(body));
  return { id, key, hash: hashApiKey(key) };
}

/** The key's public id, or undefined when the form or the checksum is wrong, which needs no look at the database. */
export function idOfApiKey(key: string): string | undefined {
  if (!FORMAT.test(key)) return undefined;
  const body = key.slice(0, -6);
  if (base62OfUint32(crc32(body)) !== key.slice(-6)) return undefined;
  return key.slice(PREFIX.length, PREFIX.length + ID_LENGTH);
}

/** SHA-256: the secret is random and long, so a slow hash would protect nothing. (By way of text it takes a third of the time.) */
export const hashApiKey = (key: string): Uint8Array => Buffer.from(hash('sha256', key, 'hex'), 'hex');

/** Compares in constant time. */
export const sameHash = (a: Uint8Array, b: Uint8Array): boolean =>
  a.length === b.length && timingSafeEqual(a, b);
