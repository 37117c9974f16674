import { z } from 'zod';
import type { Caller } from '../../core/access/caller.ts';
import {
  bareTool,
  entrySchema,
  ORIGINS,
  toEntry,
  type Access,
  type Entry,
  type HeldServer,
  type LearnedAccess,
  type Server,
  type ServerHead,
} from '../../core/catalogue/entry.ts';
import type { Core } from '../../core/core.ts';
import { HEALTH_STATES, shownHealth as inWire, type Health } from '../../core/catalogue/health.ts';
import { entryProblem } from '../../core/catalogue/import-file.ts';
import { listServers } from '../../core/server-list.ts';
import { warningsOf } from '../../core/catalogue/tools/warnings.ts';
import { SwitchboardError, UPSTREAM_ERRORS } from '../../errors.ts';
import { toAbortSignal } from '../../platform/time.ts';
import { endpoint, MIB, parseInput, shownAccess, shownHealth, type Endpoint } from '../http/endpoint.ts';
import { changeEndpoints, signInWarning } from './catalogue-changes.ts';
import { ADMIN, ADMIN_READ, CALL_ERRORS, nextCursor, page, searchText } from './fields.ts';

const serverInfo = z
  .looseObject({
    id: z.string(),
    name: z.string(),
    description: z.string(),
    remote_url: z.string(),
    tools: z.array(z.looseObject({ name: z.string(), description: z.string() })),
    tools_source: z.enum(['catalogue', 'live']).describe('live: the server listed them itself.'),
    tools_listed_at: z.iso.datetime().optional(),
    access: shownAccess
      .extend({
        learned: z
          .object({
            kind: z.enum(['none', 'credentials', 'oauth']),
            issuer: z.string().optional().describe('The authorization server.'),
            scopes: z.array(z.string()).optional().describe('The scopes that the server asked for.'),
            resource_metadata: z.string().optional().describe('The address of its metadata (RFC 9728).'),
            needs_setup: z
              .boolean()
              .optional()
              .describe('true: the authorization server lets no client register itself.'),
          })
          .optional()
          .describe(
            'What the server itself has shown at this address, for instance by refusing a call. It counts where the entry says none or unknown. Absent: nothing yet.',
          ),
      })
      .describe('Whether your tenant can call the server.'),
    active: z.boolean(),
    unanswered: z
      .literal(true)
      .optional()
      .describe(
        'Inactive because it was unreachable for 30 days. The next successful check makes it active again.',
      ),
    health: shownHealth
      .extend({
        last_ok_at: z.iso
          .datetime()
          .optional()
          .describe('The time of the last successful check. Absent: none succeeded yet.'),
        failures: z.int().describe('The number of failed checks in a row.'),
        dead_since: z.iso
          .datetime()
          .optional()
          .describe(
            'The time of the third failed check in a row. Absent: the server is not considered dead.',
          ),
      })
      .optional()
      .describe('The result of the last check. Absent: this address was never checked.'),
    origin: z.enum(ORIGINS),
    registry: z
      .looseObject({ source: z.string(), name: z.string(), version: z.string() })
      .optional()
      .describe('The registry that the entry came from.'),
  })
  .describe('The entry in the format of a catalogue file, and its state.');

/** Returns a server for an operator: its entry and its state. */
const shown = (server: Server, { access, health }: { access: Access; health: Health | undefined }) => ({
  ...toEntry(server),
  access: { ...access, ...(server.learned === undefined ? {} : { learned: learnedInWire(server.learned) }) },
  tools: server.tools.map(tool => {
    const warnings = warningsOf(tool, Date.now());
    return { ...bareTool(tool), ...(warnings.length === 0 ? {} : { warnings }) };
  }),
  tools_source: server.toolsListedAt === undefined ? 'catalogue' : 'live',
  ...(server.toolsListedAt === undefined
    ? {}
    : { tools_listed_at: new Date(server.toolsListedAt).toISOString() }),
  active: server.active,
  ...(server.unreachable ? { unanswered: true } : {}),
  ...(health ? { health: healthForOperators(health) } : {}),
  origin: server.origin,
  ...(server.registry === undefined ? {} : { registry: registryOf(server.registry) }),
});

const learnedInWire = ({ kind, issuer, scopes, resourceMetadata, needsSetup }: LearnedAccess) => ({
  kind,
  issuer,
  scopes,
  resource_metadata: resourceMetadata,
  needs_setup: needsSetup,
});

/** Returns a server as the operator's tenant sees it. */
async function shownTo(caller: Caller, { health, identity }: Core, server: Server) {
  const accessOf = await identity.accessFor(caller);
  return shown(server, { access: accessOf(server), health: health.healthOf(server) });
}

const healthForOperators = (health: Health) => {
  const { lastOkAtMs, deadSinceMs, failures } = health;
  return {
    ...inWire(health),
    ...(lastOkAtMs === undefined ? {} : { last_ok_at: new Date(lastOkAtMs).toISOString() }),
    failures,
    ...(deadSinceMs === undefined ? {} : { dead_since: new Date(deadSinceMs).toISOString() }),
  };
};

/** Omits the document itself, which `/v0.1/servers` has. */
const registryOf = ({ document: _document, ...mark }: NonNullable<Server['registry']>) => mark;

const accessKind = shownAccess.shape.kind;
const accessStatus = shownAccess.shape.status;

const serverRow = z
  .object({
    id: z.string(),
    name: z.string(),
    description: z.string(),
    remote_url: z.string(),
    access: shownAccess,
    health: shownHealth
      .optional()
      .describe('The result of the last check. Absent: this address was never checked.'),
    tools: z.int().describe('The number of known tools.'),
    suspicious_tools: z.int().describe('The number of tools that match a suspicion rule.'),
    active: z.boolean(),
    unanswered: z.literal(true).optional().describe('Inactive because it was unreachable for 30 days.'),
    origin: z.enum(ORIGINS),
    categories: z.array(z.string()),
  })
  .describe('A server in short.');

const MAX_PAGE = 200;

const list = endpoint({
  ...ADMIN_READ,
  method: 'get',
  path: '/catalogue',
  operationId: 'listCatalogue',
  summary: 'List servers of the catalogue',
  description: 'Returns the servers that meet all conditions, ordered by id, and how many they are.',
  errors: ['invalid_request'],
  querySchema: z.strictObject({
    q: searchText.optional().describe('Text in the id, the name or the address, in any case.'),
    access_kind: accessKind.optional(),
    access_status: accessStatus.optional(),
    health: z
      .enum([...HEALTH_STATES, 'unvisited'])
      .optional()
      .describe('unvisited: never checked.'),
    tools: z
      .enum(['yes', 'no', 'suspicious'])
      .optional()
      .describe('Whether tools are known. suspicious: one of them matches a suspicion rule.'),
    active: z.enum(['yes', 'no', 'all']).default('yes'),
    origin: z.enum(ORIGINS).optional(),
    limit: page.limit.refine(limit => limit <= MAX_PAGE, `must be at most ${MAX_PAGE}`),
    cursor: page.cursor,
  }),
  responseSchema: z.object({
    servers: z.array(serverRow),
    total: z.int().describe('The number of servers that meet the conditions, on all pages.'),
    next_cursor: nextCursor,
  }),
  handle: async (core, caller, { query }) => {
    const { catalogue, health, identity } = core;
    const accessOf = await identity.accessFor(caller);
    const filter = {
      text: query.q,
      accessKind: query.access_kind,
      accessStatus: query.access_status,
      health: query.health,
      tools: query.tools,
      isActive: query.active === 'all' ? undefined : query.active === 'yes',
      origin: query.origin,
    };
    const known = { accessOf, healthOf: (server: ServerHead) => health.healthOf(server) };
    const { limit, cursor: after } = query;
    const { servers, total, hasMore } = await listServers(catalogue, filter, known, { after, limit });
    const described = await catalogue.readDescribed(servers.map(({ id }) => id));
    return {
      servers: servers.map(server => {
        const { description = '', categories = [] } = described.get(server.id) ?? {};
        const row = rowOf(server, { access: accessOf(server), health: health.healthOf(server) });
        return Object.assign(row, { description, categories });
      }),
      total,
      next_cursor: hasMore ? (servers.at(-1)?.id ?? null) : null,
    };
  },
});

const rowOf = (server: HeldServer, { access, health }: { access: Access; health: Health | undefined }) => ({
  id: server.id,
  name: server.name,
  remote_url: server.remoteUrl,
  access,
  ...(health ? { health: inWire(health) } : {}),
  tools: server.toolCount,
  suspicious_tools: server.suspiciousCount,
  active: server.active,
  ...(server.unreachable ? { unanswered: true } : {}),
  origin: server.origin,
});

const show = endpoint({
  ...ADMIN_READ,
  method: 'get',
  path: '/catalogue/:id',
  operationId: 'showServer',
  summary: 'Show a server of the catalogue',
  description: 'Shows inactive servers as well.',
  errors: ['server_not_found'],
  responseSchema: serverInfo,
  links: {
    readServerTools: {
      operationId: 'readServerTools',
      description: 'Asks the server itself for its tools.',
      parameters: { id: '$request.path.id' },
    },
  },
  handle: async (core, caller, { params: { id = '' } }) => {
    const server = (await core.catalogue.read([id])).get(id);
    return shownTo(caller, core, server ?? (await core.catalogue.readActive(id)));
  },
});

const learnTools = endpoint({
  ...ADMIN,
  method: 'post',
  path: '/catalogue/:id/tools',
  operationId: 'readServerTools',
  summary: 'Refresh the stored tools of a server',
  description: 'Lists the tools without a user. Fails for a server that only acts for end users.',
  errors: [...CALL_ERRORS, ...UPSTREAM_ERRORS],
  responseSchema: z.object({ tools: z.int().describe('The number of tools now stored.') }),
  handle: async ({ catalogue, proxy, audit }, caller, { params: { id = '' } }) => {
    const server = catalogue.require(id);
    const { tools } = await proxy.listTools(caller, { serverId: id });
    await catalogue.refreshTools(server, tools, Date.now(), {
      inSameTransaction: (tx, { upserted: [refreshed] }) => {
        const meta = { server: id, tools: refreshed?.tools.length ?? 0 };
        return audit.record(caller, { event: 'server_tools_read', outcome: 'ok', meta }, tx);
      },
    });
    return { tools: catalogue.require(id).toolCount };
  },
});

const put = endpoint({
  ...ADMIN,
  method: 'put',
  path: '/catalogue/:id',
  operationId: 'putServer',
  summary: 'Add or change a server',
  description:
    'The body is an entry of a catalogue file; members that describe the state of a server, such as access, are ignored. The server is active and searchable once ' +
    'the response arrives, and belongs to the operator. Without tools, those that are known stay, unless the address changes.',
  errors: ['unavailable'],
  maxBodyBytes: 4 * MIB,
  bodySchema: entrySchema.extend({ id: z.string().optional().describe('The id in the path, if at all.') }),
  responseSchema: serverInfo.extend({
    warnings: z.array(z.string()).describe('Why calls to the server would fail.'),
  }),
  handle: async (core, caller, { params: { id = '' }, body }) => {
    const { id: named = id, ...fields } = body;
    if (named !== id)
      throw new SwitchboardError(
        'invalid_request',
        'id: must be the id in the path. An id cannot be changed.',
      );
    const entry = parseInput(entrySchema, { ...fields, id });
    const problem = entryProblem(entry, { allowHttp: core.allowHttp });
    if (problem !== undefined) throw new SwitchboardError('invalid_request', problem);
    return putEntry(core, caller, entry);
  },
});

/** @param event what happens to a server that was there before */
async function putEntry(
  core: Core,
  caller: Caller,
  entry: Entry,
  event: 'server_changed' | 'server_reactivated' = 'server_changed',
) {
  const { catalogue, audit } = core;
  const before = catalogue.get(entry.id);
  const meta = {
    server: entry.id,
    host: new URL(entry.remote_url).host,
    ...(before ? { before_host: new URL(before.remoteUrl).host, before_origin: before.origin } : {}),
  };
  await catalogue.put([entry], {
    origin: 'operator',
    keepsTools: entry.tools === undefined,
    inSameTransaction: tx =>
      audit.record(caller, { event: before ? event : 'server_added', outcome: 'ok', meta }, tx),
    signal: toAbortSignal(caller.signal),
  });
  const shownServer = await shownTo(caller, core, await catalogue.readActive(entry.id));
  return { ...shownServer, warnings: [signInWarning(core, entry)].filter(one => one !== undefined) };
}

const activate = endpoint({
  ...ADMIN,
  method: 'post',
  path: '/catalogue/:id/activate',
  operationId: 'activateServer',
  summary: 'Activate a server',
  description:
    'Reverses a deactivation. The server then belongs to the operator, so that no sync or upgrade changes it.',
  errors: ['server_not_found', 'unavailable'],
  responseSchema: serverInfo,
  handle: async (core, caller, { params: { id = '' } }) => {
    const server = (await core.catalogue.read([id])).get(id) ?? (await core.catalogue.readActive(id));
    if (server.active) return shownTo(caller, core, server);
    const { tools: _known, ...entry } = toEntry(server);
    const { warnings: _warnings, ...activated } = await putEntry(core, caller, entry, 'server_reactivated');
    return activated;
  },
});

const deactivate = endpoint({
  ...ADMIN,
  method: 'post',
  path: '/catalogue/:id/deactivate',
  operationId: 'deactivateServer',
  summary: 'Deactivate a server',
  description: 'Searches no longer find it, and calls to it return 410. An import reactivates it.',
  errors: ['server_not_found'],
  responseSchema: serverInfo,
  handle: async (core, caller, { params: { id = '' } }) => {
    const { catalogue, audit } = core;
    const meta = { server: id };
    const server = await catalogue.deactivate(id, tx =>
      audit.record(caller, { event: 'server_deactivated', outcome: 'ok', meta }, tx),
    );
    return shownTo(caller, core, server);
  },
});

export const catalogueEndpoints: readonly Endpoint[] = [
  ...changeEndpoints,
  list,
  show,
  put,
  learnTools,
  activate,
  deactivate,
];
