import { z } from 'zod';
import { DEFAULT_LIMITS } from '../../core/proxy/limits.ts';
import { errorCodes, errorKind, type ErrorCode } from '../../errors.ts';
import { connectionKind } from '../http/connection-schemas.ts';
import { type Endpoint, toJsonSchema, NDJSON } from '../http/endpoint.ts';
import { TIMEOUT_HEADER } from '../http/request.ts';

type Json = Record<string, unknown>;

/** The errors that every endpoint can return. */
const EVERYWHERE: readonly ErrorCode[] = [
  'unauthorized',
  'identity_token_invalid',
  'insufficient_scope',
  'host_not_allowed',
  'internal',
  'unavailable',
];
/** A path parameter may be undecodable or contain a NUL. */
const WITH_PARAMETERS: readonly ErrorCode[] = ['invalid_request'];
const WITH_BODY: readonly ErrorCode[] = [
  'invalid_json',
  'invalid_request',
  'payload_too_large',
  'unsupported_media_type',
];

const ofConnection = (schema: z.ZodType, meaning: string) =>
  schema.optional().describe(`With connection_required: ${meaning}`);
const ofConnectionOrSetup = (schema: z.ZodType, meaning: string) =>
  schema.optional().describe(`With connection_required and operator_setup_needed: ${meaning}`);

const problemSchema = z.looseObject({
  type: z.string(),
  title: z.string(),
  status: z.int(),
  detail: z.string().describe('What happened and what to do.'),
  code: z.enum(errorCodes),
  request_id: z.string(),
  retry_after: z.number().optional().describe('Seconds to wait before retrying.'),
  retryable: z
    .boolean()
    .optional()
    .describe(
      'With status 500 and above: whether the same request may succeed later. Never true if the call may have run.',
    ),
  upstream_error: z.unknown().optional().describe("The server's own JSON-RPC error object."),
  input_required: z
    .unknown()
    .optional()
    .describe(
      'With upstream_input_required, when the tool asked for input: its result, with inputRequests and requestState.',
    ),
  required_capabilities: z
    .record(z.string(), z.unknown())
    .optional()
    .describe(
      'With upstream_input_required, when the server reported a missing capability (upstream_error.code -32021): the capabilities it requires.',
    ),
  error: z
    .union([z.string(), z.looseObject({ code: z.int(), message: z.string() })])
    .optional()
    .describe('The error code of OAuth 2.0; on POST /v1/mcp/call the JSON-RPC error object.'),
  jsonrpc: z.literal('2.0').optional().describe('On POST /v1/mcp/call.'),
  id: z
    .union([z.string(), z.number(), z.null()])
    .optional()
    .describe('On POST /v1/mcp/call: the id of the request, or null if it could not be read.'),
  quota: z
    .looseObject({ use: z.string(), limit: z.int(), resets_at: z.iso.datetime() })
    .optional()
    .describe('With quota_exceeded: the monthly limit, and when it resets.'),
  kind: ofConnectionOrSetup(
    connectionKind,
    'credentials: the server requires a key. oauth: it requires a sign-in with its own authorization server. provider: it requires an account at an identity provider.',
  ),
  server_id: ofConnectionOrSetup(z.string(), 'the server.'),
  issuer: z.string().optional().describe('With operator_setup_needed: the authorization server.'),
  redirect_uri: z
    .string()
    .optional()
    .describe(
      'With operator_setup_needed, if the operator has to create an OAuth client: the redirect URI to register for it.',
    ),
  provider: ofConnection(z.string(), 'the identity provider, if kind is provider.'),
  reason: ofConnection(
    z.enum(['not_connected', 'needs_reauth', 'missing_scopes', 'rejected', 'missing_values']),
    'why.',
  ),
  missing: ofConnection(z.array(z.string()), 'the scopes or values that are missing.'),
  missing_scopes: ofConnection(z.array(z.string()), 'the scopes that the connection lacks.'),
  session_id: ofConnection(z.string(), 'the session created for this sign-in, to be polled.'),
  auth_url: ofConnection(z.string(), 'where the user signs in or enters the key.'),
  expires_at: ofConnection(z.iso.datetime(), 'when the session expires.'),
});

/** Creates the OpenAPI 3.1 document of `/v1` and `/v0.1` from the schemas that validate the requests. */
export function openApiDocument(options: {
  readonly version: string;
  readonly publicUrl: string | undefined;
  readonly endpoints: readonly Endpoint[];
}) {
  const paths: Record<string, Json> = {};
  for (const one of options.endpoints) {
    const path = one.path.replace(/:(\w+)/g, '{$1}');
    paths[path] = { ...paths[path], [one.method]: operation(one) };
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Switchboard',
      version: options.version,
      description: 'Find remote MCP servers with plain-language queries and call them by id.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: options.publicUrl ?? '/' }],
    security: [{ apiKey: [] }],
    tags: [
      { name: 'Search', description: 'Find servers and tools.' },
      { name: 'Proxy', description: 'Call servers.' },
      { name: 'Identity', description: 'Act for an end user.' },
      { name: 'Registry', description: 'Read the catalogue, for IDEs and other registries.' },
      { name: 'Admin', description: 'Administer the installation, with keys that have the scope admin.' },
    ],
    paths,
    components: {
      securitySchemes: {
        apiKey: {
          type: 'apiKey',
          in: 'header',
          name: 'X-API-Key',
          description: 'An API key of this server. Each endpoint requires one of its scopes.',
        },
        identityToken: {
          type: 'http',
          scheme: 'bearer',
          bearerFormat: 'JWT',
          description: "The end user's identity token. Servers that act for end users need it.",
        },
      },
      schemas: { Problem: toJsonSchema(problemSchema, 'output') },
    },
  };
}

function operation(one: Endpoint): Json {
  const errors = [
    ...EVERYWHERE,
    ...(one.path.includes(':') ? WITH_PARAMETERS : []),
    ...(one.bodySchema ? WITH_BODY : []),
    ...one.errors,
  ];
  return {
    operationId: one.operationId,
    tags: [one.tag],
    summary: one.summary,
    description: one.description,
    ...(one.tag === 'Proxy' && { security: [{ apiKey: [] }, { apiKey: [], identityToken: [] }] }),
    ...parametersOf(one),
    ...(one.stream && {
      requestBody: {
        required: true,
        content: Object.fromEntries(one.stream.types.map(type => [type, { schema: { type: 'string' } }])),
      },
    }),
    ...(one.bodySchema && {
      requestBody: {
        required: true,
        content: { 'application/json': { schema: toJsonSchema(one.bodySchema, 'input') } },
      },
    }),
    responses: {
      200: {
        description: 'Done.',
        ...(one.links && { links: one.links }),
        content: {
          'application/json': { schema: toJsonSchema(one.responseSchema, 'output') },
          ...((one.isLong === true || one.stream) && { [NDJSON]: { schema: LINES } }),
        },
      },
      ...errorResponses(errors),
    },
  };
}

const IDEMPOTENCY_KEY = {
  name: 'Idempotency-Key',
  in: 'header',
  required: false,
  description:
    'Repeating a request with the same key within a minute returns the same response, in case the first was lost.',
  schema: { type: 'string', minLength: 1, maxLength: 255 },
};
const TIMEOUT = {
  name: TIMEOUT_HEADER.name,
  in: 'header',
  required: false,
  description: 'The longest time to wait for the server, in milliseconds.',
  schema: {
    type: 'integer',
    minimum: TIMEOUT_HEADER.minMs,
    maximum: TIMEOUT_HEADER.maxMs,
    default: DEFAULT_LIMITS.totalTimeoutMs,
  },
};

function parametersOf({ path, querySchema, idempotent, timeoutHeader }: Endpoint): Json {
  const inPath = [...path.matchAll(/:(\w+)/g)].map(([, name]) => ({
    name,
    in: 'path',
    required: true,
    schema: { type: 'string' },
  }));
  const inQuery = Object.entries((querySchema?.shape ?? {}) as Record<string, z.ZodType>).map(
    ([name, schema]) => ({
      name,
      in: 'query',
      required: !schema.safeParse(undefined).success,
      schema: toJsonSchema(schema, 'input'),
    }),
  );
  const headers = [...(idempotent ? [IDEMPOTENCY_KEY] : []), ...(timeoutHeader ? [TIMEOUT] : [])];
  const parameters = [...inPath, ...inQuery, ...headers];
  return parameters.length === 0 ? {} : { parameters };
}

function errorResponses(codes: readonly ErrorCode[]): Json {
  const byStatus = Map.groupBy(new Set(codes), code => errorKind(code).status);
  const content = { 'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' } } };
  const entries = [...byStatus].map(([status, list]) => [
    status,
    {
      description: list.map(code => `\`${code}\`: ${errorKind(code).title}`).join('. '),
      ...(status === 401 && { headers: CHALLENGE_HEADERS }),
      ...(status === 429 && { headers: RATE_LIMIT_HEADERS }),
      content,
    },
  ]);
  return Object.fromEntries(entries) as Json;
}

/** The response of long work to a caller that accepts lines. */
const LINES: Json = {
  type: 'string',
  description: 'One JSON object per line. The last one has result or problem.',
};

const header = (description: string) => ({ description, schema: { type: 'string' } });
const CHALLENGE_HEADERS = {
  'WWW-Authenticate': header('A Bearer challenge (RFC 6750). It starts no sign-in.'),
};
const RATE_LIMIT_HEADERS = {
  'Retry-After': header('Seconds until the next call can succeed.'),
  RateLimit: header('The remaining calls, and the seconds until the window resets.'),
  'RateLimit-Policy': header('The limit and its window in seconds.'),
};
