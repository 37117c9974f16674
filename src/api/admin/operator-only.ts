import { z } from 'zod';
import { LOCAL_TENANT } from '../../core/access/tenants.ts';
import { MIB, type Endpoint, jsonObject, queryText, searchLimit } from '../http/endpoint.ts';
import { tenantId } from './fields.ts';
import { operation } from './operation.ts';

const endUser = z.strictObject({ user_id: z.string(), tenant: tenantId.default(LOCAL_TENANT) });

/** Returns the fields of an endpoint that stands in no document, as only the command line calls it. */
const undocumented = (method: 'get' | 'post', path: string) => ({
  method,
  path,
  operationId: path,
  summary: '',
  description: '',
  errors: [],
  responseSchema: z.unknown(),
});

const search = operation({
  ...undocumented('post', '/search'),
  bodySchema: z.strictObject({ query: queryText, limit: searchLimit }),
  handle: async (core, caller, { body }) => {
    await core.indexed;
    return core.search.search(caller, body);
  },
});

const callTool: Endpoint = {
  ...operation({
    ...undocumented('post', '/call'),
    bodySchema: z.strictObject({
      server_id: z.string().min(1),
      name: z.string().min(1),
      arguments: jsonObject.default({}),
    }),
    handle: (core, caller, { body: { server_id, name, arguments: args } }) =>
      core.proxy.callTool(caller, { serverId: server_id, name, arguments: args }),
  }),
  maxBodyBytes: 4 * MIB,
};

const listConnections = operation({
  ...undocumented('get', '/connections'),
  querySchema: endUser,
  handle: async ({ apiKeys, identity }, _caller, { query: { user_id, tenant } }) => {
    await apiKeys.tenants.get(tenant);
    return { connections: await identity.connections.list(tenant, user_id) };
  },
});

const linkConnections = operation({
  ...undocumented('post', '/connections/link'),
  bodySchema: endUser,
  handle: async ({ apiKeys, identity }, caller, { body: { user_id, tenant } }) => {
    await apiKeys.tenants.get(tenant);
    return identity.manage.createLink({ ...caller, tenantId: tenant }, user_id);
  },
});

const rewrapVault = operation({
  ...undocumented('post', '/vault/rewrap'),
  handle: async ({ identity }) => ({ sealed: await identity.vaultKeys.rewrap() }),
});

const retireVaultKey = operation({
  ...undocumented('post', '/vault/retire'),
  bodySchema: z.strictObject({ key_id: z.string() }),
  handle: async ({ identity }, _caller, { body: { key_id } }) => {
    await identity.vaultKeys.requireUnused(key_id);
    return { key_id, unused: true };
  },
});

const rotateSigningKey = operation({
  ...undocumented('post', '/signing-keys/rotate'),
  handle: ({ identity }) => identity.signingKeys.rotate(),
});

/** The endpoints that only the command line has, on the control socket. */
export const operatorEndpoints: readonly Endpoint[] = [
  search,
  callTool,
  listConnections,
  linkConnections,
  rewrapVault,
  retireVaultKey,
  rotateSigningKey,
];
