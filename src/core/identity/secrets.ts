import { createHash, randomBytes } from 'node:crypto';

/** SHA-256: what it is used on has 256 random bits, so a slow hash would protect nothing. */
export const sha256 = (text: string): Uint8Array => createHash('sha256').update(text).digest();

/** 256 random bits in base64url, after a prefix that says what it is. */
export const newSecret = (prefix: 'ses' | 'sbr' | 'link' | 'done' | 'page' | 'web'): string =>
  `${prefix}_${randomBytes(32).toString('base64url')}`;

/** 256 random bits in base64url, for where a form of its own would be in the way (OAuth `state`, `nonce`, PKCE verifier). */
export const newNonce = (): string => randomBytes(32).toString('base64url');

/** Whether a text has the form of such a secret: what has not needs no look at the database. */
export const isSecret = (text: string, prefix: Parameters<typeof newSecret>[0]): boolean =>
  text.length === prefix.length + 44 && text.startsWith(`${prefix}_`) && /^\w+_[\w-]{43}$/.test(text);
