import { z } from 'zod';
import { SCOPES, SIGN_IN_MODES } from '../../core/access/caller.ts';
import {
  ADMIN,
  ADMIN_READ,
  counts,
  cursorOf,
  keyInfo,
  monthlyQuota,
  newKeyInfo,
  nextCursor,
  optionalPage,
  searchText,
  tenantId,
  time,
  visibleLine,
  WEB_ADDRESS,
  placeOf,
  wrongCursor,
} from './fields.ts';
import { endpoint, type Endpoint } from '../http/endpoint.ts';

const MAX_OVERLAP_SEC = 366 * 24 * 3600;

const name = visibleLine(z.string().min(1).max(200)).describe('What the key is for.');

const listKeys = endpoint({
  ...ADMIN_READ,
  method: 'get',
  path: '/keys',
  operationId: 'listKeys',
  summary: 'List the API keys',
  description:
    'Newest first, including revoked and expired keys. The keys themselves are never shown again. Without limit, all are returned.',
  errors: ['invalid_request'],
  querySchema: z.strictObject({
    tenant: tenantId.optional(),
    q: searchText.optional().describe('Text in the name, the id or the user, in any case.'),
    state: z.enum(['active', 'ended']).optional().describe('ended: revoked or expired.'),
    ...optionalPage,
  }),
  responseSchema: z.object({
    keys: z.array(
      keyInfo.extend({
        used_this_month: counts.describe(
          'Usage counted against the quota this month (UTC). A key and its rotated successors share one count.',
        ),
      }),
    ),
    next_cursor: nextCursor,
  }),
  handle: async (core, _caller, { query: { tenant, q: text, state, limit, cursor } }) => {
    const isActive = state === undefined ? undefined : state === 'active';
    const after = cursor === undefined ? undefined : placeOf(cursor);
    const { keys, next } = await core.apiKeys.list({ tenant, text, isActive, limit, after });
    return { keys, next_cursor: cursorOf(next) };
  },
});

const createKey = endpoint({
  ...ADMIN,
  method: 'post',
  path: '/keys',
  operationId: 'createKey',
  summary: 'Create an API key',
  description:
    'The response contains the key, which is shown only once. A tenant or user that does not exist yet is created. A key with ' +
    'the scope admin administers the whole installation and belongs to the tenant local.',
  errors: [],
  bodySchema: z.strictObject({
    name,
    tenant: tenantId.optional().describe('The tenant that owns the key. Default: local.'),
    user_id: z.string().optional().describe('The user that the key acts for, without an identity token.'),
    scopes: z
      .array(z.enum(SCOPES))
      .min(1)
      .optional()
      .describe('Default: search, proxy and, unless the key acts for one user, identity.'),
    expires_at: time
      .refine(at => Date.parse(at) > Date.now(), 'must be in the future')
      .optional()
      .describe('When the key expires. Absent: never.'),
    monthly_quota: monthlyQuota.optional(),
  }),
  responseSchema: newKeyInfo,
  links: Object.fromEntries(
    Object.entries({
      changeKey: 'Changes its name or its quota.',
      rotateKey: 'Replaces it by another.',
      revokeKey: 'Revokes it.',
    }).map(([operationId, description]) => [
      operationId,
      { operationId, description, parameters: { id: '$response.body#/id' } },
    ]),
  ),
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

const changeKey = endpoint({
  ...ADMIN,
  method: 'post',
  path: '/keys/:id',
  operationId: 'changeKey',
  summary: 'Change the name or the quota of an API key',
  description:
    'Omitted fields stay unchanged. A key and its rotated successors share one quota. A new quota takes effect in every process within two seconds.',
  errors: ['key_not_found'],
  bodySchema: z.strictObject({ name: name.optional(), monthly_quota: monthlyQuota.optional() }),
  responseSchema: keyInfo,
  handle: (core, caller, { params, body }) =>
    core.apiKeys.change(params['id'] ?? '', { name: body.name, quota: body.monthly_quota }, caller),
});

const rotateKey = endpoint({
  ...ADMIN,
  method: 'post',
  path: '/keys/:id/rotate',
  operationId: 'rotateKey',
  summary: 'Rotate an API key',
  description:
    'Creates a new key with the same tenant, name, scopes, user, expiry, quota and usage count. The old key stops working after the overlap. The new key is shown only once.',
  errors: ['key_not_found'],
  bodySchema: z.strictObject({
    overlap_sec: z
      .int('must be whole seconds')
      .min(0, 'must not be negative')
      .max(MAX_OVERLAP_SEC, `must be at most ${MAX_OVERLAP_SEC / 86_400} days`)
      .describe('How long the old key keeps working, in seconds.'),
  }),
  responseSchema: newKeyInfo.extend({ replaces: keyInfo }),
  handle: (core, caller, { params, body }) =>
    core.apiKeys.rotate(params['id'] ?? '', body.overlap_sec * 1000, caller),
});

const revokeKey = endpoint({
  ...ADMIN,
  method: 'post',
  path: '/keys/:id/revoke',
  operationId: 'revokeKey',
  summary: 'Revoke an API key',
  description:
    'Takes effect immediately in this process and within two seconds in others. Revoking twice has no further effect.',
  errors: ['key_not_found'],
  responseSchema: keyInfo,
  handle: (core, caller, { params }) => core.apiKeys.revoke(params['id'] ?? '', caller),
});

const signIn = z
  .strictObject({
    provider: z.string().min(1).max(64).describe('The name of an OpenID provider.'),
    user_id: z
      .enum(['email', 'sub'])
      .describe('The claim that is the user_id: the verified address, or the id.'),
    domain: z
      .string()
      .regex(/^[A-Za-z0-9-]+([.][A-Za-z0-9-]+)+$/)
      .max(253)
      .optional()
      .describe(
        'With email: anybody with a verified address at this domain is a user, who is created at the first sign-in. Absent: only known users can sign in.',
      ),
  })
  .refine(({ user_id, domain }) => domain === undefined || user_id === 'email', {
    path: ['domain'],
    error: 'is possible only with the claim email',
  });

const tenantInfo = z.object({
  id: z.string(),
  name: z.string().nullable().describe('The name of the app, shown to end users.'),
  mode: z.enum(SIGN_IN_MODES).describe('How a sign-in is completed.'),
  return_urls: z.array(z.string()).describe('The addresses that the result page may link back to.'),
  sign_in: signIn
    .nullable()
    .describe(
      'How users sign in without a link, to the page of their connections and for MCP clients. null: they need a link.',
    ),
  created_at: z.iso.datetime(),
});

const listTenants = endpoint({
  ...ADMIN_READ,
  method: 'get',
  path: '/tenants',
  operationId: 'listTenants',
  summary: 'List the tenants',
  description: 'Ordered by id. Without limit, all are returned.',
  errors: ['invalid_request'],
  querySchema: z.strictObject({
    q: searchText.optional().describe('Text in the id or the name, in any case.'),
    ...optionalPage,
  }),
  responseSchema: z.object({ tenants: z.array(tenantInfo), next_cursor: nextCursor }),
  handle: async (core, _caller, { query: { q: text, limit, cursor } }) => {
    const after = cursor === undefined ? undefined : tenantPlace(cursor);
    const { tenants, hasMore } = await core.apiKeys.tenants.list({ text, limit, after });
    return { tenants, next_cursor: hasMore ? (tenants.at(-1)?.id ?? null) : null };
  },
});

function tenantPlace(cursor: string): string {
  if (!tenantId.safeParse(cursor).success) throw wrongCursor();
  return cursor;
}

const showTenant = endpoint({
  ...ADMIN_READ,
  method: 'get',
  path: '/tenants/:id',
  operationId: 'showTenant',
  summary: 'Show a tenant',
  description: 'Returns the name shown to end users, and how their sign-ins are completed.',
  errors: ['invalid_request'],
  responseSchema: tenantInfo,
  handle: (core, _caller, { params }) => core.apiKeys.tenants.get(params['id'] ?? ''),
});

const changeTenant = endpoint({
  ...ADMIN,
  method: 'post',
  path: '/tenants/:id',
  operationId: 'changeTenant',
  summary: 'Change a tenant',
  description: 'Omitted fields stay unchanged. A tenant is created with its first key.',
  errors: ['provider_not_configured'],
  bodySchema: z.strictObject({
    name: visibleLine(z.string().max(100)).optional().describe("The name of the app. '' removes it."),
    mode: z.enum(SIGN_IN_MODES).optional(),
    return_urls: z
      .array(z.string().meta(WEB_ADDRESS))
      .max(100)
      .optional()
      .describe('The complete list. It replaces the old list.'),
    sign_in: signIn.nullable().optional().describe('null: users need a link.'),
  }),
  responseSchema: tenantInfo,
  async handle(core, caller, { params, body: { return_urls: returnUrls, sign_in, ...rest } }) {
    if (sign_in) core.identity.pageSignIns.requireProvider(sign_in.provider);
    return core.apiKeys.tenants.change(params['id'] ?? '', { ...rest, returnUrls, signIn: sign_in }, caller);
  },
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
