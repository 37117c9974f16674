import { z } from 'zod';
import { LOCAL_TENANT } from '../../core/access/tenants.ts';
import type { Core } from '../../core/core.ts';
import { pageOfConnections } from '../../core/identity/connections/connection-pages.ts';
import type { ConnectionInfo } from '../../core/identity/connections/connections.ts';
import { CONNECTION_STATES } from '../../core/identity/schema.ts';
import {
  connectionKind,
  connectionSchema,
  credentialValues,
  givenOf,
  madeConnection,
  scopeNames,
} from '../http/connection-schemas.ts';
import { endpoint, storable, type Endpoint } from '../http/endpoint.ts';
import { ADMIN, ADMIN_READ, cursorOf, nextCursor, page, placeOf, tenantId } from './fields.ts';

const tenant = tenantId.default(LOCAL_TENANT).describe('The tenant. Default: local.');

const forUsers = z
  .boolean()
  .optional()
  .describe('true: calls for users without a connection of their own go through it, too.');

const sessionShape = { session_id: z.string(), auth_url: z.string(), expires_at: z.iso.datetime() };

const listConnections = endpoint({
  ...ADMIN_READ,
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

/** Names a connection after its server; its own title stays if it is with a provider, or the server is gone. */
const named = <T extends ConnectionInfo>(catalogue: Core['catalogue'], one: T): T => ({
  ...one,
  title: (one.server_id === null ? undefined : catalogue.get(one.server_id)?.name) ?? one.title,
});

const listAll = endpoint({
  ...ADMIN_READ,
  method: 'get',
  path: '/connections/all',
  operationId: 'listAllConnections',
  summary: 'List connections of all tenants',
  description:
    'Returns the connections of users and those that tenants share, the newest first. A connection that is made meanwhile may be missing.',
  errors: ['invalid_request'],
  querySchema: z.strictObject({
    tenant: tenantId.optional(),
    user_id: storable(z.string().max(1024)).optional().describe("The caller's own id for the user."),
    server_id: credentialValues.server_id.optional(),
    provider: storable(z.string().max(256)).optional().describe('The name of an identity provider.'),
    kind: connectionKind.optional(),
    status: z.enum(CONNECTION_STATES).optional(),
    shared: z
      .enum(['yes', 'no'])
      .optional()
      .describe('yes: only those that a tenant shares. no: only those of users.'),
    ...page,
  }),
  responseSchema: z.object({
    connections: z.array(
      connectionSchema.extend({
        tenant: z.string(),
        user: z
          .string()
          .nullable()
          .describe("The caller's own id for the user. null: the tenant shares the connection."),
      }),
    ),
    next_cursor: nextCursor,
  }),
  handle: async ({ identity, catalogue }, _caller, { query: { limit, cursor, shared, ...query } }) => {
    const { user_id: userId, server_id: serverId, ...rest } = query;
    const isShared = shared === undefined ? undefined : shared === 'yes';
    const after = cursor === undefined ? undefined : placeOf(cursor);
    const filter = { ...rest, userId, serverId, isShared };
    const { connections, next } = await pageOfConnections(identity.context, filter, { after, limit });
    return {
      connections: connections.map(one => named(catalogue, one)),
      next_cursor: cursorOf(next),
    };
  },
});

const revokeOne = endpoint({
  ...ADMIN,
  method: 'post',
  path: '/connections/:id/revoke',
  operationId: 'revokeConnection',
  summary: 'End a connection',
  description:
    'Deletes the tokens or the key of a connection of any tenant or user. A provider is notified in the background. ended is false if there is no such connection.',
  errors: ['invalid_request'],
  responseSchema: z.object({ ended: z.boolean() }),
  handle: async ({ identity }, caller, { params: { id = '' } }) => {
    const holder = await identity.connections.holderOf(id);
    if (!holder) return { ended: false };
    const { userId } = holder;
    const actor = { ...caller, tenantId: holder.tenantId };
    return { ended: await identity.revocations.disconnect(actor, userId, id) };
  },
});

const held = z.object({
  connections: z.int(),
  identity_sessions: z.int().describe('Families of refresh tokens that still last.'),
  pending_sign_ins: z.int().describe('Sign-ins at providers and servers that have begun.'),
  keys: z.int().describe('Keys that act for the user.'),
});

const ofUser = {
  tenant,
  user_id: z.string().describe("The caller's own id for the user."),
};

const showUser = endpoint({
  ...ADMIN_READ,
  method: 'get',
  path: '/users/holdings',
  operationId: 'showHoldingsOfUser',
  summary: 'Show what a user has',
  description: 'Counts what a revocation of the user would end. An unknown user has nothing.',
  errors: ['invalid_request'],
  querySchema: z.strictObject({ ...ofUser, user_id: storable(ofUser.user_id) }),
  responseSchema: held,
  handle: async ({ apiKeys, identity }, _caller, { query: { tenant: id, user_id } }) => {
    await apiKeys.tenants.get(id);
    return identity.revocations.held(id, user_id);
  },
});

const revokeUser = endpoint({
  ...ADMIN,
  method: 'post',
  path: '/users/revoke',
  operationId: 'revokeUserOfTenant',
  summary: 'Revoke all of a user',
  description:
    'Ends all connections, identity tokens, refresh tokens, sign-ins and keys of an end user, as POST /v1/identity/revoke does, and counts what ended. An unknown user is a success, of whom nothing ended.',
  errors: [],
  bodySchema: z.strictObject(ofUser),
  responseSchema: z.object({ revoked: z.literal(true), ended: held }),
  handle: async ({ apiKeys, identity }, caller, { body: { tenant: id, user_id } }) => {
    await apiKeys.tenants.get(id);
    const ended = await identity.revocations.revokeAll({ ...caller, tenantId: id }, user_id);
    return { revoked: true, ended };
  },
});

const connectServer = endpoint({
  ...ADMIN,
  method: 'post',
  path: '/connections/session',
  operationId: 'createSharedSession',
  summary: 'Connect a server for a tenant',
  description:
    "Starts a sign-in with the server's own authorization server; open auth_url in a browser. All calls of the tenant that act for no user then go through the account. kind is credentials for a server that has no authorization server: store its key with PUT /connections instead.",
  errors: [
    'server_not_found',
    'server_inactive',
    'operator_setup_needed',
    'provider_unavailable',
    'upstream_protocol',
    'rate_limited',
  ],
  bodySchema: z.strictObject({
    tenant,
    server_id: credentialValues.server_id,
    for_users: forUsers,
    scopes: scopeNames.optional().describe('Scopes to ask for besides those that the server names.'),
  }),
  responseSchema: z.union([
    z.object({ kind: z.literal('oauth'), ...sessionShape }),
    z.object({ kind: z.literal('credentials') }),
  ]),
  handle: async (core, caller, { body: { tenant: id, server_id, for_users, scopes } }) => {
    await core.apiKeys.tenants.get(id);
    const { server } = core.serverConnections.form(server_id);
    const actor = { ...caller, tenantId: id };
    const wanted = { forUsers: for_users, scopes };
    const session = await core.identity.sessions.createShared(actor, server, wanted);
    return session ? { kind: 'oauth', ...session } : { kind: 'credentials' };
  },
});

const pollServer = endpoint({
  ...ADMIN,
  method: 'get',
  onlyGet: true,
  path: '/connections/session',
  operationId: 'getSharedSession',
  summary: 'Poll the sign-in of a tenant',
  description: 'Returns the status of the sign-in. A final status is delivered once.',
  errors: ['invalid_request', 'session_not_found', 'session_delivered'],
  querySchema: z.strictObject({ tenant, session_id: z.string() }),
  responseSchema: z.object({
    status: z.enum(['pending', 'complete', 'error']),
    error: z.string().optional(),
  }),
  handle: ({ identity }, _caller, { query: { tenant: id, session_id } }) =>
    identity.sessions.poll({ tenantId: id }, session_id),
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
    for_users: forUsers,
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

export const connectionEndpoints: readonly Endpoint[] = [
  listConnections,
  listAll,
  connectServer,
  pollServer,
  putConnection,
  revokeConnection,
  revokeOne,
  showUser,
  revokeUser,
];
