import type { RequestListener } from 'node:http';
import { z } from 'zod';
import { FULL_SCOPES, OPERATOR_KEY_ID, type Principal } from '../../core/access/caller.ts';
import { LOCAL_TENANT } from '../../core/access/tenants.ts';
import type { Core } from '../../core/core.ts';
import type { Clock } from '../../platform/time.ts';
import { SwitchboardError } from '../../errors.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { endpoint, routerOf, type Endpoint } from '../http/endpoint.ts';
import { defaultMemoryLimits, MemoryBudget } from '../http/body.ts';
import { serveEndpoints } from '../http/pipeline.ts';
import { attachLocals, pathOf } from '../http/request.ts';
import { catalogueEndpoints } from './catalogue.ts';
import { connectionEndpoints } from './connections.ts';
import { keyEndpoints } from './keys.ts';
import { overviewEndpoints } from './overview.ts';
import { recordEndpoints } from './records.ts';
import { searchEndpoints } from './search.ts';
import { setupEndpoints } from './setup.ts';
import { webhookEndpoints } from './webhooks.ts';
import { ADMIN, tenantId } from './fields.ts';

const shared: readonly Endpoint[] = [
  ...keyEndpoints,
  ...connectionEndpoints,
  ...webhookEndpoints,
  ...catalogueEndpoints,
  ...recordEndpoints,
  ...searchEndpoints,
  ...overviewEndpoints,
  ...setupEndpoints,
].map(asOperator);

/** Ignores the end user of an identity token, because operators act for nobody. */
function asOperator(one: Endpoint): Endpoint {
  if (one.stream) return one;
  return {
    ...one,
    errors: [...one.errors, 'rate_limited'],
    run: async (core, { subject: _endUser, ...caller }, input) => {
      if (Object.values(input.params).some(param => param.includes('\0')))
        throw new SwitchboardError('invalid_request', 'The path contains a NUL character. Ids never do.');
      return one.run(core, caller, input);
    },
  };
}

/** Has a search wait for as long as the index loads: a command comes from somebody who has just started the program. */
function untilIndexed(one: Endpoint): Endpoint {
  if (one.stream || one.path !== '/search') return one;
  return {
    ...one,
    run: async (core, caller, input) => {
      await core.indexed.catch(() => {});
      return one.run(core, caller, input);
    },
  };
}

const belowV1 = (one: Endpoint): Endpoint => ({ ...one, path: `/v1/admin${one.path}` });
const withoutLimit = (one: Endpoint): Endpoint => ({ ...one, rateLimit: undefined });

/** The admin API for keys with the scope `admin`. */
export const adminEndpoints: readonly Endpoint[] = shared.map(belowV1);

const OPERATOR: Principal = { tenantId: LOCAL_TENANT, keyId: OPERATOR_KEY_ID, scopes: new Set(FULL_SCOPES) };

/**
 * Serves the control socket: the same table with shorter paths, and the endpoints for the command line only. Access to the
 * socket (0600) is the authentication; operators have no limits.
 */
export function controlSocketListener({
  core,
  log,
  clock,
}: {
  readonly core: Core;
  readonly log: Log;
  readonly clock: Clock;
}): RequestListener {
  const endpoints = [...shared, ...operatorEndpoints.map(asOperator)].map(withoutLimit).map(untilIndexed);
  const serve = serveEndpoints({
    core,
    log,
    budget: new MemoryBudget(defaultMemoryLimits()),
    find: routerOf(endpoints),
    principalOf: () => Promise.resolve(OPERATOR),
    wire: 'command',
    maxStreams: Infinity,
  });
  return (request, response) => {
    attachLocals(response, clock);
    void serve(request, response, pathOf(request));
  };
}

const endUser = z.strictObject({ user_id: z.string(), tenant: tenantId.default(LOCAL_TENANT) });

/** Returns the fields of an undocumented endpoint, which only the command line calls. */
const undocumented = (method: 'get' | 'post', path: string) => ({
  ...ADMIN,
  method,
  path,
  operationId: path,
  summary: '',
  description: '',
  errors: [],
  responseSchema: z.unknown(),
});

/** Shows that the process does not hang. */
const alive = endpoint({ ...undocumented('get', '/alive'), handle: () => Promise.resolve({}) });

const linkConnections = endpoint({
  ...undocumented('post', '/connections/link'),
  bodySchema: endUser,
  handle: async ({ apiKeys, identity }, caller, { body: { user_id, tenant } }) => {
    await apiKeys.tenants.get(tenant);
    return identity.manage.createLink({ ...caller, tenantId: tenant }, user_id);
  },
});

const linkConsole = endpoint({
  ...undocumented('post', '/console/link'),
  bodySchema: z.strictObject({ read_only: z.boolean().default(false) }),
  handle: ({ consoleSessions }, caller, { body: { read_only } }) =>
    consoleSessions.createLink(read_only ? 'admin_read' : 'admin', caller),
});

const endConsole = endpoint({
  ...undocumented('post', '/console/end'),
  handle: async ({ consoleSessions }, caller) => ({ ended: await consoleSessions.endAll(caller) }),
});

const rewrapVault = endpoint({
  ...undocumented('post', '/vault/rewrap'),
  handle: async ({ identity }) => ({ sealed: await identity.vaultKeys.rewrap() }),
});

const retireVaultKey = endpoint({
  ...undocumented('post', '/vault/retire'),
  bodySchema: z.strictObject({ key_id: z.string() }),
  handle: async ({ identity }, _caller, { body: { key_id } }) => {
    await identity.vaultKeys.requireUnused(key_id);
    return { key_id, unused: true };
  },
});

const rotateSigningKey = endpoint({
  ...undocumented('post', '/signing-keys/rotate'),
  handle: ({ identity }) => identity.signingKeys.rotate(),
});

/** The endpoints that are available only to the command line, on the control socket. */
const operatorEndpoints: readonly Endpoint[] = [
  alive,
  linkConnections,
  linkConsole,
  endConsole,
  rewrapVault,
  retireVaultKey,
  rotateSigningKey,
];
