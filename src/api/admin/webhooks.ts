import { z } from 'zod';
import { endpoint, type Endpoint } from '../http/endpoint.ts';
import { ADMIN, ADMIN_READ, WEB_ADDRESS } from './fields.ts';

const MAX_OVERLAP_SEC = 30 * 24 * 3600;

const nullableTime = z.iso.datetime().nullable();

const webhookInfo = z.object({
  url: z.string(),
  disabled_at: nullableTime.describe(
    'When the receiver answered 410 Gone. Nothing is sent until the address is set again.',
  ),
  old_secrets_until: nullableTime.describe('Until when older secrets sign, too. null: only the current one.'),
  waiting: z.int().describe('How many events were not delivered yet.'),
  oldest_waiting_at: nullableTime,
  last_problem: z.string().nullable().describe('Why the oldest of them was not delivered.'),
  created_at: z.iso.datetime(),
});

const secret = z.string().describe('The signing secret, whsec_ and base64. It is shown only once.');

const path = '/tenants/:id/webhook';

const showWebhook = endpoint({
  ...ADMIN_READ,
  method: 'get',
  path,
  operationId: 'showWebhook',
  summary: "Show a tenant's webhook",
  description:
    'webhook is null if the tenant has none. Of its address, a key with admin_read sees only the origin, because the rest may be a secret. The signing secret is never shown again.',
  errors: ['invalid_request'],
  responseSchema: z.object({ webhook: webhookInfo.nullable() }),
  handle: async ({ apiKeys, identity }, { scopes }, { params: { id = '' } }) => {
    await apiKeys.tenants.get(id);
    const webhook = await identity.webhooks.show(id);
    if (!webhook) return { webhook: null };
    const url = scopes.has('admin') ? webhook.url : new URL(webhook.url).origin;
    return { webhook: { ...webhook, url } };
  },
});

const setWebhook = endpoint({
  ...ADMIN,
  method: 'put',
  path,
  operationId: 'setWebhook',
  summary: "Set a tenant's webhook",
  description:
    'Events of connections are sent to this address. The first time, the response has the signing secret. Later, the secret stays, and events that wait are sent at once.',
  errors: [],
  bodySchema: z.strictObject({
    url: z.string().meta(WEB_ADDRESS).describe('An https: address.'),
  }),
  responseSchema: z.object({
    webhook: webhookInfo,
    secret: secret.nullable().describe('The signing secret, shown only now; null if there was one.'),
  }),
  handle: async ({ apiKeys, identity }, caller, { params: { id = '' }, body: { url } }) => {
    await apiKeys.tenants.get(id);
    return identity.webhooks.set({ ...caller, tenantId: id }, url);
  },
});

const rotateWebhook = endpoint({
  ...ADMIN,
  method: 'post',
  path: `${path}/rotate`,
  operationId: 'rotateWebhookSecret',
  summary: "Rotate a webhook's secret",
  description:
    'Creates a new signing secret, shown only once. Until the overlap ends, every event has a signature of the old secret, too.',
  errors: [],
  bodySchema: z.strictObject({
    overlap_sec: z
      .int('must be whole seconds')
      .min(0, 'must not be negative')
      .max(MAX_OVERLAP_SEC, `must be at most ${MAX_OVERLAP_SEC / 86_400} days`)
      .describe('How long the old secret keeps signing, in seconds.'),
  }),
  responseSchema: z.object({ webhook: webhookInfo, secret }),
  handle: async ({ apiKeys, identity }, caller, { params: { id = '' }, body: { overlap_sec } }) => {
    await apiKeys.tenants.get(id);
    return identity.webhooks.rotate({ ...caller, tenantId: id }, overlap_sec);
  },
});

const removeWebhook = endpoint({
  ...ADMIN,
  method: 'post',
  path: `${path}/remove`,
  operationId: 'removeWebhook',
  summary: "Remove a tenant's webhook",
  description: 'Also deletes its secrets and the events that wait. removed is false if there was none.',
  errors: ['invalid_request'],
  responseSchema: z.object({ removed: z.boolean() }),
  handle: async ({ apiKeys, identity }, caller, { params: { id = '' } }) => {
    await apiKeys.tenants.get(id);
    return { removed: await identity.webhooks.remove({ ...caller, tenantId: id }) };
  },
});

const testWebhook = endpoint({
  ...ADMIN,
  method: 'post',
  path: `${path}/test`,
  operationId: 'testWebhook',
  summary: "Test a tenant's webhook",
  description: 'Sends an event webhook.test once and reports the answer. It is not retried.',
  errors: ['invalid_request'],
  responseSchema: z.object({
    delivered: z.boolean(),
    status: z.int().nullable().describe("The receiver's HTTP status. null: it did not answer."),
    problem: z.string().nullable().describe('Why the event does not count as delivered.'),
    took_ms: z.int(),
  }),
  handle: async ({ apiKeys, identity }, _caller, { params: { id = '' } }) => {
    await apiKeys.tenants.get(id);
    return identity.webhooks.test(id);
  },
});

export const webhookEndpoints: readonly Endpoint[] = [
  showWebhook,
  setWebhook,
  rotateWebhook,
  removeWebhook,
  testWebhook,
];
