import { z } from 'zod';
import { LOCAL_TENANT } from '../../core/access/tenants.ts';
import { MIB, type Endpoint } from '../http/endpoint.ts';
import { jsonObject, queryText, searchLimit } from '../http/input.ts';
import { tenantId } from './fields.ts';
import { operation } from './operation.ts';

const ANY = z.looseObject({});
const endUser = z.strictObject({ user_id: z.string(), tenant: tenantId.default(LOCAL_TENANT) });

const search = operation({
  method: 'post',
  path: '/search',
  operationId: 'searchAsOperator',
  summary: 'Search the catalogue',
  description: 'Waits until every entry is searchable.',
  errors: [],
  bodySchema: z.strictObject({ query: queryText, limit: searchLimit }),
  responseSchema: ANY,
  handle: async (core, caller, { body }) => {
    await core.indexed;
    return core.search.search(caller, body);
  },
});

const callTool: Endpoint = {
  ...operation({
    method: 'post',
    path: '/call',
    operationId: 'callToolAsOperator',
    summary: 'Call one tool of a server',
    description: 'Acts for no user.',
    errors: [],
    bodySchema: z.strictObject({
      server_id: z.string().min(1),
      name: z.string().min(1),
      arguments: jsonObject.default({}),
    }),
    responseSchema: ANY,
    handle: (core, caller, { body: { server_id, name, arguments: args } }) =>
      core.proxy.callTool(caller, { serverId: server_id, name, arguments: args }),
  }),
  maxBodyBytes: 4 * MIB,
};

const listConnections = operation({
  method: 'get',
  path: '/connections',
  operationId: 'listConnectionsAsOperator',
  summary: "List a user's connections",
  description: 'Never shows a token.',
  errors: [],
  querySchema: endUser,
  responseSchema: ANY,
  handle: async ({ apiKeys, identity }, _caller, { query: { user_id, tenant } }) => {
    await apiKeys.tenants.get(tenant);
    return { connections: await identity.connections.list(tenant, user_id) };
  },
});

const linkConnections = operation({
  method: 'post',
  path: '/connections/link',
  operationId: 'linkConnections',
  summary: "Make a link to the page of a user's connections",
  description: 'The link works once, within five minutes.',
  errors: [],
  bodySchema: endUser,
  responseSchema: ANY,
  handle: async ({ apiKeys, identity }, caller, { body: { user_id, tenant } }) => {
    await apiKeys.tenants.get(tenant);
    return identity.manage.createLink({ ...caller, tenantId: tenant }, user_id);
  },
});

const rewrapVault = operation({
  method: 'post',
  path: '/vault/rewrap',
  operationId: 'rewrapVault',
  summary: 'Seal everything in the vault with the newest key',
  description: 'Resolves to the number of sealed entries.',
  errors: [],
  responseSchema: ANY,
  handle: async ({ identity }) => ({ sealed: await identity.vaultKeys.rewrap() }),
});

const retireVaultKey = operation({
  method: 'post',
  path: '/vault/retire',
  operationId: 'retireVaultKey',
  summary: 'Check that a key of the vault is no longer used',
  description: 'An error names what still needs it.',
  errors: [],
  bodySchema: z.strictObject({ key_id: z.string() }),
  responseSchema: ANY,
  handle: async ({ identity }, _caller, { body: { key_id } }) => {
    await identity.vaultKeys.requireUnused(key_id);
    return { key_id, unused: true };
  },
});

const rotateSigningKey = operation({
  method: 'post',
  path: '/signing-keys/rotate',
  operationId: 'rotateSigningKey',
  summary: 'Sign identity tokens with a new key',
  description: 'The old key goes on verifying the tokens that it signed.',
  errors: [],
  responseSchema: ANY,
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
