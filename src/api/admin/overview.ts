import { z } from 'zod';
import type { Core } from '../../core/core.ts';
import { trafficOf } from '../../core/traffic.ts';
import { HEALTH_STATES } from '../../core/catalogue/health.ts';
import { endpoint, type Endpoint } from '../http/endpoint.ts';
import { ADMIN_READ } from './fields.ts';

const durations = {
  count: z.int(),
  p50_ms: z.number().nullable().describe('The median since the start, interpolated. null: there was none.'),
  p95_ms: z.number().nullable(),
  buckets: z
    .array(z.object({ le_ms: z.number().nullable().describe('null: no bound.'), count: z.int() }))
    .describe('The cumulative number of observations up to le_ms.'),
};

const toDo = z.object({
  kind: z
    .enum([
      'degraded',
      'no_servers',
      'oauth_client_missing',
      'provider_missing',
      'provider_origin_missing',
      'suspicious_tools',
      'unreachable',
    ])
    .describe(
      'oauth_client_missing: authorization servers that let no client register itself; ids are issuers. provider_missing: identity providers that servers name and that are not configured; ids are their names. provider_origin_missing: servers whose origin is not among allowed_origins of their provider.',
    ),
  count: z.int(),
  detail: z.string().describe('What it means, as a sentence.'),
  ids: z.array(z.string()).describe('Some of the servers, issuers or providers.'),
});

const overview = endpoint({
  ...ADMIN_READ,
  method: 'get',
  path: '/overview',
  operationId: 'showOverview',
  summary: 'Show how the installation is doing',
  description:
    'Traffic is counted since the start by all workers of this program: take the difference of two responses for what happens now. days and top_servers are of all processes on the database.',
  errors: [],
  responseSchema: z.object({
    version: z.string(),
    status: z.enum(['starting', 'ready', 'stopping']),
    degraded: z.array(z.string()).describe('The degraded parts, in words.'),
    servers: z.object({
      active: z.int(),
      inactive: z.int(),
      tools: z.int().describe('The number of tools of the active servers.'),
      by_status: z
        .record(z.enum([...HEALTH_STATES, 'unvisited', 'inactive']), z.int())
        .describe('Active servers by the result of their last check; inactive: deactivated as unreachable.'),
    }),
    traffic: z.object({
      since: z.iso
        .datetime()
        .describe('The start of the program. If it changes, the counts have begun anew.'),
      calls: z.object({
        ...durations,
        failed: z.int().describe('Calls that ended with an error.'),
        aborted: z.int().describe('Calls whose caller disconnected.'),
      }),
      errors: z.array(z.object({ code: z.string(), count: z.int() })).describe('Failed calls by error code.'),
      searches: z.object({ ...durations, empty: z.int().describe('Searches that returned no server.') }),
      refusals: z
        .array(
          z.object({
            code: z.enum(['unauthorized', 'insufficient_scope', 'rate_limited', 'quota_exceeded']),
            limit: z
              .string()
              .nullable()
              .describe('rate_limited: the class or the other limit. quota_exceeded: calls or searches.'),
            count: z.int(),
          }),
        )
        .describe('Requests refused because of their key, or for lack of one.'),
    }),
    days: z
      .array(
        z.object({
          day: z.iso.date(),
          calls: z.int(),
          failed: z.int().describe('Calls that failed because of the server.'),
          searches: z.int(),
        }),
      )
      .describe('The last 30 days (UTC), the oldest first.'),
    top_servers: z
      .array(
        z.object({ server_id: z.string(), name: z.string().nullable(), calls: z.int(), failed: z.int() }),
      )
      .describe('The servers with most calls in the last seven days.'),
    setup: z.array(toDo).describe('What needs attention. Empty: nothing.'),
  }),
  handle: async core => {
    const [text, { days, topServers }] = await Promise.all([core.metrics.text(), core.recentUse.read()]);
    return {
      version: core.version,
      ...core.readiness(),
      servers: serversOf(core),
      traffic: trafficOf(text),
      days,
      top_servers: topServers.map(one =>
        Object.assign(one, { name: core.catalogue.get(one.server_id)?.name ?? null }),
      ),
      setup: toDosOf(core),
    };
  },
});

function serversOf({ catalogue, health }: Core) {
  let all = 0;
  let active = 0;
  let tools = 0;
  for (const server of catalogue.all()) {
    all++;
    if (!server.active) continue;
    active++;
    tools += server.toolCount;
  }
  return { active, inactive: all - active, tools, by_status: health.serversByState() };
}

const MAX_IDS = 20;

function toDosOf(core: Core): z.output<typeof toDo>[] {
  const { catalogue, identity } = core;
  const { oauth, providers, origins } = identity.setup.needs(catalogue.active());
  const suspicious: string[] = [];
  const failing: string[] = [];
  let isEmpty = true;
  for (const server of catalogue.active()) {
    isEmpty = false;
    if (server.suspiciousCount > 0) suspicious.push(server.id);
    if (core.health.healthOf(server)?.state === 'unreachable') failing.push(server.id);
  }
  return [
    ...core.readiness().degraded.map(detail => ({ kind: 'degraded' as const, count: 1, detail, ids: [] })),
    ...(isEmpty
      ? [{ kind: 'no_servers' as const, count: 0, detail: 'The catalogue is empty. Add a server.', ids: [] }]
      : []),
    ...toDoOf('oauth_client_missing', [...oauth.keys()], count =>
      count === 1
        ? '1 authorization server lets no client register itself. Create an OAuth app there.'
        : `${count} authorization servers let no client register itself. Create OAuth apps there.`,
    ),
    ...toDoOf('provider_missing', [...providers.keys()], count =>
      count === 1
        ? '1 identity provider that servers require is not configured.'
        : `${count} identity providers that servers require are not configured.`,
    ),
    ...toDoOf(
      'provider_origin_missing',
      [...origins.values()].flat().map(({ id }) => id),
      count =>
        count === 1
          ? '1 server may not receive tokens of its identity provider.'
          : `${count} servers may not receive tokens of their identity provider.`,
    ),
    ...toDoOf('suspicious_tools', suspicious, count =>
      count === 1 ? '1 server has suspicious tools.' : `${count} servers have suspicious tools.`,
    ),
    ...toDoOf('unreachable', failing, count =>
      count === 1
        ? '1 server gave no answer to its last check.'
        : `${count} servers gave no answer to their last check.`,
    ),
  ];
}

const toDoOf = (
  kind: z.output<typeof toDo>['kind'],
  ids: readonly string[],
  detail: (count: number) => string,
): z.output<typeof toDo>[] =>
  ids.length === 0
    ? []
    : [{ kind, count: ids.length, detail: detail(ids.length), ids: ids.slice(0, MAX_IDS) }];

export const overviewEndpoints: readonly Endpoint[] = [overview];
