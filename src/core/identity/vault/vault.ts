import { webcrypto } from 'node:crypto';
import { base64url, flattenedDecrypt, FlattenedEncrypt, type CryptoKey } from 'jose';
import type { Kek } from '../../../config/index.ts';

/** The row and the purpose of a sealed text. It cannot be opened in another row or for another purpose. */
export interface Binding {
  readonly table: string;
  readonly tenantId: string;
  readonly userId: string;
  /** The row. */
  readonly id: string;
  readonly purpose: string;
}

/** A sealed text cannot be opened: it belongs to another row or key, or is damaged. */
export class VaultError extends Error {
  override readonly name = 'VaultError';
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const USAGES: webcrypto.KeyUsage[] = ['encrypt', 'decrypt'];
const ALGORITHMS = { keyManagementAlgorithms: ['A256GCMKW'], contentEncryptionAlgorithms: ['A256GCM'] };

/**
 * Seals secrets for storage as JWE (RFC 7516): each has its own content key, wrapped by the key-encryption key, with the row
 * as additional authenticated data. Format: `<key id>:<protected>.<encrypted key>.<iv>.<ciphertext>.<tag>`; the key id in
 * front lets SQL find rows of another key.
 */
export class Vault {
  readonly activeKeyId: string;
  readonly #keys: ReadonlyMap<string, CryptoKey>;

  private constructor(activeKeyId: string, keys: ReadonlyMap<string, CryptoKey>) {
    this.activeKeyId = activeKeyId;
    this.#keys = keys;
  }

  /** @param keks the first key seals, all of them open */
  static async create(keks: readonly Kek[]): Promise<Vault> {
    const [first] = keks;
    if (!first) throw new Error('the vault needs a key');
    const importKey = async ({ id, key }: Kek) =>
      [id, await webcrypto.subtle.importKey('raw', Uint8Array.from(key), 'AES-GCM', false, USAGES)] as const;
    return new Vault(first.id, new Map(await Promise.all(keks.map(importKey))));
  }

  has(keyId: string): boolean {
    return this.#keys.has(keyId);
  }

  async seal(binding: Binding, plaintext: string): Promise<string> {
    const jwe = await new FlattenedEncrypt(encoder.encode(plaintext))
      .setProtectedHeader({ alg: 'A256GCMKW', enc: 'A256GCM', kid: this.activeKeyId })
      .setAdditionalAuthenticatedData(encoder.encode(contextOf(binding)))
      .encrypt(this.#key(this.activeKeyId));
    const parts = [jwe.protected, jwe.encrypted_key, jwe.iv, jwe.ciphertext, jwe.tag];
    return `${this.activeKeyId}:${parts.join('.')}`;
  }

  /** @throws VaultError */
  async open(binding: Binding, sealed: string): Promise<string> {
    const keyId = keyIdOf(sealed);
    const [header = '', encryptedKey = '', iv = '', ciphertext = '', tag = ''] = sealed
      .slice(keyId.length + 1)
      .split('.');
    const jwe = {
      protected: header,
      encrypted_key: encryptedKey,
      iv,
      ciphertext,
      tag,
      aad: base64url.encode(contextOf(binding)),
    };
    try {
      const { plaintext } = await flattenedDecrypt(jwe, this.#key(keyId), ALGORITHMS);
      return decoder.decode(plaintext);
    } catch (cause) {
      if (cause instanceof VaultError) throw cause;
      throw new VaultError(`a sealed text of ${binding.table} does not open`, { cause });
    }
  }

  sealJson(binding: Binding, value: object): Promise<string> {
    return this.seal(binding, JSON.stringify(value));
  }

  /** Opens what `sealJson` sealed for the same binding, which determines its type. @throws VaultError */
  async openJson<T>(binding: Binding, sealed: string): Promise<T> {
    return JSON.parse(await this.open(binding, sealed)) as T;
  }

  #key(keyId: string): CryptoKey {
    const key = this.#keys.get(keyId);
    if (!key) throw new VaultError(`no key-encryption key has the id ${JSON.stringify(keyId.slice(0, 40))}`);
    return key;
  }
}

export const keyIdOf = (sealed: string): string => sealed.slice(0, Math.max(0, sealed.indexOf(':')));

const contextOf = ({ table, tenantId, userId, id, purpose }: Binding): string =>
  JSON.stringify(['v1', table, tenantId, userId, id, purpose]);
