import { z } from 'zod';
import { LOCAL_TENANT } from '../../core/access/tenants.ts';
import { connectionSchema, credentialValues, givenOf, madeConnection } from '../http/connection-schemas.ts';
import { endpoint, type Endpoint } from '../http/endpoint.ts';
import { ADMIN, tenantId } from './fields.ts';

const tenant = tenantId.default(LOCAL_TENANT).describe('The tenant. Default: local.');

const listConnections = endpoint({
  ...ADMIN,
  method: 'get',
  path: '/connections',
  operationId: 'listConnectionsOfTenant',
  summary: 'List connections',
  description:
    'Returns the connections that all calls of a tenant share or, with user_id, those of one user.',
  errors: ['invalid_request'],
  querySchema: z.strictObject({
    tenant,
    user_id: z.string().optional().describe("The caller's own id for the user."),
  }),
  responseSchema: z.object({ connections: z.array(connectionSchema) }),
  handle: async ({ apiKeys, identity, serverConnections }, _caller, { query: { user_id, tenant: id } }) => {
    await apiKeys.tenants.get(id);
    const connections =
      user_id === undefined ? serverConnections.listShared(id) : identity.connections.list(id, user_id);
    return { connections: await connections };
  },
});

const putConnection = endpoint({
  ...ADMIN,
  method: 'put',
  path: '/connections',
  operationId: 'putSharedConnection',
  summary: "Store a tenant's key for a server",
  description:
    'Calls without a user then carry it. The server is asked for its tools with it; a key that it refuses is not stored. The values are never returned.',
  errors: ['credentials_rejected', 'upstream_blocked', 'server_not_found', 'server_inactive'],
  bodySchema: z.strictObject({
    tenant,
    ...credentialValues,
    for_users: z
      .boolean()
      .optional()
      .describe('true: calls for users without a connection of their own carry it, too.'),
  }),
  responseSchema: madeConnection,
  handle: async ({ apiKeys, serverConnections }, caller, { body: { tenant: id, for_users, ...given } }) => {
    await apiKeys.tenants.get(id);
    const actor = { ...caller, tenantId: id };
    return serverConnections.putShared(actor, { ...givenOf(given), forUsers: for_users }, caller.signal);
  },
});

const revokeConnection = endpoint({
  ...ADMIN,
  method: 'post',
  path: '/connections/revoke',
  operationId: 'revokeSharedConnection',
  summary: "End a tenant's connection with a server",
  description: 'Deletes the key. ended is false if there was none.',
  errors: [],
  bodySchema: z.strictObject({ tenant, server_id: credentialValues.server_id }),
  responseSchema: z.object({ ended: z.boolean() }),
  handle: async ({ apiKeys, serverConnections }, caller, { body: { tenant: id, server_id } }) => {
    await apiKeys.tenants.get(id);
    return { ended: await serverConnections.endShared({ ...caller, tenantId: id }, server_id) };
  },
});

export const connectionEndpoints: readonly Endpoint[] = [listConnections, putConnection, revokeConnection];
