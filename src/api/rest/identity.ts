import { z } from 'zod';
import { SIGN_IN_MODES } from '../../core/access/caller.ts';
import { sha256 } from '../../platform/ids.ts';
import {
  connectionSchema,
  credentialValues,
  givenOf,
  madeConnection,
  scopeNames,
} from '../http/connection-schemas.ts';
import { endpoint, KIB, type Endpoint, serverId as serverIdSchema, wrongType } from '../http/endpoint.ts';

const COMMON = {
  tag: 'Identity',
  scope: 'identity',
  user: 'checked',
  maxBodyBytes: 64 * KIB,
  cache: 'no-store',
} as const;

const userId = z.string(wrongType('must be a string: your own id for the end user')).meta({
  // The core counts bytes.
  minLength: 1,
  maxLength: 1024,
  pattern: String.raw`^[^\x00-\x1f\x7f-\x9f]*$`,
  description:
    "The caller's own id for the end user: 1 to 1024 bytes without control characters, compared byte by byte.",
});
const provider = z
  .string()
  .regex(/^[\x21-\x7e]{1,64}$/, 'must be the name of an identity provider')
  .describe('The identity provider, such as google.');
const sessionId = z.string().min(1).max(256);

const authSession = z.object({
  session_id: z.string(),
  auth_url: z
    .string()
    .describe(
      'The address where the end user signs in. Open it with a redirect, in a pop-up or in a new tab.',
    ),
  expires_at: z.iso.datetime(),
});

const sessionStatus = z.object({
  status: z.enum(['pending', 'complete', 'error']),
  error: z.string().optional(),
});

const tokenSet = z.object({
  access_token: z.string().describe('The identity token, a JWT. Send it as Authorization: Bearer.'),
  refresh_token: z.string().describe('The next refresh token. It works once.'),
  expires_in: z.int().describe('Seconds until the access token expires.'),
  token_type: z.literal('Bearer'),
});

/** The session of a response, in what follows it. */
const OF_SESSION = { session_id: '$response.body#/session_id' };
const REFRESH = {
  operationId: 'refreshToken',
  description: 'Gets the next tokens.',
  requestBody: { refresh_token: '$response.body#/refresh_token' },
};

/** Fields of a sign-in with a provider. */
const OF_PROVIDERS = ['resource', 'login_hint', 'allow_account_change', 'expected_account'] as const;

const createSession = endpoint({
  ...COMMON,
  method: 'post',
  path: '/v1/identity/sessions',
  operationId: 'createSession',
  summary: 'Create an authorization session',
  description:
    "Starts the connection of an end user: with provider, an OAuth authorization at an identity provider; with server_id, a sign-in with the server's own authorization server or, where it has none, a page where the user enters a key. Send the user to auth_url, then poll the session.",
  rateLimit: 'sessions',
  errors: [
    'rate_limited',
    'provider_not_configured',
    'server_not_found',
    'server_inactive',
    'operator_setup_needed',
    'provider_unavailable',
    'upstream_protocol',
    'unavailable',
  ],
  bodySchema: z
    .strictObject({
      user_id: userId,
      provider: provider.optional(),
      server_id: serverIdSchema.optional().describe('The server to connect, instead of a provider.'),
      scopes: scopeNames
        .optional()
        .describe("Scopes to ask for besides the provider's or the server's own and those already granted."),
      resource: z
        .url({ protocol: /^https?$/, error: 'must be an absolute http(s) URL' })
        .max(2048, 'must have at most 2048 characters')
        .regex(/^[\x21\x22\x24-\x7e]+$/, 'must be ASCII and have no fragment (RFC 8707 §2)')
        .optional()
        .describe('The resource that the connection is limited to (RFC 8707).'),
      mode: z
        .enum(SIGN_IN_MODES)
        .optional()
        .describe(
          'page: the user confirms app and account on a page of this service, in one browser. caller: your backend confirms which user is in that browser, with confirmSession.',
        ),
      return_url: z
        .string()
        .max(2048)
        .optional()
        .describe('The address to return to. It must match an address registered for the tenant exactly.'),
      login_hint: z
        .string()
        .min(1)
        .max(320)
        .optional()
        .describe('The account that the provider should preselect.'),
      allow_account_change: z
        .boolean()
        .optional()
        .describe('true: allows a sign-in with a different account than the connected one.'),
      expected_account: z
        .string()
        .min(1)
        .max(320)
        .optional()
        .describe(
          'The e-mail address, or the id at the provider (sub), of the only account that may be connected.',
        ),
    })
    .refine(body => (body.provider === undefined) !== (body.server_id === undefined), {
      path: ['provider'],
      error: 'give either a provider, or the server_id of a server that requires a sign-in or a key',
    })
    .superRefine((body, context) => {
      const surplus = OF_PROVIDERS.find(name => body.server_id !== undefined && body[name] !== undefined);
      if (surplus !== undefined)
        context.addIssue({
          code: 'custom',
          path: [surplus],
          message: 'does not go with server_id: leave it out',
        });
    }),
  responseSchema: authSession,
  links: {
    getSession: {
      operationId: 'getSession',
      description: 'Polls the session until the user is done.',
      parameters: OF_SESSION,
    },
    confirmSession: {
      operationId: 'confirmSession',
      description: 'Confirms a session of mode caller, with the code that came back to the return_url.',
      parameters: OF_SESSION,
      requestBody: { user_id: '$request.body#/user_id' },
    },
    issueToken: {
      operationId: 'issueToken',
      description: 'Gets the first tokens once the session is complete.',
      requestBody: OF_SESSION,
    },
  },
  handle: async (core, caller, { body }) => {
    const returnUrl = body.return_url === undefined ? {} : { returnUrl: body.return_url };
    if (body.server_id !== undefined) {
      const { server } = core.serverConnections.form(body.server_id);
      const request = {
        userId: body.user_id,
        ...returnUrl,
        ...(body.scopes === undefined ? {} : { scopes: body.scopes }),
        ...(body.mode === undefined ? {} : { mode: body.mode }),
      };
      return core.identity.sessions.createForServer(caller, server, request);
    }
    return core.identity.sessions.create(caller, {
      userId: body.user_id,
      provider: body.provider ?? '',
      ...(body.scopes === undefined ? {} : { scopes: body.scopes }),
      ...(body.resource === undefined ? {} : { resource: body.resource }),
      ...(body.mode === undefined ? {} : { mode: body.mode }),
      ...returnUrl,
      ...(body.login_hint === undefined ? {} : { loginHint: body.login_hint }),
      ...(body.allow_account_change === undefined ? {} : { allowAccountChange: body.allow_account_change }),
      ...(body.expected_account === undefined ? {} : { expectedAccount: body.expected_account }),
    });
  },
});

const getSession = endpoint({
  ...COMMON,
  method: 'get',
  onlyGet: true,
  path: '/v1/identity/sessions/:session_id',
  operationId: 'getSession',
  summary: 'Poll an authorization session',
  description:
    'Returns the status of an authorization session. A final status is delivered once. Poll every 1 to 2 seconds.',
  rateLimit: ({ session_id: id = '' }) => ({
    bucket: 'poll',
    key: Buffer.from(sha256(id)).toString('base64url'),
  }),
  errors: ['session_not_found', 'session_delivered', 'rate_limited'],
  responseSchema: sessionStatus,
  links: {
    issueToken: {
      operationId: 'issueToken',
      description: 'Gets the first tokens once the status is complete.',
      requestBody: { session_id: '$request.path.session_id' },
    },
  },
  handle: (core, caller, { params: { session_id: id = '' } }) => core.identity.sessions.poll(caller, id),
});

const confirmSession = endpoint({
  ...COMMON,
  method: 'post',
  path: '/v1/identity/sessions/:session_id/confirm',
  operationId: 'confirmSession',
  summary: 'Confirm an authorization session',
  description:
    'For sessions of mode caller. The browser came back to your return_url with session_id and code. Say which of your users is signed in to your app in that browser: nothing is connected before. If it is not the user of the session, the session ends.',
  rateLimit: 'refresh',
  errors: ['session_not_found', 'invalid_grant', 'rate_limited'],
  bodySchema: z.strictObject({ code: z.string().min(1).max(256), user_id: userId }),
  responseSchema: sessionStatus,
  handle: (core, caller, { params: { session_id: id = '' }, body: { code, user_id } }) =>
    core.identity.signIns.confirmByApp(caller, { sessionId: id, code, userId: user_id }),
});

const issueToken = endpoint({
  ...COMMON,
  method: 'post',
  path: '/v1/identity/token',
  operationId: 'issueToken',
  summary: 'Get the first tokens of a completed session',
  description:
    'Works once per completed session, within ten minutes. Repeating the request with the same Idempotency-Key within a minute returns the same response.',
  rateLimit: 'refresh',
  errors: ['invalid_grant', 'authorization_pending', 'rate_limited'],
  idempotent: true,
  bodySchema: z.strictObject({ session_id: sessionId }),
  responseSchema: tokenSet,
  links: { refreshToken: REFRESH },
  handle: (core, caller, { body, idempotencyKey }) =>
    core.identity.refreshTokens.redeem(caller, body.session_id, idempotencyKey),
});

const refreshToken = endpoint({
  ...COMMON,
  method: 'post',
  path: '/v1/identity/refresh',
  operationId: 'refreshToken',
  summary: 'Refresh an identity token',
  description:
    'Each refresh token works once. Using one again revokes every token of its family. Repeating the request with the same Idempotency-Key within a minute returns the same response.',
  rateLimit: 'refresh',
  errors: ['invalid_grant', 'rate_limited'],
  idempotent: true,
  bodySchema: z.strictObject({ refresh_token: z.string().min(1) }),
  responseSchema: tokenSet,
  links: { refreshToken: REFRESH },
  handle: (core, caller, input) =>
    core.identity.refreshTokens.refresh(caller, input.body.refresh_token, input),
});

const revokeUser = endpoint({
  ...COMMON,
  method: 'post',
  path: '/v1/identity/revoke',
  operationId: 'revokeUser',
  summary: "Revoke all of a user's tokens",
  description:
    "Immediately revokes an end user's identity tokens, refresh tokens and bound API keys, and deletes the stored provider tokens. The providers are notified in the background. With provider, server_id or connection_id, only the connections with that provider or server, or that connection, end. A user or a connection that does not exist is a success; a server_id that names no server is an error.",
  rateLimit: 'revoke',
  errors: ['server_not_found', 'rate_limited'],
  bodySchema: z
    .strictObject({
      user_id: userId,
      provider: provider.optional(),
      server_id: serverIdSchema.optional(),
      connection_id: z
        .string()
        .regex(/^con_[0-9A-Za-z]{22}$/, 'must be the id of a connection')
        .optional(),
    })
    .refine(
      body => [body.provider, body.server_id, body.connection_id].filter(one => one !== undefined).length < 2,
      'must have at most one of provider, server_id and connection_id',
    ),
  responseSchema: z.object({ success: z.literal(true) }),
  handle: async (core, caller, { body: { user_id, provider: name, server_id, connection_id } }) => {
    const which = { provider: name, serverId: server_id, connectionId: connection_id };
    const hadAny = await core.identity.revocations.revoke(caller, user_id, which);
    // A mistyped id must not look like an ended connection. One with a server that is gone can still be ended.
    if (server_id !== undefined && !hadAny && !core.catalogue.get(server_id))
      core.catalogue.require(server_id);
    return { success: true };
  },
});

const putConnection = endpoint({
  ...COMMON,
  method: 'put',
  path: '/v1/identity/connections',
  operationId: 'putConnection',
  summary: "Store a user's key for a server",
  description:
    'For backends that hold the key already. The server is asked for its tools with it; a key that it refuses is not stored. Nothing returns the values.',
  rateLimit: 'sessions',
  errors: ['credentials_rejected', 'upstream_blocked', 'server_not_found', 'server_inactive', 'rate_limited'],
  bodySchema: z.strictObject({ user_id: userId, ...credentialValues }),
  responseSchema: madeConnection,
  handle: (core, caller, { body: { user_id, ...given } }) =>
    core.serverConnections.putForUser(caller, user_id, givenOf(given), caller.signal),
});

const listConnections = endpoint({
  ...COMMON,
  method: 'get',
  path: '/v1/identity/connections',
  operationId: 'listConnections',
  summary: "List a user's connections",
  description:
    'Returns the accounts that a user has connected, their scopes, and when they were last used. It never returns a token.',
  rateLimit: 'sessions',
  errors: ['invalid_request', 'rate_limited'],
  querySchema: z.strictObject({ user_id: userId }),
  responseSchema: z.object({ connections: z.array(connectionSchema) }),
  links: {
    revokeUser: {
      operationId: 'revokeUser',
      description: 'Ends the first connection.',
      requestBody: {
        user_id: '$request.query.user_id',
        connection_id: '$response.body#/connections/0/id',
      },
    },
  },
  handle: async (core, caller, { query }) => ({
    connections: await core.identity.connections.list(caller.tenantId, query.user_id),
  }),
});

const createManageLink = endpoint({
  ...COMMON,
  method: 'post',
  path: '/v1/identity/manage',
  operationId: 'createManageLink',
  summary: "Create a link to a user's connections page",
  description:
    'Returns a link that works once, within five minutes. It opens a page where the user can see and revoke connections.',
  rateLimit: 'sessions',
  errors: ['rate_limited'],
  bodySchema: z.strictObject({ user_id: userId }),
  responseSchema: z.object({ url: z.string(), expires_at: z.iso.datetime() }),
  handle: (core, caller, { body: { user_id } }) => core.identity.manage.createLink(caller, user_id),
});

export const identityEndpoints: readonly Endpoint[] = [
  createSession,
  getSession,
  confirmSession,
  issueToken,
  refreshToken,
  revokeUser,
  listConnections,
  putConnection,
  createManageLink,
];
