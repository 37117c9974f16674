import { createHash, randomBytes } from 'node:crypto';

/** SHA-256, for secrets of 256 random bits: a slow hash would protect nothing. */
export const sha256 = (text: string): Uint8Array => createHash('sha256').update(text).digest();

/** Makes a secret: 256 random bits in base64url, after a prefix that names its kind. */
export const newSecret = (prefix: 'ses' | 'sbr' | 'link' | 'done' | 'page' | 'web'): string =>
  `${prefix}_${randomBytes(32).toString('base64url')}`;

/** Makes 256 random bits in base64url, without a prefix (OAuth `state`, `nonce`, PKCE verifier). */
export const newNonce = (): string => randomBytes(32).toString('base64url');

/** Returns whether a text has the form of such a secret; anything else needs no look at the database. */
export const isSecret = (text: string, prefix: Parameters<typeof newSecret>[0]): boolean =>
  text.length === prefix.length + 44 && text.startsWith(`${prefix}_`) && /^\w+_[\w-]{43}$/.test(text);
