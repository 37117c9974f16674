import { z } from 'zod';

/**
 * What the operator says about an identity provider (`SWITCHBOARD_PROVIDERS`, DESIGN §6): either an OpenID issuer, whose
 * metadata say the rest, or the endpoints of plain OAuth 2.
 */
const webUrl = z
  .url({ protocol: /^https?$/, error: 'must be an http(s) URL' })
  .refine(text => !/^https?:\/\/[^/]*@/.test(text), 'must not carry credentials');
const origin = webUrl
  .refine(
    text => new URL(text).origin === text.replace(/\/$/, ''),
    'must be an origin, such as https://mcp.example.com',
  )
  .transform(text => new URL(text).origin);

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

const providerName = z.string().regex(/^[a-z0-9][a-z0-9_-]{0,63}$/, 'must be 1 to 64 of a-z, 0-9, "_", "-"');

/** Parameters that this program sets itself; an operator's value would break the protection they are for. */
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

export const providersSchema = z.record(
  providerName,
  providerFields.refine(
    ({ auth_params = {} }) => !Object.keys(auth_params).some(name => OWN_PARAMETERS.includes(name)),
    `auth_params must not set ${OWN_PARAMETERS.join(', ')}`,
  ),
);

export interface ProviderSettings {
  readonly name: string;
  /** What pages call it. */
  readonly title: string;
  /** OpenID: the issuer. Plain OAuth: undefined. */
  readonly issuer: string | undefined;
  /** Plain OAuth: where. OpenID: undefined, its metadata say it. */
  readonly endpoints:
    | {
        readonly authorization: string;
        readonly token: string;
        readonly revocation: string | undefined;
        readonly userinfo: string | undefined;
      }
    | undefined;
  /** Undefined: known, but not configured yet. */
  readonly client: { readonly id: string; readonly secret: string } | undefined;
  /** Always asked for, next to what a session wants. */
  readonly scopes: readonly string[];
  /** Origins of MCP servers that may get its tokens; the server's entry must name the provider, too. */
  readonly allowedOrigins: readonly string[];
  readonly authParams: Readonly<Record<string, string>>;
}

type Fields = z.output<typeof providerFields>;

/** Known without being configured; an entry of the same name merges over it. */
const BUILT_IN: Readonly<Record<string, Fields>> = {
  google: {
    issuer: 'https://accounts.google.com',
    title: 'Google',
    scopes: ['openid', 'email'],
    // Without these Google gives no refresh token, or only at the first consent.
    auth_params: { access_type: 'offline', prompt: 'consent' },
  },
};

/**
 * The providers by name, from the operator's entries over the built-in ones.
 * @throws Error whose message names the provider and says what is missing.
 */
export function resolveProviders(
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
    // `openid email` is always asked of an OpenID provider: without its `sub` nobody knows which account it is.
    scopes: [...new Set([...(issuer === undefined ? [] : ['openid', 'email']), ...scopes])],
    allowedOrigins: allowed_origins,
    authParams: auth_params,
  };
}

function endpointsOf(name: string, fields: Fields): ProviderSettings['endpoints'] {
  const { issuer, authorization_endpoint: authorization, token_endpoint: token } = fields;
  if (issuer !== undefined) {
    if (authorization === undefined && token === undefined) return undefined;
    throw new Error(`${name}: has both an issuer and endpoints; give one of them`);
  }
  if (authorization === undefined || token === undefined)
    throw new Error(`${name}: needs issuer, or authorization_endpoint and token_endpoint`);
  return { authorization, token, revocation: fields.revocation_endpoint, userinfo: fields.userinfo_endpoint };
}

function clientOf(
  name: string,
  { client_id: id, client_secret: secret }: Fields,
): ProviderSettings['client'] {
  if (id !== undefined && secret !== undefined) return { id, secret };
  if (id !== undefined || secret !== undefined)
    throw new Error(`${name}: needs both client_id and client_secret`);
  if (Object.hasOwn(BUILT_IN, name)) return undefined;
  throw new Error(`${name}: needs client_id and client_secret`);
}
