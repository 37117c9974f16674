import { z } from 'zod';
import { SCOPES, SIGN_IN_MODES } from '../../core/access/caller.ts';
import { counts, keyInfo, monthlyQuota, newKeyInfo, tenantId, time, visibleLine } from './fields.ts';
import { operation } from './operation.ts';
import type { Endpoint } from '../http/endpoint.ts';

const MAX_OVERLAP_SEC = 366 * 24 * 3600;

const name = visibleLine(z.string().min(1).max(200)).describe('What the key is for.');

const listKeys = operation({
  method: 'get',
  path: '/keys',
  operationId: 'listKeys',
  summary: 'List the API keys',
  description: 'The newest first, those that are over among them. A key itself is never shown again.',
  errors: [],
  responseSchema: z.object({
    keys: z.array(
      keyInfo.extend({
        used_this_month: counts.describe(
          'Counted against the quota since the month began (UTC); keys that were rotated count together.',
        ),
      }),
    ),
  }),
  handle: async core => ({ keys: await core.apiKeys.list() }),
});

const createKey = operation({
  method: 'post',
  path: '/keys',
  operationId: 'createKey',
  summary: 'Make an API key',
  description:
    'The key is in the answer and is never shown again. Its tenant, and the user whom it acts for, are made when they are new. A key with ' +
    'the scope admin administers the whole installation and belongs to the tenant local.',
  errors: [],
  bodySchema: z.strictObject({
    name,
    tenant: tenantId.optional().describe('Who owns it. Default: local.'),
    user_id: z.string().optional().describe('The one user that it acts for, without an identity token.'),
    scopes: z
      .array(z.enum(SCOPES))
      .min(1)
      .optional()
      .describe('Default: search, proxy, and identity unless it acts for one user.'),
    expires_at: time
      .refine(at => Date.parse(at) > Date.now(), 'must be in the future')
      .optional()
      .describe('When it ends. Absent: never.'),
    monthly_quota: monthlyQuota.optional(),
  }),
  responseSchema: newKeyInfo,
  handle: (core, caller, { body }) =>
    core.apiKeys.create(
      {
        name: body.name,
        tenantId: body.tenant,
        userId: body.user_id,
        scopes: body.scopes,
        expiresAt: body.expires_at === undefined ? undefined : new Date(body.expires_at),
        quota: body.monthly_quota,
      },
      caller,
    ),
});

const changeKey = operation({
  method: 'post',
  path: '/keys/:id',
  operationId: 'changeKey',
  summary: 'Change the name or the quota of an API key',
  description:
    'What is left out stays as it is. A quota is that of all keys that followed each other by rotation. It holds within two seconds, on every process.',
  errors: ['key_not_found'],
  bodySchema: z.strictObject({ name: name.optional(), monthly_quota: monthlyQuota.optional() }),
  responseSchema: keyInfo,
  handle: (core, caller, { params, body }) =>
    core.apiKeys.change(params['id'] ?? '', { name: body.name, quota: body.monthly_quota }, caller),
});

const rotateKey = operation({
  method: 'post',
  path: '/keys/:id/rotate',
  operationId: 'rotateKey',
  summary: 'Make a key in place of another',
  description:
    'Same tenant, name, scopes, user, expiry and quota; it goes on with the count of the old one, which ends after the overlap. The new key is shown once.',
  errors: ['key_not_found'],
  bodySchema: z.strictObject({
    overlap_sec: z
      .int('must be whole seconds')
      .min(0, 'must not be negative')
      .max(MAX_OVERLAP_SEC, `must be at most ${MAX_OVERLAP_SEC / 86_400} days`)
      .describe('How long the old key goes on, in seconds.'),
  }),
  responseSchema: newKeyInfo.extend({ replaces: keyInfo }),
  handle: (core, caller, { params, body }) =>
    core.apiKeys.rotate(params['id'] ?? '', body.overlap_sec * 1000, caller),
});

const revokeKey = operation({
  method: 'post',
  path: '/keys/:id/revoke',
  operationId: 'revokeKey',
  summary: 'End an API key at once',
  description: 'At once in this process, within two seconds in others. Twice is as once.',
  errors: ['key_not_found'],
  responseSchema: keyInfo,
  handle: (core, caller, { params }) => core.apiKeys.revoke(params['id'] ?? '', caller),
});

const tenantInfo = z.object({
  id: z.string(),
  name: z.string().nullable().describe('What the pages that an end user sees call the app.'),
  mode: z.enum([...SIGN_IN_MODES, 'caller']).describe('How a sign-in is finished.'),
  return_urls: z.array(z.string()).describe('Where the result page may lead back to.'),
  created_at: z.iso.datetime(),
});

const listTenants = operation({
  method: 'get',
  path: '/tenants',
  operationId: 'listTenants',
  summary: 'List the tenants',
  description: 'By id.',
  errors: [],
  responseSchema: z.object({ tenants: z.array(tenantInfo) }),
  handle: async core => ({ tenants: await core.apiKeys.tenants.list() }),
});

const showTenant = operation({
  method: 'get',
  path: '/tenants/:id',
  operationId: 'showTenant',
  summary: 'Show a tenant',
  description: 'What its end users see, and how their sign-ins are finished.',
  errors: ['invalid_request'],
  responseSchema: tenantInfo,
  handle: (core, _caller, { params }) => core.apiKeys.tenants.get(params['id'] ?? ''),
});

const changeTenant = operation({
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
  handle: (core, caller, { params, body: { return_urls: returnUrls, ...rest } }) =>
    core.apiKeys.tenants.change(params['id'] ?? '', { ...rest, returnUrls }, caller),
});

export const keyEndpoints: readonly Endpoint[] = [
  listKeys,
  createKey,
  changeKey,
  rotateKey,
  revokeKey,
  listTenants,
  showTenant,
  changeTenant,
];
