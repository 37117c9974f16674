import { z } from 'zod';
import { inWords } from '../platform/zod-issues.ts';
import { ConfigError, isHttps, readJson, setting, someText } from './setting.ts';

/** Switchboard as an OAuth client of MCP servers' own authorization servers. */
export interface OAuthConfig {
  /** Clients that the operator has registered, by issuer. */
  readonly clients: ReadonlyMap<string, RegisteredClient>;
  /** Issuers that servers of other domains may use; `*`: any. */
  readonly issuers: ReadonlySet<string>;
  /** A client ID metadata document that is hosted elsewhere. */
  readonly metadataUrl: string | undefined;
  /** The name that authorization servers show to users. */
  readonly clientName: string;
}

export interface RegisteredClient {
  readonly id: string;
  readonly secret: string | undefined;
  readonly authMethod: 'client_secret_basic' | 'client_secret_post' | 'none' | undefined;
  /** Scopes of every sign-in, besides those that the server asks for. */
  readonly scopes: readonly string[];
  /** Origins of servers of other domains that may receive its tokens. */
  readonly allowedOrigins: readonly string[];
}

export const oauthSettings = {
  SWITCHBOARD_OAUTH_CLIENTS: setting(
    someText.optional(),
    "OAuth clients for servers' own sign-ins, by issuer: JSON, or the path of a JSON file ([connections.md](connections.md#clients)).",
  ),
  SWITCHBOARD_OAUTH_ISSUERS: setting(
    someText.optional(),
    'Issuers, separated by commas, with which servers of other domains may sign users in, in addition to those that the catalogue names. `*` allows any ([connections.md](connections.md#whose-token-goes-where)).',
    'none',
  ),
  SWITCHBOARD_CLIENT_METADATA_URL: setting(
    z.url({ protocol: /^https$/, error: 'must be an https URL' }).optional(),
    'A client ID metadata document that is hosted elsewhere, for an installation that the internet cannot reach.',
    '`PUBLIC_URL/oauth/client.json`, if `PUBLIC_URL` is https',
  ),
  SWITCHBOARD_CLIENT_NAME: setting(
    z.string().min(1).max(100).default('Switchboard'),
    'The name that authorization servers show to users who sign in.',
  ),
};
type Settings = z.output<z.ZodObject<typeof oauthSettings>>;

const issuer = z.url({ protocol: /^https?$/, error: 'must be the URL of an issuer' });
const origin = issuer
  .refine(text => URL.canParse(text) && new URL(text).origin === text.replace(/\/$/, ''), {
    error: 'must be an origin, such as https://mcp.example.com',
  })
  .transform(text => new URL(text).origin);

/** An OAuth client that the operator has registered. */
export const clientFields = {
  client_id: z.string().min(1),
  client_secret: z.string().min(1).optional(),
  token_auth_method: z.enum(['client_secret_basic', 'client_secret_post', 'none']).optional(),
  scopes: z.array(z.string().regex(/^[\x21\x23-\x5b\x5d-\x7e]+$/, 'must be scope names')).optional(),
  allowed_origins: z.array(origin).optional(),
};

const clientsSchema = z.record(issuer, z.strictObject(clientFields));

/** @param allowHttp allows plain http, for development. @throws ConfigError */
export function readOAuth(settings: Settings, allowHttp: boolean): OAuthConfig {
  return {
    clients: readClients(settings.SWITCHBOARD_OAUTH_CLIENTS, allowHttp),
    issuers: readIssuers(settings.SWITCHBOARD_OAUTH_ISSUERS),
    metadataUrl: settings.SWITCHBOARD_CLIENT_METADATA_URL,
    clientName: settings.SWITCHBOARD_CLIENT_NAME,
  };
}

function readClients(value: string | undefined, allowHttp: boolean): OAuthConfig['clients'] {
  if (value === undefined) return new Map();
  const refuse = (why: string) => new ConfigError(`SWITCHBOARD_OAUTH_CLIENTS: ${why}`);
  const parsed = clientsSchema.safeParse(readJson(value, refuse));
  if (!parsed.success) throw refuse(inWords(parsed.error.issues.slice(0, 1)));
  const plain = Object.keys(parsed.data).find(name => !isHttps(name));
  if (plain !== undefined && !allowHttp)
    throw refuse(`${plain} must be https (http only with SWITCHBOARD_ALLOW_PRIVATE_NETWORK=true)`);
  return new Map(Object.entries(parsed.data).map(([name, fields]) => [name, registeredClient(fields)]));
}

/** Returns a client as its fields describe it. */
const registeredClient = (fields: z.output<z.ZodObject<typeof clientFields>>): RegisteredClient => ({
  id: fields.client_id,
  secret: fields.client_secret,
  authMethod: fields.token_auth_method,
  scopes: fields.scopes ?? [],
  allowedOrigins: fields.allowed_origins ?? [],
});

function readIssuers(value: string | undefined): ReadonlySet<string> {
  const names = (value ?? '').split(',').flatMap(part => (part.trim() === '' ? [] : [part.trim()]));
  const wrong = names.find(name => name !== '*' && !issuer.safeParse(name).success);
  if (wrong !== undefined)
    throw new ConfigError(
      `SWITCHBOARD_OAUTH_ISSUERS: ${JSON.stringify(wrong)} must be the URL of an issuer, or *`,
    );
  return new Set(names);
}
