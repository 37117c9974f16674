import {
  Provider,
  errors,
  interactionPolicy,
  type Configuration,
  type KoaContextWithOIDC,
} from 'oidc-provider';
import type { Core } from '../../core/core.ts';
import { ACCESS_TOKEN_SEC } from '../../core/identity/grants/own-tokens.ts';
import { UNUSED_SEC, type Grants } from '../../core/identity/grants/grants.ts';
import { MCP_SCOPES } from '../../core/identity/grants/scopes.ts';
import { html, sendPage, visible } from '../pages/page.ts';
import { RecordAdapter } from './adapter.ts';
import { asker } from './asker.ts';
import { applyClientRules, RULED_MEMBER } from './client-rules.ts';
import { ROUTES } from './paths.ts';
import { findResource, scopesOf } from './resources.ts';

/** The time that a user has to sign in and consent, in seconds. */
const INTERACTION_SEC = 900;
const CODE_SEC = 60;
const MAX_ASSERTION_SEC = 3_600;
/** The key that stands for a grant ends it much earlier. */
const GRANT_SEC = 3_650 * 86_400;

export interface AuthorizationParts {
  readonly core: Pick<Core, 'rateLimits'>;
  readonly grants: Grants;
  /** Without a trailing slash. */
  readonly publicUrl: string;
}

/**
 * Creates the authorization server for MCP clients. All its state is in the database, so that any process can go on where another
 * has begun, and a new one can be created when the signing key changes.
 */
export async function createProvider(parts: AuthorizationParts): Promise<Provider> {
  const { grants } = parts;
  const provider = new Provider(grants.issuer, configurationOf(parts, await grants.signingKey()));
  // The mount passes on the public address, not the client's headers.
  provider.proxy = true;
  provider.use(async (context, next) => {
    await next();
    const { oidc, body } = context as KoaContextWithOIDC;
    if (oidc?.route === 'discovery') describeOAuth(body as Record<string, unknown>);
  });
  provider.on('server_error', (_context: unknown, error: Error) =>
    grants.log.error({ err: error }, 'the authorization server failed'),
  );
  // The fault is in the request: a stack would say nothing of it.
  const refused = ({ oidc }: KoaContextWithOIDC, error: Error & Partial<errors.OIDCProviderError>) =>
    grants.log.info(
      {
        error: error.error ?? error.name,
        reason: error.error_detail ?? error.error_description ?? error.message,
        client: oidc.client?.clientId,
      },
      'the authorization server refused a client',
    );
  provider.on('authorization.error', refused);
  provider.on('grant.error', refused);
  provider.on('registration_create.error', refused);
  return provider;
}

/** Leaves out of the metadata what only OpenID Connect has, which is not offered. */
function describeOAuth(metadata: Record<string, unknown>): void {
  metadata['scopes_supported'] = [...MCP_SCOPES.keys()];
  metadata['response_modes_supported'] = ['query'];
  for (const name of ['claims_supported', 'subject_types_supported', 'id_token_signing_alg_values_supported'])
    delete metadata[name];
}

type SigningKey = Awaited<ReturnType<Grants['signingKey']>>;

function configurationOf({ core, grants, publicUrl }: AuthorizationParts, jwk: SigningKey): Configuration {
  const cookie = {
    sameSite: 'lax',
    httpOnly: true,
    signed: true,
  } as const;
  return {
    adapter: kind => new RecordAdapter(kind, grants),
    jwks: { keys: [jwk] as NonNullable<Configuration['jwks']>['keys'] },
    cookies: {
      keys: [...grants.cookieKeys()],
      names: { session: 'sb_as_session', interaction: 'sb_as_interaction', resume: 'sb_as_resume' },
      long: { ...cookie, path: new URL(grants.issuer).pathname },
      // Each has the path of its own sign-in, of which a browser can have several at a time.
      short: cookie,
    },
    routes: ROUTES,
    // No OpenID Connect: clients get access to MCP endpoints, and learn nothing about the user.
    scopes: [],
    claims: {},
    responseTypes: ['code'],
    clientAuthMethods: ['none', 'client_secret_basic', 'client_secret_post', 'private_key_jwt'],
    clientDefaults: { id_token_signed_response_alg: 'ES256' },
    enabledJWA: { idTokenSigningAlgValues: ['ES256'] },
    extraClientMetadata: {
      properties: [RULED_MEMBER],
      validator: (_context, _key, _value, metadata) => applyClientRules(metadata),
    },
    pkce: { required: () => true },
    assertJwtClientAuthClaimsAndHeader(_context, { exp }) {
      // Each is remembered until it expires.
      if (Number(exp) > Date.now() / 1000 + MAX_ASSERTION_SEC)
        throw new errors.InvalidClientAuth(`the assertion must expire within ${MAX_ASSERTION_SEC} s`);
      return Promise.resolve();
    },
    rotateRefreshToken: true,
    issueRefreshToken: () => Promise.resolve(true),
    expiresWithSession: () => Promise.resolve(false),
    ttl: {
      AuthorizationCode: CODE_SEC,
      AccessToken: ACCESS_TOKEN_SEC,
      RefreshToken: UNUSED_SEC,
      Grant: GRANT_SEC,
      Interaction: INTERACTION_SEC,
      Session: INTERACTION_SEC,
    },
    features: {
      devInteractions: { enabled: false },
      userinfo: { enabled: false },
      rpInitiatedLogout: { enabled: false },
      dPoP: { enabled: false },
      pushedAuthorizationRequests: { enabled: false },
      registration: { enabled: true, issueRegistrationAccessToken: false },
      revocation: {
        enabled: true,
        allowedPolicy: (_context, client, token) => token.clientId === client.clientId,
      },
      clientIdMetadataDocument: {
        enabled: true,
        ack: 'draft-02',
      },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => `${publicUrl}/mcp`,
        useGrantedResource: () => true,
        getResourceServerInfo(_context, address) {
          const resource = findResource(publicUrl, address);
          if (!resource)
            throw new errors.InvalidTarget(
              `resource must be ${publicUrl}/mcp, or ${publicUrl}/mcp/{server_id}`,
            );
          return {
            scope: scopesOf(resource).join(' '),
            audience: resource.url,
            accessTokenFormat: 'jwt',
            accessTokenTTL: ACCESS_TOKEN_SEC,
            jwt: { sign: { alg: 'ES256' } },
          };
        },
      },
    },
    // The id of a grant is that of the key that stands for it.
    async extraTokenClaims(_context, token) {
      const { grantId } = token as { grantId?: string };
      if (grantId === undefined) throw new errors.InvalidGrant('the token belongs to no grant');
      await grants.prolong(grantId, ACCESS_TOKEN_SEC);
      return { key: grantId };
    },
    findAccount: (_context, accountId) => ({ accountId, claims: () => ({ sub: accountId }) }),
    // Each authorization is consented to anew: nothing tells whether a native client is the one that was allowed before.
    async loadExistingGrant({ oidc }) {
      const grantId = oidc.result?.consent?.grantId;
      if (grantId === undefined) return undefined;
      // One consent is good for one code.
      if (!(await grants.records.use('Grant', grantId)))
        throw Object.assign(new errors.SessionNotFound('it was answered before'), { allow_redirect: false });
      return oidc.provider.Grant.find(grantId);
    },
    interactions: {
      url: (_context, { uid }) => `${grants.issuer}/consent/${uid}`,
      policy: consentPolicy(),
    },
    // A failure is the client's: it cannot be found, or does not prove itself.
    fetch: async (url, options) => {
      await core.rateLimits.take('callback', asker.getStore() ?? '');
      const { method = 'GET', headers, signal } = options ?? {};
      const plain = Object.fromEntries(new Headers(headers as Record<string, string>));
      return grants.fetch(url instanceof Request ? url.url : url.toString(), {
        method,
        headers: plain,
        signal: signal ?? undefined,
      });
    },
    renderError(context, { error, error_description: description }) {
      // Koa must not write a response of its own.
      context.respond = false;
      sendPage(context.res, {
        status: context.status,
        title: 'This app cannot be connected',
        body: html`<p role="alert">The app’s request was refused, and nothing was changed.</p>
          <p>${visible(reasonFor(context, description ?? error))} (${error})</p>`,
      });
    },
  };
}

/** Says which host did not tell what the client is: the network of a private installation may have no way to it. */
function reasonFor({ query }: KoaContextWithOIDC, description: string): string {
  const { client_id: id } = query;
  if (!description.endsWith('document fetch failed') || typeof id !== 'string' || !URL.canParse(id))
    return description;
  return `The app says what it is at ${new URL(id).host}, which this service cannot read. Whoever runs the service can let it reach that host, or register the app.`;
}

/** Asks for sign-in and consent every time, in one step. */
function consentPolicy() {
  const { Prompt, Check } = interactionPolicy;
  const required = (name: 'login' | 'consent') =>
    new Prompt(
      { name, requestable: true },
      new Check(`${name}_required`, `${name} is required`, 'interaction_required', ({ oidc }) =>
        oidc.result?.[name] === undefined ? Check.REQUEST_PROMPT : Check.NO_NEED_TO_PROMPT,
      ),
    );
  return [required('login'), required('consent'), new Prompt({ name: 'select_account', requestable: true })];
}
