import { z } from 'zod';
import { endpoint, KIB, queryNumber, type Endpoint, storable } from '../http/endpoint.ts';

const MAX_LIMIT = 100;
const ABOUT =
  'Part of the MCP registry API v0.1, for IDEs and for other Switchboards to sync from. The key may be sent as a Bearer token. With ' +
  'SWITCHBOARD_REGISTRY_ACCESS=public no key is needed.';

const includeDeleted = z
  .enum(['true', 'false'], 'must be true or false')
  .transform(value => value === 'true')
  .optional()
  .describe('true: includes servers that are no longer active. Implied by updated_since.');

const deletedQuery = z.object({ include_deleted: includeDeleted });

/** Ignores unknown parameters, like the standard's own servers. */
const listQuery = z.object({
  cursor: z.string().min(1).max(256).optional().describe('The nextCursor of the previous page.'),
  limit: queryNumber(`must be a whole number from 1 to ${MAX_LIMIT}`, { min: 1 })
    .transform(limit => Math.min(limit, MAX_LIMIT))
    .default(30)
    .describe(`The number of servers per page. Values above ${MAX_LIMIT} count as ${MAX_LIMIT}.`),
  search: storable(z.string().max(200)).optional().describe('Part of a name. Case does not matter.'),
  updated_since: z.iso
    .datetime({ offset: true, error: 'must be an RFC 3339 time, such as 2026-11-21T08:00:00Z' })
    .optional()
    .describe('Returns only servers that changed at or after this time.'),
  version: storable(z.string().min(1).max(255))
    .optional()
    .describe('latest, or an exact version. Only the latest version of each server is known.'),
  include_deleted: includeDeleted,
});

const document = z.looseObject({
  name: z.string().describe('NAMESPACE/NAME.'),
  description: z.string().describe('At most 100 characters if the entry does not come from a registry.'),
  version: z.string(),
  title: z.string().optional(),
  remotes: z
    .array(z.looseObject({ type: z.string(), url: z.string() }))
    .optional()
    .describe("The server's own addresses."),
});
const served = z.object({
  server: document.describe('Its server.json.'),
  _meta: z
    .record(z.string(), z.looseObject({}))
    .describe(
      "io.modelcontextprotocol.registry/official: status (active, deprecated, deleted), times, isLatest. dev.switchboard/server: the server's id, its address under this Switchboard's /mcp, the full description, the categories, the number of tools, how to sign in, and its health if it was checked.",
    ),
});
const page = z.object({
  servers: z.array(served),
  metadata: z.object({
    nextCursor: z.string().optional().describe('Absent on the last page.'),
    count: z.int().describe('Servers on this page.'),
  }),
});

const COMMON = {
  method: 'get',
  tag: 'Registry',
  scope: 'search',
  rateLimit: 'search',
  user: 'checked',
  maxBodyBytes: KIB,
} as const;

export const registryEndpoints: readonly Endpoint[] = [
  endpoint({
    ...COMMON,
    path: '/v0.1/servers',
    operationId: 'listRegistryServers',
    summary: 'List the catalogue as a registry',
    description: ABOUT,
    errors: ['invalid_request', 'rate_limited'],
    querySchema: listQuery,
    responseSchema: page,
    links: {
      listRegistryVersions: {
        operationId: 'listRegistryVersions',
        description: 'Lists the versions of the first server.',
        parameters: { server_name: '$response.body#/servers/0/server/name' },
      },
      getRegistryVersion: {
        operationId: 'getRegistryVersion',
        description: 'Gets the first server in the version of the list.',
        parameters: {
          server_name: '$response.body#/servers/0/server/name',
          version: '$response.body#/servers/0/server/version',
        },
      },
    },
    handle: (core, _caller, { query: { updated_since, include_deleted, ...rest } }) =>
      core.registry.list({ ...rest, updatedSince: updated_since, includeDeleted: include_deleted }),
  }),
  endpoint({
    ...COMMON,
    path: '/v0.1/servers/:server_name/versions',
    operationId: 'listRegistryVersions',
    summary: "List a server's versions",
    description: `${ABOUT} The name is percent-encoded: com.example%2Fnotes.`,
    errors: ['invalid_request', 'server_not_found', 'rate_limited'],
    querySchema: deletedQuery,
    responseSchema: page,
    handle: (core, _caller, { params, query }) =>
      core.registry.versions(params['server_name'] ?? '', query.include_deleted ?? false),
  }),
  endpoint({
    ...COMMON,
    path: '/v0.1/servers/:server_name/versions/:version',
    operationId: 'getRegistryVersion',
    summary: 'Get one version of a server',
    description: `${ABOUT} The version may be latest.`,
    errors: ['invalid_request', 'server_not_found', 'rate_limited'],
    querySchema: deletedQuery,
    responseSchema: served,
    handle: (core, _caller, { params, query }) =>
      core.registry.version(
        params['server_name'] ?? '',
        params['version'] ?? '',
        query.include_deleted ?? false,
      ),
  }),
];
