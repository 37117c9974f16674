import { z } from 'zod';
import { credentialValues } from '../http/connection-schemas.ts';
import { endpoint, type Endpoint } from '../http/endpoint.ts';
import { ADMIN_READ } from './fields.ts';

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
    "Returns Switchboard's OAuth clients, the identity providers, and what active servers need besides. Secrets are never shown. Each list has at most 200 members, those of most servers first.",
  errors: [],
  responseSchema: z.object({
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
          .enum(['setting', 'registered'])
          .describe('setting: SWITCHBOARD_OAUTH_CLIENTS. registered: by Switchboard itself.'),
        client_id: z.string(),
        redirect_uri: z.string(),
        servers: z.int().describe('The number of servers that sign users in there.'),
        created_at: z.iso.datetime().nullable(),
      }),
    ),
    oauth_needed: z
      .array(
        z.object({
          issuer: z.string(),
          redirect_uri: z.string().describe('The redirect URI to enter when the app is created.'),
          ...concerned,
        }),
      )
      .describe('Authorization servers that need a client in SWITCHBOARD_OAUTH_CLIENTS.'),
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
  handle: async ({ identity, catalogue }) => ({
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
      fields: fields.map(({ isRequired, isSecret, ...one }) => ({
        ...one,
        is_required: isRequired,
        is_secret: isSecret,
      })),
    });
  },
});

export const setupEndpoints: readonly Endpoint[] = [setup, form];
