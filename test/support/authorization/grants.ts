import { createHash } from 'node:crypto';
import { OAuthError, secret, type Client } from './clients.ts';

/** What a user has allowed, with everything that was issued for it. */
interface Grant {
  readonly clientId: string;
  readonly scopes: readonly string[];
  readonly resource: string | undefined;
  isEnded: boolean;
}

interface Code extends Grant {
  readonly redirectUri: string;
  readonly challenge: string;
  isUsed: boolean;
}

export interface Tokens {
  readonly access_token: string;
  readonly refresh_token?: string;
  readonly scope: string;
}

/** What an access token allows. */
export type Allowed = Pick<Grant, 'clientId' | 'scopes' | 'resource'>;

export type Refreshing = 'rotating' | 'fixed' | 'none';

/** Codes and tokens. What is used twice ends everything that was issued for the grant. */
export class Grants {
  readonly #codes = new Map<string, Code>();
  readonly #access = new Map<string, Grant>();
  readonly #refresh = new Map<string, { readonly grant: Grant; isUsed: boolean }>();

  authorize(code: Omit<Code, 'isUsed' | 'isEnded'>): string {
    const value = secret('code');
    this.#codes.set(value, { ...code, isUsed: false, isEnded: false });
    return value;
  }

  /** @throws OAuthError invalid_grant */
  redeem(value: string, client: Client, redirectUri: string, verifier: string, how: Refreshing): Tokens {
    const code = this.#codes.get(value);
    if (!code || code.clientId !== client.client_id) throw new OAuthError('invalid_grant', 'unknown code');
    if (code.isUsed) {
      code.isEnded = true;
      throw new OAuthError('invalid_grant', 'the code was used before');
    }
    code.isUsed = true;
    if (code.redirectUri !== redirectUri) throw new OAuthError('invalid_grant', 'another redirect_uri');
    if (createHash('sha256').update(verifier).digest('base64url') !== code.challenge)
      throw new OAuthError('invalid_grant', 'the verifier does not belong to the challenge');
    return this.#issue(code, how === 'none' ? undefined : this.#newRefreshToken(code));
  }

  /** @throws OAuthError invalid_grant */
  refresh(value: string, client: Client, how: Refreshing): Tokens {
    const found = this.#refresh.get(value);
    if (!found || found.grant.clientId !== client.client_id || found.grant.isEnded)
      throw new OAuthError('invalid_grant', 'the refresh token is not valid');
    if (how !== 'rotating') return this.#issue(found.grant);
    if (found.isUsed) {
      found.grant.isEnded = true;
      throw new OAuthError('invalid_grant', 'the refresh token was used before');
    }
    found.isUsed = true;
    return this.#issue(found.grant, this.#newRefreshToken(found.grant));
  }

  /** What a refresh token's new access token will be for. */
  resourceOf(refreshToken: string): string | undefined {
    return this.#refresh.get(refreshToken)?.grant.resource;
  }

  introspect(accessToken: string): Allowed | undefined {
    const grant = this.#access.get(accessToken);
    return grant?.isEnded ? undefined : grant;
  }

  /** Ends the grant that a token of either kind belongs to. */
  revoke(token: string): void {
    const grant = this.#access.get(token) ?? this.#refresh.get(token)?.grant;
    if (grant) grant.isEnded = true;
  }

  /** Makes every access token invalid; refresh tokens stay. */
  expireAccessTokens(): void {
    this.#access.clear();
  }

  /** As when users withdraw access in the provider's own settings. */
  endAll(): void {
    for (const grant of this.#access.values()) grant.isEnded = true;
    for (const { grant } of this.#refresh.values()) grant.isEnded = true;
  }

  #issue(grant: Grant, refreshToken?: string): Tokens {
    const accessToken = secret('at');
    this.#access.set(accessToken, grant);
    return {
      access_token: accessToken,
      ...(refreshToken === undefined ? {} : { refresh_token: refreshToken }),
      scope: grant.scopes.join(' '),
    };
  }

  #newRefreshToken(grant: Grant): string {
    const value = secret('rt');
    this.#refresh.set(value, { grant, isUsed: false });
    return value;
  }
}
