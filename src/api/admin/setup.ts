import { z } from 'zod';
import { clientFields } from '../../config/oauth.ts';
import { SwitchboardError } from '../../errors.ts';
import { credentialValues } from '../http/connection-schemas.ts';
import { isStorable } from '../../platform/json/limits.ts';
import { endpoint, storable, type Endpoint } from '../http/endpoint.ts';
import { ADMIN, ADMIN_READ } from './fields.ts';

const concerned = {
  count: z.int().describe('The number of servers.'),
  servers: z.array(z.string()).describe('Some of their ids.'),
};

const setup = endpoint({
  ...ADMIN_READ,
  method: 'get',
  path: '/setup',
  operationId: 'showSetup',
  summary: 'Show what is set up for sign-ins',
  description:
    "Returns Switchboard's OAuth clients, the identity providers, and what active servers need besides. Secrets are never shown. Of what is missing, each list has the 200 members that most servers need. Of the OAuth clients in the database, those that were entered come first, and at most 200 are returned.",
  errors: ['invalid_request'],
  querySchema: z.strictObject({
    issuer: storable(z.string().min(1).max(2_048))
      .optional()
      .describe('An issuer, to learn the redirect URI of an app that you create there.'),
  }),
  responseSchema: z.object({
    redirect_uri: z.string().optional().describe('The redirect URI for the issuer in the query.'),
    public_url: z.string().describe('The address that redirect URIs begin with. The setting PUBLIC_URL.'),
    client_metadata_url: z
      .string()
      .nullable()
      .describe('The document that describes Switchboard as a client. null: it has no https address.'),
    return_url: z.string().describe('The redirect URI in that document.'),
    oauth_clients: z.array(
      z.object({
        issuer: z.string(),
        source: z
          .enum(['setting', 'entered', 'registered'])
          .describe(
            'setting: SWITCHBOARD_OAUTH_CLIENTS, which comes first. entered: PUT /setup/oauth-clients. registered: by Switchboard itself.',
          ),
        client_id: z.string(),
        redirect_uri: z.string(),
        has_secret: z.boolean(),
        token_auth_method: clientFields.token_auth_method
          .unwrap()
          .nullable()
          .describe('null: the best that the authorization server supports.'),
        scopes: z.array(z.string()).describe('Scopes of every sign-in.'),
        servers: z.int().describe('The number of servers that sign users in there.'),
        allowed_origins: z
          .array(z.string())
          .describe('Origins of servers of other domains that may receive its tokens.'),
        created_at: z.iso.datetime().nullable(),
      }),
    ),
    oauth_needed: z
      .array(
        z.object({
          issuer: z.string(),
          redirect_uri: z.string().describe('The redirect URI to enter when the app is created.'),
          origins: z.array(z.string()).describe('Some of the origins of these servers.'),
          ...concerned,
        }),
      )
      .describe('Authorization servers that need a client: PUT /setup/oauth-clients.'),
    providers: z.array(
      z.object({
        name: z.string(),
        title: z.string(),
        is_configured: z.boolean().describe('false: it has no client id yet.'),
        issuer: z.string().nullable(),
        redirect_uri: z.string(),
        allowed_origins: z.array(z.string()).describe('Origins of servers that may receive its tokens.'),
        servers: z.int().describe('The number of servers that name it.'),
      }),
    ),
    providers_missing: z
      .array(z.object({ name: z.string(), ...concerned }))
      .describe('Providers that servers name and that are not in SWITCHBOARD_PROVIDERS.'),
    origins_missing: z
      .array(z.object({ provider: z.string(), origin: z.string(), ...concerned }))
      .describe('Origins of servers that may not receive the tokens of their provider.'),
    settings: z.record(z.string(), z.string()).describe('The settings that change this.'),
  }),
  handle: async ({ identity, catalogue }, _caller, { query }) => ({
    ...(query.issuer === undefined
      ? {}
      : { redirect_uri: identity.authorization.clients.redirectUri(query.issuer) }),
    ...(await identity.setup.show(catalogue.active())),
    settings: SETTINGS,
  }),
});

const SETTINGS = {
  public_url: 'PUBLIC_URL',
  client_metadata_url: 'SWITCHBOARD_CLIENT_METADATA_URL',
  oauth_clients: 'SWITCHBOARD_OAUTH_CLIENTS',
  oauth_issuers: 'SWITCHBOARD_OAUTH_ISSUERS',
  providers: 'SWITCHBOARD_PROVIDERS',
};

const issuer = z
  .url({ protocol: /^https?$/, error: 'must be the URL of an issuer' })
  .max(2_048)
  .refine(isStorable, 'must not contain a NUL character or an unpaired surrogate')
  .describe('The issuer, exactly as GET /setup has it.');

/** RFC 8414 §2: an issuer has no query and no fragment. A user name or password would be shown to everybody who may look. */
const isPlain = (text: string) => {
  const url = URL.parse(text);
  // An invalid URL is refused as such.
  return url === null || (url.username === '' && url.password === '' && !/[?#]/.test(text));
};

const enterClient = endpoint({
  ...ADMIN,
  method: 'put',
  path: '/setup/oauth-clients',
  operationId: 'enterOAuthClient',
  summary: 'Enter an OAuth app',
  description:
    'Stores the client that you have registered with an authorization server, instead of an earlier one. Sign-ins use it at once. With an unchanged client_id, an absent field keeps its value; null removes it. The secret is stored encrypted and never returned. A client in SWITCHBOARD_OAUTH_CLIENTS comes first.',
  errors: [],
  bodySchema: z.strictObject({
    issuer: issuer.refine(isPlain, 'must have no user name, password, query or fragment'),
    client_id: storable(z.string().min(1).max(2_048)),
    client_secret: z.string().min(1).max(4_096).nullish(),
    token_auth_method: clientFields.token_auth_method.nullable(),
    scopes: clientFields.scopes.nullable(),
    allowed_origins: clientFields.allowed_origins.nullable(),
  }),
  responseSchema: z.object({ issuer: z.string(), redirect_uri: z.string() }),
  handle: async ({ identity, catalogue, allowHttp }, caller, { body }) => {
    const { issuer: name } = body;
    if (!name.startsWith('https:') && !allowHttp)
      throw new SwitchboardError('invalid_request', 'issuer: must be https');
    const { authorization } = identity;
    const client = {
      id: body.client_id,
      secret: body.client_secret,
      authMethod: body.token_auth_method,
      scopes: body.scopes,
      allowedOrigins: body.allowed_origins,
    };
    await authorization.enterClient(caller, name, { client, servers: catalogue.active() });
    return { issuer: name, redirect_uri: authorization.clients.redirectUri(name) };
  },
});

const removeClient = endpoint({
  ...ADMIN,
  method: 'post',
  path: '/setup/oauth-clients/remove',
  operationId: 'removeOAuthClient',
  summary: 'Remove an OAuth app',
  description:
    'No more sign-ins use the client that was entered. Accounts that were connected with it stay connected. removed is false if there was none.',
  errors: [],
  bodySchema: z.strictObject({ issuer }),
  responseSchema: z.object({ removed: z.boolean() }),
  handle: async ({ identity }, caller, { body }) => ({
    removed: await identity.authorization.clients.remove(caller, body.issuer),
  }),
});

const field = z.object({
  name: z.string(),
  description: z.string().optional(),
  is_required: z.boolean(),
  is_secret: z.boolean(),
  default: z.string().optional(),
  choices: z.array(z.string()).optional(),
});

const form = endpoint({
  ...ADMIN_READ,
  method: 'get',
  path: '/connections/form',
  operationId: 'showCredentialForm',
  summary: "Show what a server's key consists of",
  description: 'Returns the values to send to PUT /connections. Fails for a server that takes none.',
  errors: ['invalid_request', 'server_not_found', 'server_inactive'],
  querySchema: z.strictObject({ server_id: credentialValues.server_id }),
  responseSchema: z.object({
    name: z.string(),
    host: z.string(),
    key_url: z.string().nullable().describe('The page where a key is created. null: unknown.'),
    takes_header: z.boolean().describe('true: the key may go in another header than Authorization.'),
    fields: z.array(field),
  }),
  handle: ({ serverConnections }, _caller, { query: { server_id } }) => {
    const { server, fields, takesHeader } = serverConnections.form(server_id);
    return Promise.resolve({
      name: server.name,
      host: new URL(server.remoteUrl).host,
      key_url: server.auth.key_url ?? null,
      takes_header: takesHeader,
      fields: fields.map(({ isRequired, isSecret, ...one }) =>
        Object.assign(one, { is_required: isRequired, is_secret: isSecret }),
      ),
    });
  },
});

export const setupEndpoints: readonly Endpoint[] = [setup, enterClient, removeClient, form];
