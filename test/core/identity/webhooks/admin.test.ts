import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestSwitchboard, type RunningSwitchboard } from '../../../support/switchboard.ts';
import { refusedPort } from '../../../support/upstreams/http.ts';
import { startReceiver, type WebhookReceiver } from '../../../support/webhook-receiver.ts';

const PATH = '/v1/admin/tenants/local/webhook';

describe(PATH, () => {
  let sb: RunningSwitchboard;
  let receiver: WebhookReceiver;
  let headers: Record<string, string>;
  beforeAll(async () => {
    const away = { id: 'away', remote_url: `http://127.0.0.1:${await refusedPort()}/mcp` };
    [sb, receiver] = await Promise.all([startTestSwitchboard({ catalogue: [away] }), startReceiver()]);
    const { json } = await sb.admin.request('POST', '/keys', { name: 'operator', scopes: ['admin'] });
    headers = { 'x-api-key': json.key };
  });
  afterAll(async () => {
    await sb[Symbol.asyncDispose]();
    await receiver[Symbol.asyncDispose]();
  });

  const webhook = (more: object = {}) => ({
    url: receiver.url,
    disabled_at: null,
    old_secrets_until: null,
    waiting: 0,
    oldest_waiting_at: null,
    last_problem: null,
    created_at: expect.any(String),
    ...more,
  });
  const secret = expect.stringMatching(/^whsec_/);

  it('sets, shows, rotates, tests and removes it', async () => {
    expect((await sb.get(PATH, headers)).json).toEqual({ webhook: null });
    const set = await sb.put(PATH, { url: receiver.url }, headers);
    expect([set.status, set.json]).toEqual([200, { webhook: webhook(), secret }]);
    expect(set.headers.get('cache-control')).toBe('no-store');
    expect((await sb.put(PATH, { url: receiver.url }, headers)).json).toEqual({
      webhook: webhook(),
      secret: null,
    });
    expect((await sb.get(PATH, headers)).json).toEqual({ webhook: webhook() });
    const rotated = await sb.post(`${PATH}/rotate`, { overlap_sec: 60 }, headers);
    expect(rotated.json).toEqual({
      webhook: webhook({ old_secrets_until: expect.any(String) }),
      secret,
    });
    expect(rotated.json.secret).not.toBe(set.json.secret);
    expect((await sb.post(`${PATH}/test`, '', headers)).json).toEqual({
      delivered: true,
      status: 204,
      problem: null,
      took_ms: expect.any(Number),
    });
    expect((await sb.post(`${PATH}/remove`, '', headers)).json).toEqual({ removed: true });
    expect((await sb.post(`${PATH}/remove`, '', headers)).json).toEqual({ removed: false });
  });

  it('tells which events wait and why', async () => {
    await sb.put(PATH, { url: receiver.url }, headers);
    receiver.conduct = 500;
    await sb.put(
      '/v1/admin/connections',
      { server_id: 'away', values: { token: 'key-of-the-team' } },
      headers,
    );
    await expect
      .poll(async () => (await sb.get(PATH, headers)).json.webhook)
      .toEqual(webhook({ waiting: 1, oldest_waiting_at: expect.any(String), last_problem: 'HTTP 500' }));
  });

  it.each<[string, unknown, RegExp]>([
    ['no address', {}, /url/],
    ['a number', { url: 7 }, /url/],
    ['a surplus field', { url: 'https://app.example/', secret: 'whsec_AAAA' }, /secret/],
    ['a path', { url: '/hooks' }, /must be an absolute https: or http: URL/],
    ['another scheme', { url: 'ftp://app.example/' }, /must be an absolute https: or http: URL/],
    ['a password', { url: 'https://user:pw@app.example/' }, /must not have a user name or password/],
    ['a fragment', { url: 'https://app.example/#x' }, /must not have a fragment/],
    ['a space', { url: 'https://app.example/a b' }, /must be an absolute https: or http: URL/],
    ['a backslash', { url: 'https://app.example\\@evil.example' }, /must be an absolute https: or http: URL/],
    ['3 KB', { url: `https://app.example/${'a'.repeat(3_000)}` }, /must be an absolute https: or http: URL/],
    ['a metadata service', { url: 'http://169.254.169.254/latest' }, /must be https: and public/],
  ])('refuses %s', async (_what, body, detail) => {
    const { status, json } = await sb.put(PATH, body, headers);
    expect([status, json.code, json.detail]).toEqual([400, 'invalid_request', expect.stringMatching(detail)]);
  });

  it.each([
    ['PUT', 'webhook', { url: 'https://app.example/' }],
    ['POST', 'webhook/rotate', { overlap_sec: 0 }],
    ['POST', 'webhook/test', ''],
    ['POST', 'webhook/remove', ''],
  ] as const)('%s %s of a tenant that does not exist is 400 and creates none', async (method, path, body) => {
    const send = method === 'PUT' ? sb.put : sb.post;
    const { status, json } = await send(`/v1/admin/tenants/nobody/${path}`, body, headers);
    expect([status, json.code]).toEqual([400, 'invalid_request']);
    const { json: listed } = await sb.get('/v1/admin/tenants', headers);
    expect(listed.tenants.map(({ id }: { id: string }) => id)).not.toContain('nobody');
  });

  it('is for the scope admin', async () => {
    const { json } = await sb.admin.request('POST', '/keys', { name: 'app', scopes: ['identity'] });
    const { status } = await sb.put(PATH, { url: receiver.url }, { 'x-api-key': json.key });
    expect(status).toBe(403);
  });
});
