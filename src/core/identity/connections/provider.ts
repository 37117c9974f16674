import * as oauth from 'openid-client';
import type { ProviderSettings } from '../../../config/index.ts';
import type { Clock } from '../../../platform/time.ts';
import type { IssuedTo } from '../oauth/client.ts';
import type { GuardedFetch } from '../../../platform/outbound/fetch.ts';

/** An exchange or a refresh returned no tokens. */
export class ProviderError extends Error {
  override readonly name = 'ProviderError';
  /**
   * `denied`: the user refused. `refused`: the provider sent an error to the callback. `invalid_grant`: the code or token is
   * no longer valid. `other_account`: a refresh returned the tokens of another account. `failed`: anything else, from a
   * timeout to a protocol violation.
   */
  readonly reason: 'denied' | 'refused' | 'invalid_grant' | 'other_account' | 'failed';

  constructor(reason: ProviderError['reason'], cause: unknown) {
    super(`the identity provider: ${reason}${codeOf(cause)}`, { cause });
    this.reason = reason;
  }
}

/** Returns the OAuth error for the log, if it looks like one; `invalid_client` means that the operator's credentials are wrong. */
function codeOf(cause: unknown): string {
  const isChallenge = cause instanceof oauth.WWWAuthenticateChallengeError && cause.status === 401;
  const code =
    cause instanceof oauth.ResponseBodyError || cause instanceof oauth.AuthorizationResponseError
      ? cause.error
      : '';
  if (isChallenge || code === 'invalid_client') return ' (invalid_client: check client_id and client_secret)';
  return /^[a-z_]{1,40}$/.test(code) ? ` (${code})` : '';
}

function classify(error: unknown): ProviderError {
  if (error instanceof ProviderError) return error;
  if (error instanceof oauth.AuthorizationResponseError) {
    return new ProviderError(error.error === 'access_denied' ? 'denied' : 'refused', error);
  }
  const isDead = error instanceof oauth.ResponseBodyError && error.error === 'invalid_grant';
  return new ProviderError(isDead ? 'invalid_grant' : 'failed', error);
}

/** Limits a provider's response time; the lease of a refresh lasts longer. */
const TIMEOUT_SEC = 5;
/** An id_token is read within seconds of being issued. */
const MAX_CLOCK_DIFFERENCE_SEC = 300;
/** Ten years: a longer lifetime means that the token does not expire. */
const MAX_LIFETIME_SEC = 315_360_000;
/** How long a provider's metadata is used before it is read again. */
const METADATA_MS = 3_600_000;

/** An issuer of tokens: a configured provider, or the authorization server of an MCP server. */
export interface TokenIssuer {
  /** For logs. */
  readonly name: string;
  /** @throws ProviderError; after `invalid_grant` and `other_account` the user must sign in again */
  refresh(
    refreshToken: string,
    known: {
      readonly scopes: readonly string[];
      readonly resource: string;
      readonly subject: string;
    },
  ): Promise<Grant>;
  /** Resolves to false if it cannot revoke tokens. */
  revoke(token: string, hint: 'access_token' | 'refresh_token'): Promise<boolean>;
}

/** The tokens that a provider granted. They never leave the core. */
export interface Grant {
  readonly accessToken: string;
  /** Absent: the provider sent none. */
  readonly refreshToken: string | undefined;
  /** Undefined: it does not expire, or the provider does not say. */
  readonly expiresInSec: number | undefined;
  readonly scopes: readonly string[];
  /** The client and the resource that a server's own authorization server issued them for. */
  readonly issuedTo?: IssuedTo;
}

/** The account at the provider. */
export interface Account {
  /** '' if a plain OAuth provider has no userinfo endpoint. */
  readonly subject: string;
  readonly label: string | undefined;
  /** Undefined if there is none, or if the provider does not say that it has verified it. */
  readonly email?: string | undefined;
}

/** Secrets kept between the start of a sign-in and its callback. */
export interface Proof {
  readonly state: string;
  readonly nonce: string;
  readonly verifier: string;
}

export interface AuthorizationRequest extends Proof {
  readonly redirectUri: string;
  readonly scopes: readonly string[];
  readonly resource: string;
  readonly loginHint: string | undefined;
}

/** One configured identity provider, based on openid-client. */
export class Provider implements TokenIssuer {
  readonly settings: ProviderSettings;
  readonly #client: NonNullable<ProviderSettings['client']>;
  readonly #fetch: GuardedFetch;
  readonly #clock: Clock;
  #known: { readonly atMs: number; readonly configuration: Promise<oauth.Configuration> } | undefined;

  constructor(
    settings: ProviderSettings & { readonly client: NonNullable<ProviderSettings['client']> },
    options: { fetch: GuardedFetch; clock: Clock },
  ) {
    this.settings = settings;
    this.#client = settings.client;
    this.#fetch = options.fetch;
    this.#clock = options.clock;
  }

  get name(): string {
    return this.settings.name;
  }

  /** False for a plain OAuth provider without a userinfo endpoint: every account looks the same. */
  get tellsAccounts(): boolean {
    return this.settings.issuer !== undefined || this.settings.endpoints?.userinfo !== undefined;
  }

  /** Resolves when its metadata has been read. @throws ProviderError `failed` if it is unavailable */
  async ready(): Promise<this> {
    await this.#configuration();
    return this;
  }

  /** Returns the URL of the provider's page. @throws ProviderError `failed` if its metadata is unavailable, or names no page */
  async authorizationUrl(request: AuthorizationRequest): Promise<string> {
    const configuration = await this.#configuration();
    const { scopes, loginHint, resource } = request;
    const parameters: Record<string, string> = {
      ...this.settings.authParams,
      redirect_uri: request.redirectUri,
      scope: scopes.join(' '),
      state: request.state,
      code_challenge: await oauth.calculatePKCECodeChallenge(request.verifier),
      code_challenge_method: 'S256',
    };
    if (this.settings.issuer !== undefined) parameters['nonce'] = request.nonce;
    if (loginHint !== undefined) parameters['login_hint'] = loginHint;
    if (resource !== '') parameters['resource'] = resource;
    try {
      const page = oauth.buildAuthorizationUrl(configuration, parameters);
      if (page.protocol !== 'https:' && !(page.protocol === 'http:' && this.#isHttp))
        throw new Error(`the authorization_endpoint is no https URL: ${page.protocol}`);
      return page.href;
    } catch (error) {
      // The next caller reads the metadata again.
      this.#known = undefined;
      throw classify(error);
    }
  }

  /**
   * Exchanges the code in the callback's URL for tokens (RFC 6749 §4.1.3, with RFC 7636, RFC 9207 and OpenID Connect's checks).
   * @throws ProviderError
   */
  async exchange(
    callback: URL,
    proof: Proof,
    asked: { scopes: readonly string[]; resource: string },
  ): Promise<{ grant: Grant; account: Account }> {
    const configuration = await this.#configuration();
    const isOpenId = this.settings.issuer !== undefined;
    try {
      // RFC 9207 applies to known issuers; a plain provider has its own callback and state.
      if (!isOpenId) callback.searchParams.delete('iss');
      const tokens = await oauth.authorizationCodeGrant(
        configuration,
        callback,
        {
          expectedState: proof.state,
          pkceCodeVerifier: proof.verifier,
          ...(isOpenId ? { expectedNonce: proof.nonce, idTokenExpected: true } : {}),
        },
        resourceParameter(asked.resource),
      );
      const claims = tokens.claims();
      if (claims) requireFresh(claims.iat, Date.now());
      const account = isOpenId
        ? accountOf({ ...claims })
        : await this.#plainAccount(configuration, tokens.access_token);
      return { grant: grantOf(tokens, asked.scopes), account };
    } catch (error) {
      throw classify(error);
    }
  }

  /** Refreshes tokens. @throws ProviderError; after `invalid_grant` and `other_account` the user must sign in again */
  async refresh(
    refreshToken: string,
    known: { scopes: readonly string[]; resource: string; subject: string },
  ): Promise<Grant> {
    const configuration = await this.#configuration();
    try {
      const parameters = resourceParameter(known.resource);
      const tokens = await oauth.refreshTokenGrant(configuration, refreshToken, parameters);
      const claims = this.settings.issuer === undefined ? undefined : tokens.claims();
      // OpenID Connect Core §12.2: an id_token is not required, but must name the same account.
      if (claims && claims.sub !== known.subject) throw new ProviderError('other_account', undefined);
      return grantOf(tokens, known.scopes);
    } catch (error) {
      throw classify(error);
    }
  }

  /** Revokes a token (RFC 7009). Resolves to false if the provider has no endpoint for that. */
  async revoke(token: string, hint: 'access_token' | 'refresh_token'): Promise<boolean> {
    const configuration = await this.#configuration();
    if (configuration.serverMetadata().revocation_endpoint === undefined) return false;
    try {
      await oauth.tokenRevocation(configuration, token, { token_type_hint: hint });
      return true;
    } catch (error) {
      // The token is already invalid, or of a kind that the provider does not revoke (RFC 7009 §2.2.1).
      if (
        error instanceof oauth.ResponseBodyError &&
        /^(invalid_token|unsupported_token_type)$/.test(error.error)
      )
        return true;
      throw classify(error);
    }
  }

  async #configuration(): Promise<oauth.Configuration> {
    const now = this.#clock.now();
    this.#known ??= { atMs: now, configuration: this.#configure() };
    const known = this.#known;
    if (now - known.atMs > METADATA_MS) {
      // Refreshed in the background, so that no call waits twice for a slow provider.
      const fresh = { atMs: now, configuration: this.#configure() };
      this.#known = { atMs: now, configuration: known.configuration };
      fresh.configuration.then(
        () => (this.#known = fresh),
        () => {},
      );
    }
    try {
      return await known.configuration;
    } catch (error) {
      // The next caller tries again.
      if (this.#known === known) this.#known = undefined;
      throw classify(error);
    }
  }

  async #configure(): Promise<oauth.Configuration> {
    const { issuer, endpoints } = this.settings;
    const metadata =
      issuer === undefined ? plainMetadata(endpoints) : (await this.#discover(issuer)).serverMetadata();
    const methods = metadata.token_endpoint_auth_methods_supported;
    // RFC 8414 §2: client_secret_basic is the default.
    const usesBasic = issuer !== undefined && (methods?.includes('client_secret_basic') ?? true);
    const { id, secret } = this.#client;
    const authentication = usesBasic ? oauth.ClientSecretBasic(secret) : oauth.ClientSecretPost(secret);
    const configuration = new oauth.Configuration(
      withAsymmetricOnly(metadata),
      id,
      undefined,
      authentication,
    );
    configuration[oauth.customFetch] = this.#fetch;
    configuration.timeout = TIMEOUT_SEC;
    for (const prepare of this.#execute()) prepare(configuration);
    return configuration;
  }

  #discover(issuer: string): Promise<oauth.Configuration> {
    return oauth.discovery(new URL(issuer), this.#client.id, undefined, oauth.None(), {
      [oauth.customFetch]: this.#fetch,
      timeout: TIMEOUT_SEC,
      execute: this.#execute(),
    });
  }

  /** The settings allow http on loopback only, and only for development; the guard checks the address as well. */
  get #isHttp(): boolean {
    const { issuer, endpoints } = this.settings;
    return [issuer, endpoints?.authorization, endpoints?.token].some(url => url?.startsWith('http:'));
  }

  #execute(): ((configuration: oauth.Configuration) => void)[] {
    // The id_token's signature is checked despite TLS, because there may be a proxy in between.
    return [
      ...(this.settings.issuer === undefined ? [] : [oauth.enableNonRepudiationChecks]),
      ...(this.#isHttp ? [oauth.allowInsecureRequests] : []),
    ];
  }

  async #plainAccount(configuration: oauth.Configuration, accessToken: string): Promise<Account> {
    const { userinfo } = this.settings.endpoints ?? {};
    if (userinfo === undefined) return { subject: '', label: undefined };
    const response = await oauth.fetchProtectedResource(configuration, accessToken, new URL(userinfo), 'GET');
    if (!response.ok) throw new Error(`the userinfo endpoint returned HTTP ${response.status}`);
    return accountOf((await response.json()) as Record<string, unknown>);
  }
}

/** Keeps only signature algorithms that the provider's published keys can verify; openid-client would accept all that it lists. */
function withAsymmetricOnly(metadata: oauth.ServerMetadata): oauth.ServerMetadata {
  const listed = metadata.id_token_signing_alg_values_supported;
  if (!listed) return metadata;
  const usable = listed.filter(name => name !== 'none' && !name.startsWith('HS'));
  return { ...metadata, id_token_signing_alg_values_supported: usable };
}

/** Refuses a provider whose clock is wrong, because it would also set wrong lifetimes (OpenID Connect Core §3.1.3.7, 10). */
function requireFresh(issuedAtSec: number, nowMs: number): void {
  const offSec = Math.abs(issuedAtSec - nowMs / 1000);
  if (offSec > MAX_CLOCK_DIFFERENCE_SEC)
    throw new Error(`the id_token's issue time differs from the clock by ${Math.round(offSec)} s`);
}

function plainMetadata(endpoints: ProviderSettings['endpoints']): oauth.ServerMetadata {
  if (!endpoints) throw new Error('a provider has neither an issuer nor endpoints');
  return {
    // Never compared, but required by openid-client.
    issuer: new URL(endpoints.authorization).origin,
    authorization_endpoint: endpoints.authorization,
    token_endpoint: endpoints.token,
    ...(endpoints.revocation === undefined ? {} : { revocation_endpoint: endpoints.revocation }),
  };
}

const resourceParameter = (resource: string): Record<string, string> => (resource === '' ? {} : { resource });

/** Reads a token response. @param asked the scopes that were granted if it names none */
export function grantOf(
  tokens: { access_token: string; refresh_token?: string; expires_in?: number; scope?: string },
  asked: readonly string[],
): Grant {
  const { scope, expires_in: expiresInSec } = tokens;
  return {
    accessToken: tokens.access_token,
    refreshToken: tokens.refresh_token,
    expiresInSec:
      expiresInSec === undefined || !(expiresInSec > 0)
        ? undefined
        : Math.min(expiresInSec, MAX_LIFETIME_SEC),
    // RFC 6749 §5.1: without `scope`, the requested scopes were granted. (GitHub separates with commas.)
    scopes: scope === undefined ? asked : scope.split(/[ ,]+/).filter(name => /^[\x21-\x7e]+$/.test(name)),
  };
}

/** OpenID has `sub`; plain providers have `id`. The label is the account's display name. @throws Error without an id */
export function accountOf(claims: Readonly<Record<string, unknown>>): Account {
  const text = (name: string) => {
    const value = claims[name];
    if (typeof value === 'number') return String(value);
    return typeof value === 'string' && value !== '' ? value : undefined;
  };
  const label = text('email') ?? text('preferred_username') ?? text('login') ?? text('name');
  const subject = text(claims['sub'] === undefined || claims['sub'] === null ? 'id' : 'sub');
  if (subject === undefined) throw new Error('the account has no id: sub or id');
  if (/\p{C}/u.test(subject)) throw new Error('the account id contains control characters');
  // Some providers send the claim as text.
  const isVerified = claims['email_verified'] === true || claims['email_verified'] === 'true';
  const email = isVerified ? text('email') : undefined;
  return { subject, label: label?.replaceAll(/\p{C}/gu, '').slice(0, 320), email };
}
