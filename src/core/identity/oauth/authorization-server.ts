import { decodeJwt } from 'jose';
import * as oauth from 'oauth4webapi';
import { newNonce } from '../../../platform/ids.ts';
import type { GuardedFetch } from '../../../platform/outbound/fetch.ts';
import {
  accountOf,
  grantOf,
  ProviderError,
  type Account,
  type Grant,
  type TokenIssuer,
} from '../connections/provider.ts';
import { scopeNames } from './challenge.ts';
import type { Client, ClientName, IssuedTo } from './client.ts';
import type { IssuerMetadata } from './metadata.ts';
import { atTokenHost, isOpen, tokenHostOf } from './token-host.ts';

/** Deviations of one server from the specification; its catalogue entry declares them. */
interface Quirks {
  /** The parameter that carries the scopes, instead of `scope`. */
  readonly scopeParam?: string | undefined;
  /** More parameters of the authorization request. */
  readonly authorizeParams?: Readonly<Record<string, string>> | undefined;
}

export interface AuthorizationRequest {
  readonly state: string;
  readonly verifier: string;
  readonly redirectUri: string;
  readonly scopes: readonly string[];
  readonly quirks: Quirks;
}

/** The request that an authorization code was issued for. */
interface CodeProof {
  readonly state: string;
  readonly verifier: string;
  readonly redirectUri: string;
}

interface Options {
  readonly metadata: IssuerMetadata;
  readonly client: Client;
  readonly resource: string;
  readonly tokenHost: IssuedTo['tokenHost'] | undefined;
  readonly fetch: GuardedFetch;
  readonly onUnknownClient: (client: ClientName) => Promise<void>;
}

/** One authorization server, with Switchboard's client there, for one resource. Discovery has validated its metadata. */
export class AuthorizationServer implements TokenIssuer {
  readonly client: Client;
  readonly resource: string;
  readonly #options: Options;
  readonly #server: oauth.AuthorizationServer;
  /** The guard has decided which addresses may be used, plain http included. */
  readonly #requests: {
    readonly [oauth.customFetch]: GuardedFetch;
    readonly [oauth.allowInsecureRequests]: true;
  };

  constructor(options: Options) {
    const { metadata, client, resource, tokenHost, fetch } = options;
    this.#options = options;
    this.client = client;
    this.resource = resource;
    const isElsewhere = tokenHost !== undefined && !isOpen(tokenHost);
    const server = isElsewhere ? atTokenHost(metadata, tokenHost) : metadata;
    // Metadata read later may no longer announce what the client of a document depends on.
    const named = client.kind === 'cimd' ? { authorization_response_iss_parameter_supported: true } : {};
    this.#server = { ...server, ...named } as oauth.AuthorizationServer;
    this.#requests = { [oauth.customFetch]: fetch, [oauth.allowInsecureRequests]: true };
  }

  get name(): string {
    return this.client.issuer;
  }

  get issuedTo(): IssuedTo {
    const { issuer, clientId, kind, rowId } = this.client;
    const { tokenHost } = this.#options;
    return {
      issuer,
      clientId,
      kind,
      resource: this.resource,
      ...(rowId === undefined ? {} : { rowId }),
      ...(tokenHost === undefined ? {} : { tokenHost }),
    };
  }

  /** Returns the address of the page on which the user signs in. */
  async authorizationUrl(request: AuthorizationRequest): Promise<string> {
    const { state, verifier, redirectUri, scopes, quirks } = request;
    const page = new URL(this.#server.authorization_endpoint ?? '');
    const parameters = {
      ...quirks.authorizeParams,
      response_type: 'code',
      client_id: this.client.clientId,
      redirect_uri: redirectUri,
      state,
      code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
      code_challenge_method: 'S256',
      ...(scopes.length === 0 ? {} : { [quirks.scopeParam ?? 'scope']: scopes.join(' ') }),
      ...this.#forResource,
    };
    for (const [name, value] of Object.entries(parameters)) page.searchParams.set(name, value);
    return page.href;
  }

  /**
   * Exchanges the code in the callback's query for tokens. The issuer is checked first (RFC 9207), in errors as well.
   * @throws ProviderError
   */
  exchange(
    query: URLSearchParams,
    proof: CodeProof,
    scopes: readonly string[],
  ): Promise<{ grant: Grant; account: Account }> {
    return this.#asking(() => {
      const answer = oauth.validateAuthResponse(this.#server, this.#id, query, proof.state);
      const { tokenHost } = this.#options;
      if (!isOpen(tokenHost)) return this.#redeem(answer, proof, scopes);
      const host = tokenHostOf(tokenHost, answer.get('domain'), this.name);
      const there = new AuthorizationServer({ ...this.#options, tokenHost: host });
      return there.#redeem(answer, proof, scopes);
    });
  }

  async #redeem(answer: URLSearchParams, proof: CodeProof, scopes: readonly string[]) {
    const response = await oauth.authorizationCodeGrantRequest(
      this.#server,
      this.#id,
      this.#authentication,
      answer,
      proof.redirectUri,
      proof.verifier,
      { ...this.#requests, additionalParameters: this.#forResource },
    );
    const { mended, label } = await mend(response);
    const tokens = await oauth.processAuthorizationCodeResponse(this.#server, this.#id, mended);
    // No server has to say which account it is.
    return { grant: this.#grant(tokens, scopes), account: { subject: '', label } };
  }

  /** Refreshes tokens. @throws ProviderError `invalid_grant` if the user must sign in again */
  refresh(refreshToken: string, { scopes }: { readonly scopes: readonly string[] }): Promise<Grant> {
    return this.#asking(async () => {
      const response = await oauth.refreshTokenGrantRequest(
        this.#server,
        this.#id,
        this.#authentication,
        refreshToken,
        { ...this.#requests, additionalParameters: this.#forResource },
      );
      const { mended } = await mend(response);
      return this.#grant(await oauth.processRefreshTokenResponse(this.#server, this.#id, mended), scopes);
    });
  }

  /** Revokes a token (RFC 7009). Resolves to false if the server has no endpoint for that. */
  async revoke(token: string, hint: 'access_token' | 'refresh_token'): Promise<boolean> {
    if (this.#server.revocation_endpoint === undefined) return false;
    return this.#asking(async () => {
      const options = { ...this.#requests, additionalParameters: { token_type_hint: hint } };
      const response = await oauth.revocationRequest(
        this.#server,
        this.#id,
        this.#authentication,
        token,
        options,
      );
      const answer = response.status === 200 ? response : (await mend(response)).mended;
      await oauth.processRevocationResponse(answer).catch((error: unknown) => {
        if (!isGone(error)) throw error;
      });
      return true;
    });
  }

  /** Asks with a made-up code whether the client is still known. Any other answer than `invalid_client` counts as yes. */
  async knowsClient(redirectUri: string): Promise<boolean> {
    const parameters = new URLSearchParams({
      code: newNonce(),
      code_verifier: newNonce(),
      redirect_uri: redirectUri,
    });
    try {
      const response = await oauth.genericTokenEndpointRequest(
        this.#server,
        this.#id,
        this.#authentication,
        'authorization_code',
        parameters,
        this.#requests,
      );
      const { error } = (await response.json()) as { error?: unknown };
      return error !== 'invalid_client';
    } catch {
      return true;
    }
  }

  #grant(tokens: oauth.TokenEndpointResponse, asked: readonly string[]): Grant {
    if (!/^[\x21-\x7e]{1,16384}$/.test(tokens.access_token))
      throw new Error('the access token cannot be sent in a header');
    const grant = grantOf(tokens, asked);
    return { ...grant, scopes: scopeNames(grant.scopes), issuedTo: this.issuedTo };
  }

  async #asking<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      throw await this.#classified(error);
    }
  }

  async #classified(error: unknown): Promise<ProviderError> {
    if (error instanceof oauth.AuthorizationResponseError)
      return new ProviderError(error.error === 'access_denied' ? 'denied' : 'refused', error);
    const code = error instanceof oauth.ResponseBodyError ? error.error : undefined;
    if (code === 'invalid_client') {
      await this.#options.onUnknownClient(this.client);
      // Nobody can refresh what a forgotten client was given. The operator's own client may only have a wrong secret.
      if (this.client.kind === 'dcr') return new ProviderError('invalid_grant', error);
    }
    return new ProviderError(code === 'invalid_grant' ? 'invalid_grant' : 'failed', error);
  }

  get #forResource(): Record<string, string> {
    return this.resource === '' ? {} : { resource: this.resource };
  }

  get #id(): oauth.Client {
    return { client_id: this.client.clientId };
  }

  get #authentication(): oauth.ClientAuth {
    const { secret, authMethod } = this.client;
    if (secret === undefined || authMethod === 'none') return oauth.None();
    return authMethod === 'client_secret_post'
      ? oauth.ClientSecretPost(secret)
      : basic(this.client.clientId, secret);
  }
}

/**
 * RFC 6749 §2.3.1, where only characters are encoded that must be: many servers do not decode, and the library encodes `-` and `_`
 * as well.
 */
const basic = (id: string, secret: string): oauth.ClientAuth => {
  const encoded = (text: string) => new URLSearchParams([['', text]]).toString().slice(1);
  const credentials = Buffer.from(`${encoded(id)}:${encoded(secret)}`).toString('base64');
  return (_server, _client, _body, headers) => headers.set('authorization', `Basic ${credentials}`);
};

/** RFC 7009 §2.2.1: the token is invalid already, or of a kind that is not revoked. */
const isGone = (error: unknown) =>
  error instanceof oauth.ResponseBodyError && /^(invalid_token|unsupported_token_type)$/.test(error.error);

/**
 * Normalizes non-conforming token responses: null for absent members, no token type, lists of scopes, lifetimes as text. An
 * id_token is not needed, so its checks must not fail the sign-in; it only gives the account's name.
 */
async function mend(response: Response): Promise<{ mended: Response; label?: string | undefined }> {
  const { status } = response;
  const body = parsed(await response.text());
  // Without its challenge, because the library reads no error beside one.
  if (status !== 200) return { mended: Response.json(body ?? {}, { status }) };
  // The text itself may hold tokens, and must not get into a log.
  if (!body) throw new Error('the token endpoint returned no JSON object');
  const present = Object.entries(body).filter(([, value]) => value !== null);
  const {
    id_token: idToken,
    scope,
    expires_in: lifetime,
    ...rest
  } = Object.fromEntries(present) as TokenBody;
  const seconds = Number(lifetime);
  const mended = {
    ...rest,
    token_type: bearer(rest.token_type),
    ...(scope === undefined ? {} : { scope: Array.isArray(scope) ? scope.join(' ') : scope }),
    ...(seconds > 0 && seconds < Infinity ? { expires_in: seconds } : {}),
  };
  return {
    mended: Response.json(mended),
    label: typeof idToken === 'string' ? labelOf(idToken) : undefined,
  };
}

/** @throws Error for a token that is bound to something, and cannot be sent as it is */
function bearer(type: unknown): 'bearer' {
  if (type === undefined || (typeof type === 'string' && type.toLowerCase() === 'bearer')) return 'bearer';
  throw new Error('the token is not a bearer token');
}

function parsed(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const body: unknown = JSON.parse(text);
    const isObject = typeof body === 'object' && body !== null && !Array.isArray(body);
    return isObject ? (body as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

interface TokenBody {
  readonly token_type?: unknown;
  readonly id_token?: unknown;
  readonly scope?: unknown;
  readonly expires_in?: unknown;
}

/** Returns the account's name, unverified: the id_token came from the token endpoint itself, and only people read the name. */
function labelOf(idToken: string): string | undefined {
  try {
    return accountOf(decodeJwt(idToken)).label;
  } catch {
    return undefined;
  }
}
