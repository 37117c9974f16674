import { errors, jwtVerify, SignJWT, type JWTPayload } from 'jose';
import { LRUCache } from 'lru-cache';
import { SwitchboardError } from '../../../errors.ts';
import type { Clock } from '../../../platform/clock.ts';
import { newId } from '../../../platform/ids.ts';
import type { Subject } from '../../access/caller.ts';
import { ALGORITHM, CLOCK_TOLERANCE_SEC, IDENTITY_TOKEN_SEC, type SigningKeys } from './signing-keys.ts';

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
  /** A good signature stays good: a key stays published for longer than the tokens it signed live. */
  readonly #verified = new LRUCache<string, Verified>({ max: 5_000 });

  constructor(options: { keys: SigningKeys; clock: Clock; publicUrl: () => string }) {
    this.#keys = options.keys;
    this.#clock = options.clock;
    this.#publicUrl = options.publicUrl;
  }

  /**
   * Returns a function that signs with the key that is active now. Call this before a transaction begins: reading the keys may need
   * the database, and the embedded one has a single connection.
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
   * Returns the user a token names. The query that uses the subject checks that user and family have not been revoked since.
   * @throws SwitchboardError `identity_token_invalid`, with one text for every reason.
   */
  async verify(token: string, tenantId: string): Promise<Subject> {
    const nowSec = this.#clock.now() / 1000;
    const { tid, exp, subject } = this.#verified.get(token) ?? (await this.#check(token));
    // A token that was verified earlier can have expired since.
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
