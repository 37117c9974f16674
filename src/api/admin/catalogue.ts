import { z } from 'zod';
import type { Caller } from '../../core/access/caller.ts';
import {
  bareTool,
  toEntry,
  type Access,
  type LearnedAccess,
  type Server,
} from '../../core/catalogue/entry.ts';
import type { Core } from '../../core/core.ts';
import { shownHealth as inWire, type Health } from '../../core/catalogue/health.ts';
import { warningsOf } from '../../core/catalogue/tools/warnings.ts';
import { UPSTREAM_ERRORS } from '../../errors.ts';
import { endpoint, shownAccess, shownHealth, type Endpoint } from '../http/endpoint.ts';
import { changeEndpoints } from './catalogue-changes.ts';
import { ADMIN, ADMIN_READ } from './fields.ts';

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
    origin: z.enum(['shipped', 'operator', 'registry']),
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

const show = endpoint({
  ...ADMIN_READ,
  method: 'get',
  path: '/catalogue/:id',
  operationId: 'showServer',
  summary: 'Show a server of the catalogue',
  description: 'Shows inactive servers as well.',
  errors: ['server_not_found'],
  responseSchema: serverInfo,
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
  errors: [
    'server_not_found',
    'server_inactive',
    'identity_token_required',
    'connection_required',
    'operator_setup_needed',
    'provider_not_configured',
    ...UPSTREAM_ERRORS,
  ],
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

export const catalogueEndpoints: readonly Endpoint[] = [...changeEndpoints, show, learnTools, deactivate];
