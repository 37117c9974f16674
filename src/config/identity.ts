import { z } from 'zod';
import { inWords } from '../platform/zod-issues.ts';
import { readOAuth, type oauthSettings, type OAuthConfig } from './oauth.ts';
import {
  ConfigError,
  httpUrl,
  isHttps,
  isOnLoopback,
  plainName,
  readJson,
  setting,
  someText,
  wholeNumber,
} from './setting.ts';

export interface IdentityConfig {
  /** Key-encryption keys: the first encrypts, all decrypt. Undefined: the key file in the data folder. */
  readonly keks: readonly Kek[] | undefined;
  readonly providers: ReadonlyMap<string, ProviderSettings>;
  readonly oauth: OAuthConfig;
  /** How long a second use of a refresh token counts as a race instead of theft; 0 means never. */
  readonly refreshRaceMs: number;
  /** The tokens to revoke when a refresh token is used twice: its family, or all of the user's. */
  readonly reuseAction: 'family' | 'user';
  /** True: starts with a new key after the old one was lost, and deletes everything encrypted with it. */
  readonly mayLoseStoredTokens: boolean;
}

/** A key-encryption key of 256 bits. Everything it encrypts carries its id. */
export interface Kek {
  readonly id: string;
  readonly key: Uint8Array;
}

export const identitySettings = {
  SWITCHBOARD_KEKS: setting(
    someText.optional(),
    'Keys of the token vault, `id:base64,…`. The first key encrypts, all decrypt. Required with `DATABASE_URL` or `NODE_ENV=production`.',
    'a key file in the data folder',
  ),
  SWITCHBOARD_VAULT_RESET: setting(
    z.literal('lose-stored-tokens', 'must be lose-stored-tokens, or unset').optional(),
    '`lose-stored-tokens` starts with a new key after the old one was lost: [identity.md](identity.md#when-a-key-is-lost).',
  ),
  SWITCHBOARD_PROVIDERS: setting(
    someText.optional(),
    'Identity providers: JSON, or the path of a JSON file ([identity.md](identity.md#providers)).',
  ),
  GOOGLE_CLIENT_ID: setting(someText.optional(), 'OAuth client for Google as an identity provider.'),
  GOOGLE_CLIENT_SECRET: setting(someText.optional(), 'Secret of that client.'),
  SWITCHBOARD_REFRESH_RACE_MS: setting(
    wholeNumber(0, 60_000, 'milliseconds').default(2000),
    'How long a refresh token may be used twice before it counts as theft. 0: a second use always counts as theft.',
  ),
  SWITCHBOARD_REFRESH_REUSE_ACTION: setting(
    z.enum(['family', 'user'], 'must be family or user').default('family'),
    'What theft revokes: the token `family`, or all tokens of the `user`.',
  ),
};
type Settings = z.output<z.ZodObject<typeof identitySettings & typeof oauthSettings>>;

interface Surroundings {
  /** Why this counts as production, such as `DATABASE_URL is set`. Undefined: it may be a trial. */
  readonly production: string | undefined;
  readonly publicUrl: string | undefined;
  /** Allows plain http on loopback, for development. */
  readonly allowHttp: boolean;
}

/** @throws ConfigError */
export function readIdentity(settings: Settings, surroundings: Surroundings): IdentityConfig {
  const { production, publicUrl, allowHttp } = surroundings;
  const keks = settings.SWITCHBOARD_KEKS === undefined ? undefined : parseKeks(settings.SWITCHBOARD_KEKS);
  if (keks === undefined && production !== undefined) {
    throw new ConfigError(
      `SWITCHBOARD_KEKS: must be set when ${production}: "k1:" and 32 random bytes in base64 (openssl rand -base64 32), or the keys of the installation that the data comes from`,
    );
  }
  const providers = readProviders(settings, allowHttp);
  if (production !== undefined) requirePublicUrl(providers, publicUrl, production);
  return {
    keks,
    providers,
    oauth: readOAuth(settings, allowHttp),
    refreshRaceMs: settings.SWITCHBOARD_REFRESH_RACE_MS,
    reuseAction: settings.SWITCHBOARD_REFRESH_REUSE_ACTION,
    mayLoseStoredTokens: settings.SWITCHBOARD_VAULT_RESET !== undefined,
  };
}

/** Reads `k2:base64,k1:base64`. Errors never quote the value. */
function parseKeks(value: string): readonly Kek[] {
  const keks = value.split(',').map((part, at) => {
    const match = /^\s*([a-z0-9][a-z0-9_-]{0,31}):([A-Za-z0-9+/_-]+={0,2})\s*$/.exec(part);
    const key = Buffer.from(match?.[2] ?? '', 'base64');
    if (!match?.[1] || key.length !== 32) {
      throw new ConfigError(
        `SWITCHBOARD_KEKS: entry ${at + 1} must be an id (a-z, 0-9, "_", "-"), ":" and 32 bytes in base64`,
      );
    }
    return { id: match[1], key: new Uint8Array(key) };
  });
  if (new Set(keks.map(({ id }) => id)).size < keks.length)
    throw new ConfigError('SWITCHBOARD_KEKS: two keys have the same id; ids must be unique');
  return keks;
}

function readProviders(settings: Settings, allowHttp: boolean): ReadonlyMap<string, ProviderSettings> {
  const refuse = (why: string) => new ConfigError(`SWITCHBOARD_PROVIDERS: ${why}`);
  const { SWITCHBOARD_PROVIDERS: value, GOOGLE_CLIENT_ID: id, GOOGLE_CLIENT_SECRET: secret } = settings;
  if ((id === undefined) !== (secret === undefined))
    throw new ConfigError('GOOGLE_CLIENT_ID: must be set together with GOOGLE_CLIENT_SECRET');
  const parsed = providersSchema.safeParse(value === undefined ? {} : readJson(value, refuse));
  if (!parsed.success) throw refuse(inWords(parsed.error.issues.slice(0, 1)));
  try {
    const resolved = resolveProviders(parsed.data, { id, secret });
    for (const provider of resolved.values()) requireSafeUrls(provider, allowHttp);
    return resolved;
  } catch (error) {
    throw refuse(error instanceof Error ? error.message : String(error));
  }
}

/** Refuses plain http, which would expose codes and tokens, except on loopback for development. */
function requireSafeUrls(provider: ProviderSettings, allowHttp: boolean): void {
  const { name, issuer, endpoints, allowedOrigins } = provider;
  const plain = allowedOrigins.find(origin => !isHttps(origin));
  if (plain !== undefined && !allowHttp)
    throw new Error(
      `${name}: allowed_origins: ${plain} must be https (http only with SWITCHBOARD_ALLOW_PRIVATE_NETWORK=true)`,
    );
  for (const text of [issuer, ...Object.values(endpoints ?? {})]) {
    if (text === undefined || isHttps(text) || (allowHttp && isOnLoopback(text))) continue;
    throw new Error(
      `${name}: ${text} must be https (http only on loopback, with SWITCHBOARD_ALLOW_PRIVATE_NETWORK=true)`,
    );
  }
}

/**
 * Requires PUBLIC_URL if a provider is configured: providers redirect users to it, and identity tokens name it as their
 * issuer. An address derived from the listener would be wrong behind a proxy and would change with the port.
 */
function requirePublicUrl(
  providers: IdentityConfig['providers'],
  publicUrl: string | undefined,
  production: string,
): void {
  const configured = [...providers.values()].find(({ client }) => client !== undefined);
  if (!configured) return;
  const what = `when ${production} and the identity provider ${configured.name} is configured`;
  if (publicUrl === undefined)
    throw new ConfigError(
      `PUBLIC_URL: must be set ${what}: sign-ins return to it, and identity tokens name it as their issuer`,
    );
  if (!isHttps(publicUrl) && !isOnLoopback(publicUrl))
    throw new ConfigError(`PUBLIC_URL: must be https ${what}, because codes and tokens are sent to it`);
}

const webUrl = httpUrl.refine(text => !/^https?:\/\/[^/]*@/.test(text), 'must not contain credentials');
const origin = webUrl
  .refine(
    text => new URL(text).origin === text.replace(/\/$/, ''),
    'must be an origin, such as https://mcp.example.com',
  )
  .transform(text => new URL(text).origin);

/** An identity provider: either an OpenID issuer, whose metadata has the endpoints, or plain OAuth 2 endpoints. */
const providerFields = z.strictObject({
  issuer: webUrl.optional(),
  authorization_endpoint: webUrl.optional(),
  token_endpoint: webUrl.optional(),
  revocation_endpoint: webUrl.optional(),
  userinfo_endpoint: webUrl.optional(),
  client_id: z.string().min(1).optional(),
  client_secret: z.string().min(1).optional(),
  title: z.string().min(1).max(100).optional(),
  scopes: z
    .array(z.string().regex(/^[\x21\x23-\x5b\x5d-\x7e]+$/, 'must be scope names (RFC 6749 §3.3)'))
    .optional(),
  allowed_origins: z.array(origin).optional(),
  auth_params: z.record(z.string(), z.string()).optional(),
});

/** Parameters that Switchboard sets itself. Overriding them would break their protection. */
const OWN_PARAMETERS = [
  'client_id',
  'client_secret',
  'code_challenge',
  'code_challenge_method',
  'nonce',
  'redirect_uri',
  'response_type',
  'response_mode',
  'scope',
  'state',
];

const providersSchema = z.record(
  plainName,
  providerFields.refine(
    ({ auth_params = {} }) => !Object.keys(auth_params).some(name => OWN_PARAMETERS.includes(name)),
    `auth_params must not set ${OWN_PARAMETERS.join(', ')}`,
  ),
);

export interface ProviderSettings {
  readonly name: string;
  /** The name shown on pages. */
  readonly title: string;
  /** The OpenID issuer. Undefined for plain OAuth. */
  readonly issuer: string | undefined;
  /** The endpoints for plain OAuth. Undefined for OpenID, whose metadata has them. */
  readonly endpoints:
    | {
        readonly authorization: string;
        readonly token: string;
        readonly revocation: string | undefined;
        readonly userinfo: string | undefined;
      }
    | undefined;
  /** Undefined for a built-in provider that is not configured yet. */
  readonly client: { readonly id: string; readonly secret: string } | undefined;
  /** Scopes requested in every sign-in, in addition to those of the session. */
  readonly scopes: readonly string[];
  /** Origins of MCP servers that may receive its tokens. The server's entry must name the provider as well. */
  readonly allowedOrigins: readonly string[];
  readonly authParams: Readonly<Record<string, string>>;
}

type Fields = z.output<typeof providerFields>;

/** Built-in providers. A configured entry of the same name is merged over them. */
const BUILT_IN: Readonly<Record<string, Fields>> = {
  google: {
    issuer: 'https://accounts.google.com',
    title: 'Google',
    scopes: ['openid', 'email'],
    // Without these, Google returns a refresh token never, or only at the first consent.
    auth_params: { access_type: 'offline', prompt: 'consent' },
  },
};

/**
 * Returns the providers by name, with configured entries merged over the built-in ones.
 * @throws Error that names the provider and the missing settings
 */
function resolveProviders(
  entries: Readonly<Record<string, Fields>>,
  google: { id: string | undefined; secret: string | undefined },
): ReadonlyMap<string, ProviderSettings> {
  const googleClient = { client_id: google.id, client_secret: google.secret };
  const builtIn = { ...BUILT_IN, google: { ...BUILT_IN['google'], ...withoutUndefined(googleClient) } };
  const names = new Set([...Object.keys(builtIn), ...Object.keys(entries)]);
  return new Map(
    [...names].map(name => [
      name,
      resolve(name, {
        ...(builtIn as Record<string, Fields>)[name],
        ...withoutUndefined(entries[name] ?? {}),
      }),
    ]),
  );
}

const withoutUndefined = (fields: Fields): Fields =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));

function resolve(name: string, fields: Fields): ProviderSettings {
  const { issuer, title = name, scopes = [], allowed_origins = [], auth_params = {} } = fields;
  return {
    name,
    title,
    issuer,
    endpoints: endpointsOf(name, fields),
    client: clientOf(name, fields),
    // Without `sub`, which requires `openid`, the account cannot be identified.
    scopes: [...new Set([...(issuer === undefined ? [] : ['openid', 'email']), ...scopes])],
    allowedOrigins: allowed_origins,
    authParams: auth_params,
  };
}

function endpointsOf(name: string, fields: Fields): ProviderSettings['endpoints'] {
  const { issuer, authorization_endpoint: authorization, token_endpoint: token } = fields;
  if (issuer !== undefined) {
    if (authorization === undefined && token === undefined) return undefined;
    throw new Error(`${name}: has both an issuer and endpoints; set only one of them`);
  }
  if (authorization === undefined || token === undefined)
    throw new Error(`${name}: requires issuer, or authorization_endpoint and token_endpoint`);
  return { authorization, token, revocation: fields.revocation_endpoint, userinfo: fields.userinfo_endpoint };
}

function clientOf(
  name: string,
  { client_id: id, client_secret: secret }: Fields,
): ProviderSettings['client'] {
  if (id !== undefined && secret !== undefined) return { id, secret };
  if (id !== undefined || secret !== undefined)
    throw new Error(`${name}: requires both client_id and client_secret`);
  if (Object.hasOwn(BUILT_IN, name)) return undefined;
  throw new Error(`${name}: requires client_id and client_secret`);
}
