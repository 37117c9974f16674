import { z } from 'zod';
import { SCOPES } from '../../../core/access/caller.ts';
import { counts, keyInfo, monthlyQuota, newKeyInfo, tenantId, time, visibleLine } from './fields.ts';
import { operation, type Operation } from './operation.ts';

const MAX_OVERLAP_SEC = 366 * 24 * 3600;

const name = visibleLine(z.string().min(1).max(200)).describe('What the key is for.');

const list = operation({
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

const create = operation({
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

const change = operation({
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

const rotate = operation({
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

const revoke = operation({
  method: 'post',
  path: '/keys/:id/revoke',
  operationId: 'revokeKey',
  summary: 'End an API key at once',
  description: 'At once in this process, within two seconds in others. Twice is as once.',
  errors: ['key_not_found'],
  responseSchema: keyInfo,
  handle: (core, caller, { params }) => core.apiKeys.revoke(params['id'] ?? '', caller),
});

export const keyOperations: readonly Operation[] = [list, create, change, rotate, revoke];
