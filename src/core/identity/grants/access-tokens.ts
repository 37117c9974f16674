import { errors, jwtVerify, type JWTPayload } from 'jose';
import { LRUCache } from 'lru-cache';
import { SwitchboardError } from '../../../errors.ts';
import type { Clock } from '../../../platform/time.ts';
import type { ApiKeys } from '../../access/api-keys.ts';
import type { Principal, Scope } from '../../access/caller.ts';
import { ALGORITHM, CLOCK_TOLERANCE_SEC, type SigningKeys } from '../tokens/identity-token.ts';
import { keyScopesOf, mcpScopesIn } from './scopes.ts';

/** Ours have about 700 characters. */
const MAX_TOKEN_CHARS = 4096;
const TYPE = 'at+jwt';
/** How long an access token is valid, in seconds. A revoked sign-in ends its tokens at once all the same. */
export const ACCESS_TOKEN_SEC = 3600;

interface Verified {
  /** The API key that stands for the sign-in. */
  readonly keyId: string;
  /** The address that the token is for. */
  readonly resource: string;
  readonly scopes: ReadonlySet<Scope>;
  /** In seconds since 1970. */
  readonly exp: number;
}

interface Claims extends JWTPayload {
  readonly scope: string;
  /** The API key that stands for the sign-in. */
  readonly key: string;
}

interface Parts {
  readonly keys: SigningKeys;
  readonly apiKeys: Pick<ApiKeys, 'authenticateClient'>;
  readonly clock: Clock;
  /** The issuer of the authorization server. */
  readonly issuer: () => string;
}

/**
 * Access tokens of MCP clients that users have signed in: JWTs (RFC 9068) for one address. A token names the API key that stands
 * for the sign-in; what holds for that key holds for the token.
 */
export class AccessTokens {
  readonly #parts: Parts;
  /** A valid signature stays valid: a key is published for longer than the tokens it signed live. */
  readonly #verified = new LRUCache<string, Verified>({ max: 5_000 });

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /**
   * Returns the holder of a token, at once if both the token and its key are cached.
   * @param resource the address that was requested
   * @throws SwitchboardError `unauthorized`, with one text for every reason
   */
  authenticate(token: string, resource: string): Principal | Promise<Principal> {
    const known = this.#verified.get(token);
    return known
      ? this.#holderOf(known, resource)
      : this.#check(token).then(verified => this.#holderOf(verified, resource));
  }

  #holderOf(verified: Verified, resource: string): Principal | Promise<Principal> {
    const { keyId, scopes, exp } = verified;
    // A token that was verified earlier may have expired since.
    if (verified.resource !== resource || exp + CLOCK_TOLERANCE_SEC <= this.#parts.clock.now() / 1000)
      throw invalidAccessToken();
    try {
      const holder = this.#parts.apiKeys.authenticateClient(keyId);
      return holder instanceof Promise
        ? holder.then(
            principal => limited(principal, scopes),
            (error: unknown) => {
              throw asInvalid(error);
            },
          )
        : limited(holder, scopes);
    } catch (error) {
      throw asInvalid(error);
    }
  }

  async #check(token: string): Promise<Verified> {
    const { keys, issuer, clock } = this.#parts;
    if (token.length > MAX_TOKEN_CHARS) throw invalidAccessToken();
    try {
      const { payload } = await jwtVerify<Claims>(token, header => keys.verifying(header.kid), {
        algorithms: [ALGORITHM],
        typ: TYPE,
        issuer: issuer(),
        currentDate: new Date(clock.now()),
        clockTolerance: CLOCK_TOLERANCE_SEC,
        requiredClaims: ['sub', 'exp', 'aud', 'scope', 'key'],
      });
      const { aud, exp = 0, scope, key: keyId } = payload;
      if (typeof aud !== 'string') throw invalidAccessToken();
      const verified = { keyId, resource: aud, scopes: new Set(keyScopesOf(mcpScopesIn(scope))), exp };
      this.#verified.set(token, verified);
      return verified;
    } catch (cause) {
      if (cause instanceof errors.JOSEError) throw invalidAccessToken(cause);
      throw cause;
    }
  }
}

/** A refreshed token may have fewer scopes than its sign-in. */
export function limited(principal: Principal, scopes: ReadonlySet<Scope>): Principal {
  const kept = [...principal.scopes].filter(scope => scopes.has(scope));
  return kept.length === principal.scopes.size ? principal : { ...principal, scopes: new Set(kept) };
}

export const asInvalid = (error: unknown): unknown =>
  error instanceof SwitchboardError && error.code === 'unauthorized' ? invalidAccessToken(error) : error;

export const invalidAccessToken = (cause?: unknown): SwitchboardError =>
  new SwitchboardError(
    'unauthorized',
    'The access token is invalid, has expired, was revoked, or is for another address. Sign in again.',
    { cause },
  );
