import { errors, jwtVerify, type JWTPayload } from 'jose';
import type { Clock } from '../../../platform/time.ts';
import { invalidAccessToken } from '../../access/client-keys.ts';
import { ALGORITHM, CLOCK_TOLERANCE_SEC, type SigningKeys } from '../tokens/identity-token.ts';
import type { TokenVerifier, VerifiedToken } from './access-tokens.ts';
import { keyScopesOf, mcpScopesIn } from './scopes.ts';

/** Ours have about 700 characters. */
const MAX_TOKEN_CHARS = 4096;
const TYPE = 'at+jwt';
/** How long an access token is valid, in seconds. A revoked sign-in ends its tokens at once all the same. */
export const ACCESS_TOKEN_SEC = 3600;

interface Claims extends JWTPayload {
  readonly scope: string;
  /** The API key that stands for the sign-in. */
  readonly key: string;
}

interface Parts {
  readonly keys: SigningKeys;
  readonly clock: Clock;
  /** The issuer of the authorization server. */
  readonly issuer: () => string;
}

/** Verifies the access tokens of our own authorization server: JWTs (RFC 9068) for one address. All refusals have one text. */
export class OwnTokens implements TokenVerifier {
  readonly #parts: Parts;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  async verify(token: string): Promise<VerifiedToken> {
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
      const { aud = [], exp = 0, scope, key: keyId } = payload;
      return { keyId, audiences: [aud].flat(), scopes: new Set(keyScopesOf(mcpScopesIn(scope))), exp };
    } catch (cause) {
      if (cause instanceof errors.JOSEError) throw invalidAccessToken(cause);
      throw cause;
    }
  }

  requireAudience(audiences: readonly string[], resource: string): void {
    if (!audiences.includes(resource)) throw invalidAccessToken();
  }
}
