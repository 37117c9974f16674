import { z } from 'zod';
import { SIGN_IN_MODES } from '../../../core/access/caller.ts';
import { visibleLine } from './fields.ts';
import { operation, type Operation } from './operation.ts';

const tenantInfo = z.object({
  id: z.string(),
  name: z.string().nullable().describe('What the pages that an end user sees call the app.'),
  mode: z.enum([...SIGN_IN_MODES, 'caller']).describe('How a sign-in is finished.'),
  return_urls: z.array(z.string()).describe('Where the result page may lead back to.'),
  created_at: z.iso.datetime(),
});

const list = operation({
  method: 'get',
  path: '/tenants',
  operationId: 'listTenants',
  summary: 'List the tenants',
  description: 'By id.',
  errors: [],
  responseSchema: z.object({ tenants: z.array(tenantInfo) }),
  handle: async core => ({ tenants: await core.apiKeys.tenants.list() }),
});

const show = operation({
  method: 'get',
  path: '/tenants/:id',
  operationId: 'showTenant',
  summary: 'Show a tenant',
  description: 'What its end users see, and how their sign-ins are finished.',
  errors: ['invalid_request'],
  responseSchema: tenantInfo,
  handle: (core, _caller, { params }) => core.apiKeys.tenants.get(params['id'] ?? ''),
});

const change = operation({
  method: 'post',
  path: '/tenants/:id',
  operationId: 'changeTenant',
  summary: 'Change a tenant',
  description: 'What is left out stays as it is. A tenant is made with its first key, not here.',
  errors: [],
  bodySchema: z.strictObject({
    name: visibleLine(z.string().max(100)).optional().describe("'' takes it away."),
    mode: z.enum(SIGN_IN_MODES).optional(),
    return_urls: z.array(z.string()).max(100).optional().describe('All of them.'),
  }),
  responseSchema: tenantInfo,
  handle: (core, caller, { params, body: { name, mode, return_urls } }) =>
    core.apiKeys.tenants.change(params['id'] ?? '', { name, mode, returnUrls: return_urls }, caller),
});

export const tenantOperations: readonly Operation[] = [list, show, change];
