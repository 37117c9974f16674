import {
  calculateJwkThumbprint,
  errors,
  exportJWK,
  generateKeyPair,
  importJWK,
  jwtVerify,
  SignJWT,
  type CryptoKey,
  type JWK,
  type JWTPayload,
} from 'jose';
import { LRUCache } from 'lru-cache';
import { and, eq, isNotNull, lt, or, sql } from 'drizzle-orm';
import { SwitchboardError } from '../../../errors.ts';
import type { Clock } from '../../../platform/time.ts';
import { newId } from '../../../platform/ids.ts';
import type { Subject } from '../../access/caller.ts';
import type { Database } from '../../../platform/database/database.ts';
import { SingleFlight } from '../../../platform/queues.ts';
import { signingKeys } from '../schema.ts';
import type { Binding, Vault } from '../vault/vault.ts';

/** Ours have about 700 characters. */
const MAX_TOKEN_CHARS = 4096;
const TYPE = 'at+jwt';

/** The user a token is for, with the family and epoch it depends on. */
export interface TokenOwner {
  readonly tenantId: string;
  readonly keyId: string;
  readonly userId: string;
  readonly familyId: string;
  readonly epoch: number;
}

interface Verified {
  readonly tid: string;
  readonly exp: number;
  readonly subject: Subject;
}

interface Claims extends JWTPayload {
  readonly tid: string;
  readonly fam: string;
  readonly ver: number;
}

/** Identity tokens: JWT access tokens in the profile of RFC 9068, signed with ES256. */
export class IdentityTokens {
  readonly #keys: SigningKeys;
  readonly #clock: Clock;
  readonly #publicUrl: () => string;
  /** A valid signature stays valid: a key is published for longer than the tokens it signed live. */
  readonly #verified = new LRUCache<string, Verified>({ max: 5_000 });

  constructor(options: { keys: SigningKeys; clock: Clock; publicUrl: () => string }) {
    this.#keys = options.keys;
    this.#clock = options.clock;
    this.#publicUrl = options.publicUrl;
  }

  /**
   * Returns a function that signs with the active key. Call this before a transaction starts: reading the keys may need the
   * database, and the embedded one has a single connection.
   */
  async issuer(): Promise<(owner: TokenOwner) => Promise<string>> {
    const { kid, privateKey } = await this.#keys.active();
    return owner => {
      const nowSec = Math.floor(this.#clock.now() / 1000);
      return new SignJWT({
        tid: owner.tenantId,
        fam: owner.familyId,
        ver: owner.epoch,
        client_id: owner.keyId,
      })
        .setProtectedHeader({ alg: ALGORITHM, typ: TYPE, kid })
        .setIssuer(this.#publicUrl())
        .setAudience(`${this.#publicUrl()}/v1`)
        .setSubject(owner.userId)
        .setJti(newId('jti'))
        .setIssuedAt(nowSec)
        .setExpirationTime(nowSec + IDENTITY_TOKEN_SEC)
        .sign(privateKey);
    };
  }

  /**
   * Returns the user of a token. The query that uses the subject checks that user and family have not been revoked.
   * @throws SwitchboardError `identity_token_invalid`, with one text for every reason
   */
  async verify(token: string, tenantId: string): Promise<Subject> {
    const nowSec = this.#clock.now() / 1000;
    const { tid, exp, subject } = this.#verified.get(token) ?? (await this.#check(token));
    // A token that was verified earlier may have expired since.
    if (tid !== tenantId || exp + CLOCK_TOLERANCE_SEC <= nowSec) throw invalidToken();
    return subject;
  }

  async #check(token: string): Promise<Verified> {
    if (token.length > MAX_TOKEN_CHARS) throw invalidToken();
    try {
      const { payload } = await jwtVerify<Claims>(token, header => this.#keys.verifying(header.kid), {
        algorithms: [ALGORITHM],
        typ: TYPE,
        issuer: this.#publicUrl(),
        audience: `${this.#publicUrl()}/v1`,
        currentDate: new Date(this.#clock.now()),
        clockTolerance: CLOCK_TOLERANCE_SEC,
        requiredClaims: ['sub', 'exp', 'tid', 'fam', 'ver'],
      });
      const { sub = '', exp = 0, tid, fam, ver } = payload;
      const verified = { tid, exp, subject: { userId: sub, familyId: fam, epoch: ver } };
      this.#verified.set(token, verified);
      return verified;
    } catch (cause) {
      if (cause instanceof errors.JOSEError) throw invalidToken(cause);
      throw cause;
    }
  }
}

export const invalidToken = (cause?: unknown): SwitchboardError =>
  new SwitchboardError(
    'identity_token_invalid',
    'The identity token is invalid, expired or revoked. Refresh it, or let the user sign in again.',
    { cause },
  );

export const ALGORITHM = 'ES256';
/** The lifetime of an identity token in seconds. */
export const IDENTITY_TOKEN_SEC = 3600;
/** Allows for clocks that differ between replicas. */
export const CLOCK_TOLERANCE_SEC = 5;
/** Clients may cache the published keys this long; a new key is published at least as long before it signs. */
export const JWKS_MAX_AGE_SEC = 600;
/** How long a process caches the keys; another replica may have rotated them. */
const RELOAD_MS = 60_000;
/** An unknown key id triggers a read, at most this often in a flood of forged ones. */
const UNKNOWN_KID_MS = 2_000;

interface Loaded {
  readonly atMs: number;
  readonly active: { readonly kid: string; readonly privateKey: CryptoKey };
  readonly publicKeys: ReadonlyMap<string, CryptoKey>;
  readonly jwks: { readonly keys: readonly JWK[] };
}

/**
 * The signing keys of identity tokens, in the database, private ones sealed. `next` is published and waits, `active` signs,
 * and `retired` ones stay published until the last token they signed has expired.
 */
export class SigningKeys {
  readonly #db: Database;
  readonly #vault: Vault;
  readonly #clock: Clock;
  #loaded: Loaded | undefined;
  readonly #loading = new SingleFlight<Loaded>();

  constructor(options: { db: Database; vault: Vault; clock: Clock }) {
    this.#db = options.db;
    this.#vault = options.vault;
    this.#clock = options.clock;
  }

  /** Creates the first keys if there are none; of several replicas that start together, only one does. */
  async prepare(): Promise<void> {
    const [active, next] = [await this.#generate('active'), await this.#generate('next')];
    await this.#db.transaction(async tx => {
      const made = await tx.insert(signingKeys).values(active).onConflictDoNothing().returning();
      if (made.length > 0) await tx.insert(signingKeys).values(next);
    });
    await this.#load();
  }

  async active(): Promise<Loaded['active']> {
    return (await this.#current(RELOAD_MS)).active;
  }

  /** Returns the active key as a private JWK, for the authorization server. */
  async privateJwk(): Promise<JWK> {
    const { kid } = await this.active();
    const [row] = await this.#db.select().from(signingKeys).where(eq(signingKeys.kid, kid));
    if (!row?.sealed) throw new Error('the active signing key was retired meanwhile');
    const jwk = await this.#vault.openJson<JWK>(bindingOf(kid), row.sealed);
    return { ...jwk, kid, alg: ALGORITHM, use: 'sig' };
  }

  /** Returns the public key with that id. @throws JWKSNoMatchingKey */
  async verifying(kid: string | undefined): Promise<CryptoKey> {
    const key = kid === undefined ? undefined : await this.#find(kid);
    if (!key) throw new errors.JWKSNoMatchingKey();
    return key;
  }

  /** Returns the key set (RFC 7517 §5) for `/.well-known/jwks.json`. */
  async jwks(): Promise<Loaded['jwks']> {
    return (await this.#current(RELOAD_MS)).jwks;
  }

  /**
   * Activates `next`, retires the active key and publishes a new `next`.
   * @throws SwitchboardError `invalid_request` while clients may not yet have seen the next key
   */
  async rotate(): Promise<{ active: string; retired: string }> {
    const fresh = await this.#generate('next');
    const rotated = await this.#db.transaction(async tx => {
      const [current] = await tx
        .select({ kid: signingKeys.kid })
        .from(signingKeys)
        .where(eq(signingKeys.state, 'active'))
        .for('update');
      const [next] = await tx
        .select({
          kid: signingKeys.kid,
          waitSec: sql<number>`ceil(${JWKS_MAX_AGE_SEC} - extract(epoch from now() - ${signingKeys.createdAt}))::int`,
        })
        .from(signingKeys)
        .where(eq(signingKeys.state, 'next'));
      if (!current || !next) throw new Error('there is no active or no next signing key');
      if (next.waitSec > 0) {
        throw new SwitchboardError(
          'invalid_request',
          `The next signing key was published too recently: clients may cache the key set for ${JWKS_MAX_AGE_SEC} s. Try again in ${next.waitSec} s.`,
        );
      }
      const retireSec = IDENTITY_TOKEN_SEC + CLOCK_TOLERANCE_SEC + RELOAD_MS / 1000;
      await tx
        .update(signingKeys)
        .set({ state: 'retired', sealed: null, retireAt: sql`now() + make_interval(secs => ${retireSec})` })
        .where(eq(signingKeys.kid, current.kid));
      await tx.update(signingKeys).set({ state: 'active' }).where(eq(signingKeys.kid, next.kid));
      await tx.insert(signingKeys).values(fresh);
      return { active: next.kid, retired: current.kid };
    });
    await this.#load();
    return rotated;
  }

  /** Deletes keys whose last token has expired. */
  async purge(): Promise<void> {
    await this.#db
      .delete(signingKeys)
      .where(and(eq(signingKeys.state, 'retired'), lt(signingKeys.retireAt, sql`now()`)));
  }

  async #find(kid: string): Promise<CryptoKey | undefined> {
    const known = (await this.#current(RELOAD_MS)).publicKeys.get(kid);
    return known ?? (await this.#current(UNKNOWN_KID_MS)).publicKeys.get(kid);
  }

  async #current(maxAgeMs: number): Promise<Loaded> {
    if (this.#loaded && Math.abs(this.#clock.now() - this.#loaded.atMs) <= maxAgeMs) return this.#loaded;
    return this.#load();
  }

  #load(): Promise<Loaded> {
    return this.#loading.run('keys', () => this.#read());
  }

  async #read(): Promise<Loaded> {
    const atMs = this.#clock.now();
    const rows = await this.#db
      .select()
      .from(signingKeys)
      .where(or(isNotNull(signingKeys.sealed), sql`${signingKeys.retireAt} > now()`));
    const active = rows.find(({ state }) => state === 'active');
    if (!active?.sealed) throw new Error('there is no active signing key');
    const privateJwk = await this.#vault.openJson<JWK>(bindingOf(active.kid), active.sealed);
    const imported = rows.map(
      async ({ kid, publicJwk }) => [kid, (await importJWK(publicJwk, ALGORITHM)) as CryptoKey] as const,
    );
    this.#loaded = {
      atMs,
      active: { kid: active.kid, privateKey: (await importJWK(privateJwk, ALGORITHM)) as CryptoKey },
      publicKeys: new Map(await Promise.all(imported)),
      jwks: { keys: rows.map(({ publicJwk }) => publicJwk) },
    };
    return this.#loaded;
  }

  async #generate(state: 'active' | 'next') {
    const { publicKey, privateKey } = await generateKeyPair(ALGORITHM, { extractable: true });
    const jwk = await exportJWK(publicKey);
    const kid = await calculateJwkThumbprint(jwk);
    const sealed = await this.#vault.sealJson(bindingOf(kid), await exportJWK(privateKey));
    return { kid, state, sealed, publicJwk: { ...jwk, kid, alg: ALGORITHM, use: 'sig' } };
  }
}

export const bindingOf = (kid: string): Binding => ({
  table: 'signing_keys',
  tenantId: '',
  userId: '',
  id: kid,
  purpose: 'signing',
});
