import { randomBytes } from 'node:crypto';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { exportJWK, generateKeyPair } from 'jose';
import { Provider, type Configuration, type JWK } from 'oidc-provider';
import { FaultInjection, type FaultyEndpoint, type Faults } from './identity-provider-faults.ts';
import { closeNow } from './close-now.ts';
import type { Hold, When } from './holds.ts';
import { Front, type Hits } from './identity-provider-front.ts';
import { ProviderStore } from './identity-provider-store.ts';

export interface IdentityProviderOptions {
  /** Default 0: a free port. */
  readonly port?: number;
  /** More can be allowed later. */
  readonly redirectUris?: readonly string[];
  /** Default 3600; can be changed while it runs. */
  readonly accessTokenTtlSec?: number;
  /** Default true: a refresh answers a new refresh token, and the old one used again ends the grant. */
  readonly rotateRefreshToken?: boolean;
}

export interface IdentityProvider extends AsyncDisposable {
  /** `http://127.0.0.1:PORT` */
  readonly issuer: string;
  readonly clientId: string;
  readonly clientSecret: string;
  /** Holds for tokens issued from now on. */
  accessTokenTtlSec: number;
  readonly hits: Hits;
  /** Every code, code verifier, access, refresh and id token that went over HTTP: none may turn up in a log or a database dump. */
  readonly secretsSeen: ReadonlySet<string>;
  /** Assign to spoil an endpoint (`faults.token = { status: 500 }`), assign `{}` to repair it. */
  readonly faults: Record<FaultyEndpoint, Faults>;
  /**
   * Stops every request to the endpoint, before the provider sees it or when its answer is ready, until released. Tests
   * wait for `arrived` instead of for time.
   */
  hold(endpoint: FaultyEndpoint, when: When): Hold;
  allowRedirect(uri: string): void;
  /** Asks the provider's introspection endpoint (RFC 7662). */
  introspect(token: string): Promise<{ readonly active: boolean }>;
  /** As when the user withdraws access in the provider's own settings: the next refresh is an `invalid_grant`. */
  revokeEverythingOf(login: string): void;
}

/** Fixed, so that a Switchboard set up for `npm run idp` goes on working when that is started anew. */
const CLIENT_ID = 'switchboard-test';
const CLIENT_SECRET = 'secret-of-the-test-client-worth-nothing-elsewhere';

const DAY_SEC = 86_400;
/** Short, so that a clock 10 minutes behind makes an id token that has expired. */
const ID_TOKEN_TTL_SEC = 300;

/**
 * A real OpenID Provider on loopback with one confidential client; PKCE is required, id tokens are signed with ES256 and
 * carry email and name. Signs in any login with any password on its own pages. As OpenID Connect Core section 11 says,
 * `offline_access` is granted only when the request has `prompt=consent`.
 */
export async function startIdentityProvider({
  port = 0,
  redirectUris = [],
  accessTokenTtlSec = 3600,
  rotateRefreshToken = true,
}: IdentityProviderOptions = {}): Promise<IdentityProvider> {
  const keys = await generateKeyPair('ES256', { extractable: true });
  const signingKey = { kid: 'test-1', privateKey: keys.privateKey };
  const jwk = { ...(await exportJWK(keys.privateKey)), use: 'sig', alg: 'ES256', kid: signingKey.kid };

  const redirects = new Set(redirectUris);
  const store = new ProviderStore(() => ({
    client_id: CLIENT_ID,
    client_secret: CLIENT_SECRET,
    redirect_uris: [...redirects],
    grant_types: ['authorization_code', 'refresh_token'],
    response_types: ['code'],
    id_token_signed_response_alg: 'ES256',
  }));
  const injection = new FaultInjection();

  let providerPort = 0;
  const front = new Front(injection, signingKey, () => providerPort);
  const frontServer = createServer(front.listener);
  const issuer = `http://127.0.0.1:${await listenOn(frontServer, port)}`;
  const ttl = { accessTokenSec: accessTokenTtlSec };
  const provider = constructQuietly(
    issuer,
    configuration({
      store,
      jwk,
      rotateRefreshToken,
      accessTokenTtlSec: () => ttl.accessTokenSec,
    }),
  );
  const answer = provider.callback();
  const providerServer = createServer((request, response) => void answer(request, response));
  providerPort = await listenOn(providerServer, 0);

  return {
    issuer,
    clientId: CLIENT_ID,
    clientSecret: CLIENT_SECRET,
    hits: front.hits,
    secretsSeen: front.secretsSeen,
    faults: injection.faults,
    get accessTokenTtlSec() {
      return ttl.accessTokenSec;
    },
    set accessTokenTtlSec(seconds) {
      ttl.accessTokenSec = seconds;
    },
    hold: (endpoint, when) => injection.hold(endpoint, when),
    allowRedirect: uri => void redirects.add(uri),
    introspect: token => introspect(issuer, token),
    revokeEverythingOf: login => store.forget(login),
    async [Symbol.asyncDispose]() {
      await Promise.all([frontServer, providerServer].map(closeNow));
    },
  };
}

interface Settings {
  readonly store: ProviderStore;
  readonly jwk: JWK;
  readonly rotateRefreshToken: boolean;
  readonly accessTokenTtlSec: () => number;
}

/** Everything the provider would otherwise take a default for and say so on the console is stated here. */
const configuration = (settings: Settings): Configuration => ({
  adapter: model => settings.store.adapter(model),
  jwks: { keys: [settings.jwk] },
  cookies: { keys: [randomBytes(24).toString('hex')] },
  pkce: { required: () => true },
  scopes: ['openid', 'offline_access', 'email', 'profile', 'calendar.read', 'calendar.write'],
  claims: { openid: ['sub'], email: ['email', 'email_verified'], profile: ['name'] },
  // Puts email and name into the id token, as Google does; the default leaves them to the userinfo endpoint.
  conformIdTokenClaims: false,
  findAccount: (_context, login) => ({
    accountId: login,
    claims: () => ({
      sub: login,
      email: login.includes('@') ? login : `${login}@example.test`,
      email_verified: true,
      name: login,
    }),
  }),
  features: {
    devInteractions: { enabled: true },
    revocation: { enabled: true, allowedPolicy: () => true },
    introspection: { enabled: true, allowedPolicy: () => true },
  },
  rotateRefreshToken: settings.rotateRefreshToken,
  clientBasedCORS: () => false,
  renderError: (context, { error, error_description: description }) => {
    context.type = 'text/plain';
    context.body = `${error}: ${description}`;
  },
  ttl: {
    AccessToken: settings.accessTokenTtlSec,
    AuthorizationCode: 60,
    IdToken: ID_TOKEN_TTL_SEC,
    RefreshToken: DAY_SEC,
    Grant: DAY_SEC,
    Interaction: 3600,
    Session: DAY_SEC,
  },
});

/** Without its warning that the sign-in pages are for development, which is what they are used for. */
function constructQuietly(issuer: string, settings: Configuration): Provider {
  const { warn } = console;
  console.warn = () => {};
  try {
    return new Provider(issuer, settings);
  } finally {
    console.warn = warn;
  }
}

async function introspect(issuer: string, token: string): Promise<{ active: boolean }> {
  const credentials = Buffer.from(`${CLIENT_ID}:${CLIENT_SECRET}`).toString('base64');
  const response = await fetch(`${issuer}/token/introspection`, {
    method: 'POST',
    headers: { authorization: `Basic ${credentials}` },
    body: new URLSearchParams({ token }),
  });
  return (await response.json()) as { active: boolean };
}

async function listenOn(server: Server, port: number): Promise<number> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, '127.0.0.1', resolve);
  });
  return (server.address() as AddressInfo).port;
}

/** How a Switchboard is told of it, without a title and the origins that may get its tokens. */
export const providerSettings = ({ issuer, clientId, clientSecret }: IdentityProvider) => ({
  issuer,
  client_id: clientId,
  client_secret: clientSecret,
  scopes: ['openid', 'email', 'offline_access'],
  // Without it this provider, as OpenID Connect says, gives no refresh token.
  auth_params: { prompt: 'consent' },
});
