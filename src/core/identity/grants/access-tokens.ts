import { LRUCache } from 'lru-cache';
import type { Clock } from '../../../platform/time.ts';
import type { ApiKeys } from '../../access/api-keys.ts';
import type { Principal, Scope } from '../../access/caller.ts';
import { invalidAccessToken } from '../../access/client-keys.ts';
import { CLOCK_TOLERANCE_SEC } from '../tokens/identity-token.ts';

/** An access token with a good signature. */
export interface VerifiedToken {
  /** The API key that stands for the sign-in. */
  readonly keyId: string;
  /** `aud`. */
  readonly audiences: readonly string[];
  readonly scopes: ReadonlySet<Scope>;
  /** In seconds since 1970. */
  readonly exp: number;
}

/** One issuer of access tokens. */
export interface TokenVerifier {
  /** Checks a new token, before anything is created for it. @throws SwitchboardError `unauthorized` */
  verify(token: string, resource: string): Promise<VerifiedToken>;
  /** Checks that a known token is for the address that is requested now. @throws SwitchboardError `unauthorized` */
  requireAudience(audiences: readonly string[], resource: string): void;
}

interface Parts {
  readonly verifier: TokenVerifier;
  readonly apiKeys: Pick<ApiKeys, 'authenticateClient'>;
  readonly clock: Clock;
}

/**
 * Access tokens of MCP clients that users have signed in. A token names the API key that stands for the sign-in; what holds for that
 * key holds for the token.
 */
export class AccessTokens {
  readonly #parts: Parts;
  /** A valid signature stays valid: a key is published for longer than the tokens it signed live. */
  readonly #verified = new LRUCache<string, VerifiedToken>({ max: 5_000 });

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /**
   * Returns the holder of a token, at once if both the token and its key are cached.
   * @param resource the address that was requested
   * @throws SwitchboardError `unauthorized`
   */
  authenticate(token: string, resource: string): Principal | Promise<Principal> {
    const known = this.#verified.get(token);
    return known ? this.#holderOf(known, resource) : this.#verify(token, resource);
  }

  async #verify(token: string, resource: string): Promise<Principal> {
    const verified = await this.#parts.verifier.verify(token, resource);
    this.#verified.set(token, verified);
    return this.#holderOf(verified, resource);
  }

  #holderOf(
    { keyId, audiences, scopes, exp }: VerifiedToken,
    resource: string,
  ): Principal | Promise<Principal> {
    const { verifier, apiKeys, clock } = this.#parts;
    // A token that was verified earlier may have expired since.
    if (exp + CLOCK_TOLERANCE_SEC <= clock.now() / 1000) throw invalidAccessToken();
    verifier.requireAudience(audiences, resource);
    const holder = apiKeys.authenticateClient(keyId);
    return holder instanceof Promise
      ? holder.then(principal => limited(principal, scopes))
      : limited(holder, scopes);
  }
}

/** A refreshed token may have fewer scopes than its sign-in. */
function limited(principal: Principal, scopes: ReadonlySet<Scope>): Principal {
  const kept = [...principal.scopes].filter(scope => scopes.has(scope));
  return kept.length === principal.scopes.size ? principal : { ...principal, scopes: new Set(kept) };
}
