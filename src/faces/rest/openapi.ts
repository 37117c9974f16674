import { z } from 'zod';
import { errorCodes, errorKind, type ErrorCode } from '../../errors.ts';
import type { Endpoint } from './endpoint.ts';
import { endpoints } from './endpoints/index.ts';

type Json = Record<string, unknown>;

/** What every endpoint can answer, whatever it does. */
const EVERYWHERE: readonly ErrorCode[] = ['unauthorized', 'insufficient_scope', 'internal'];
const WITH_BODY: readonly ErrorCode[] = [
  'invalid_json',
  'invalid_request',
  'payload_too_large',
  'unsupported_media_type',
];

const problemSchema = z.looseObject({
  type: z.string(),
  title: z.string(),
  status: z.int(),
  detail: z.string().describe('What was wrong and what to do.'),
  code: z.enum(errorCodes),
  request_id: z.string(),
  retry_after: z.number().optional().describe('Seconds.'),
  upstream_error: z.unknown().optional(),
});

/** The OpenAPI 3.1 document of `/v1`, made from the very schemas that check the requests. */
export function openApiDocument(options: { version: string; publicUrl: string | undefined }): Json {
  const paths: Record<string, Json> = {};
  for (const one of endpoints) {
    const path = one.path.replace(/:(\w+)/g, '{$1}');
    paths[path] = { ...paths[path], [one.method]: operation(one) };
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Switchboard',
      version: options.version,
      description: 'Find a remote MCP server in plain words and call it by its id.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: options.publicUrl ?? '/' }],
    security: [{ apiKey: [] }],
    tags: [
      { name: 'Search', description: 'Find servers and tools.' },
      { name: 'Proxy', description: 'Call the servers found.' },
      { name: 'Identity', description: 'Act for an end user.' },
    ],
    paths,
    components: {
      securitySchemes: { apiKey: { type: 'apiKey', in: 'header', name: 'X-API-Key' } },
      schemas: { Problem: jsonSchema(problemSchema, 'output') },
    },
  };
}

function operation(one: Endpoint): Json {
  const errors = [...EVERYWHERE, ...(one.bodySchema ? WITH_BODY : []), ...one.errors];
  return {
    operationId: one.operationId,
    tags: [one.tag],
    summary: one.summary,
    description: one.run ? one.description : `${one.description} Not built yet: answers 501.`,
    ...parametersOf(one.path),
    ...(one.bodySchema && {
      requestBody: {
        required: true,
        content: { 'application/json': { schema: jsonSchema(one.bodySchema, 'input') } },
      },
    }),
    responses: {
      200: {
        description: 'Done.',
        content: { 'application/json': { schema: jsonSchema(one.responseSchema, 'output') } },
      },
      ...errorResponses(errors),
    },
  };
}

function parametersOf(path: string): Json {
  const names = [...path.matchAll(/:(\w+)/g)].map(match => match[1]);
  if (names.length === 0) return {};
  return {
    parameters: names.map(name => ({ name, in: 'path', required: true, schema: { type: 'string' } })),
  };
}

function errorResponses(codes: readonly ErrorCode[]): Json {
  const byStatus = Map.groupBy(new Set(codes), code => errorKind(code).status);
  const content = { 'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' } } };
  const entries = [...byStatus].map(([status, list]) => [
    status,
    {
      description: list.map(code => `\`${code}\`: ${errorKind(code).title}`).join('. '),
      ...(status === 429 && { headers: RATE_LIMIT_HEADERS }),
      content,
    },
  ]);
  return Object.fromEntries(entries) as Json;
}

const header = (description: string) => ({ description, schema: { type: 'string' } });
const RATE_LIMIT_HEADERS = {
  'Retry-After': header('Seconds until the next call can succeed.'),
  RateLimit: header('What is left, and the seconds until it starts again.'),
  'RateLimit-Policy': header('The limit and its window in seconds.'),
};

function jsonSchema(schema: z.ZodType, io: 'input' | 'output'): Json {
  const { $schema: _dialect, ...json } = z.toJSONSchema(schema, { io });
  return json;
}
