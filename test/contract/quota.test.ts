import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connectV1 } from '../support/mcp-clients.ts';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';
import { startV2Server, type V2Server } from '../support/upstreams/v2.ts';

let upstream: V2Server;
let sb: RunningSwitchboard;
beforeAll(async () => {
  upstream = await startV2Server();
  sb = await startTestSwitchboard({ catalogue: [{ id: 'v2', remote_url: upstream.url }] });
});
afterAll(async () => {
  await sb[Symbol.asyncDispose]();
  await upstream[Symbol.asyncDispose]();
});

const newKey = async (monthly_quota: object): Promise<{ id: string; key: string }> =>
  (await sb.admin.request('POST', '/keys', { name: 'test', monthly_quota })).json;
const search = ({ key }: { key: string }, query: unknown = 'anything') =>
  sb.post('/v1/search', { query }, { 'x-api-key': key });
const listTools = ({ key }: { key: string }, server_id = 'v2') =>
  sb.post('/v1/mcp/tools/list', { server_id }, { 'x-api-key': key });
const usedBy = async ({ id }: { id: string }) =>
  (await sb.admin.request('GET', '/keys')).json.keys.find((one: any) => one.id === id).used_this_month;

/** Those of an answer's headers that are about the quota. */
const quotaOf = ({ headers }: { headers: Headers }, name = 'ratelimit') =>
  headers
    .get(name)
    ?.split(', ')
    .find(part => part.includes('-per-month'));

describe('a key with a monthly quota', () => {
  it('learns the remaining quota, and is refused with the quota when it is used up [quota.refused] [quota.headers]', async () => {
    const key = await newKey({ searches: 2 });
    const first = await search(key);
    expect(quotaOf(first)).toMatch(/^"searches-per-month";r=1;t=\d+$/);
    expect(quotaOf(first, 'ratelimit-policy')).toMatch(/^"searches-per-month";q=2;w=2\d{6}$/);
    expect(first.headers.get('ratelimit')).toContain('"search";r=');
    await search(key);

    const refused = await search(key);
    expect(refused.status).toBe(429);
    expect(refused.headers.get('content-type')).toMatch(/^application\/problem\+json/);
    expect(refused.json).toMatchObject({
      code: 'quota_exceeded',
      title: 'Monthly quota used up',
      quota: { use: 'searches', limit: 2, resets_at: expect.stringMatching(/-01T00:00:00\.000Z$/) },
    });
    expect(refused.json.detail).toContain('used up its monthly quota of 2 searches');
    const secondsLeft = (Date.parse(refused.json.quota.resets_at) - Date.now()) / 1000;
    expect(Math.abs(Number(refused.headers.get('retry-after')) - secondsLeft)).toBeLessThan(120);
    expect(quotaOf(refused)).toMatch(/^"searches-per-month";r=0;t=\d+$/);
    expect((await listTools(key)).status).toBe(200);
    expect(await usedBy(key)).toEqual({ calls: 1, searches: 2 });
  });

  it('is not charged for what is refused before it begins [quota.refused]', async () => {
    const key = await newKey({ searches: 1, calls: 1 });
    expect((await search(key, '')).status).toBe(400);
    expect((await listTools(key, '')).status).toBe(400);
    expect(await usedBy(key)).toEqual({ calls: 0, searches: 0 });
  });

  it('has one count for every way to call [quota.faces]', async () => {
    const key = await newKey({ calls: 4 });
    const headers = { 'x-api-key': key.key };
    const rpc = (method: string) => ({ jsonrpc: '2.0', id: 1, method, params: {} });
    const call = () => sb.post('/v1/mcp/call', { server_id: 'v2', method: 'tools/list' }, headers);
    await listTools(key);
    await call();
    const passed = await sb.post('/mcp/v2', rpc('tools/list'), {
      ...headers,
      accept: 'application/json, text/event-stream',
    });
    expect(quotaOf(passed)).toMatch(/^"calls-per-month";r=1;t=\d+$/);
    await using client = await connectV1({ url: sb.url, key: key.key });
    const remote = { server_id: 'v2', tool_name: 'echo', arguments: { message: 'hello' } };
    await client.call('call_remote_tool', remote);
    expect(await usedBy(key)).toEqual({ calls: 4, searches: 0 });

    const refused = await call();
    expect(refused).toMatchObject({
      status: 429,
      json: { jsonrpc: '2.0', error: { code: -32000, data: { reason: 'quota_exceeded', retryable: false } } },
    });
    const onMcp = await client.call('call_remote_tool', remote);
    expect(JSON.stringify(onMcp)).toContain('quota_exceeded');
    expect((await sb.post('/mcp/v2', rpc('tools/list'), headers)).status).toBe(429);
  });

  it('counts each message of a batch, or refuses the batch [quota.faces]', async () => {
    const key = await newKey({ calls: 4 });
    const batch = Array.from({ length: 3 }, (_, id) => ({ jsonrpc: '2.0', id, method: 'tools/list' }));
    const send = () => sb.post('/mcp/v2', batch, { 'x-api-key': key.key });
    expect(quotaOf(await send())).toMatch(/;r=1;/);
    expect((await send()).status).toBe(429);
    expect(await usedBy(key)).toEqual({ calls: 3, searches: 0 });
    expect((await listTools(key)).status).toBe(200);
  });

  it('refuses a batch in an encoding in which its messages would not be counted [quota.faces]', async () => {
    const key = await newKey({ calls: 4 });
    const headers = { 'x-api-key': key.key, 'content-type': 'application/json; charset="utf-16le"' };
    const refused = await sb.post(
      '/mcp/v2',
      Buffer.from(JSON.stringify([{ jsonrpc: '2.0', id: 1, method: 'tools/list' }]), 'utf16le'),
      headers,
    );
    expect(refused.status).toBe(415);
    expect(await usedBy(key)).toEqual({ calls: 0, searches: 0 });
  });

  it('counts nothing of what is refused for its timeout [quota.faces]', async () => {
    const key = await newKey({ calls: 1 });
    const headers = { 'x-api-key': key.key, 'switchboard-timeout-ms': 'soon' };
    const message = { jsonrpc: '2.0', id: 1, method: 'tools/list' };
    expect((await sb.post('/mcp/v2', message, headers)).status).toBe(400);
    expect(await usedBy(key)).toEqual({ calls: 0, searches: 0 });
  });

  it('keeps quota and count through a rotation, and has another as soon as it is set [quota.change]', async () => {
    const key = await newKey({ searches: 1 });
    await search(key);
    const rotated = (await sb.admin.request('POST', `/keys/${key.id}/rotate`, { overlap_sec: 60 })).json;
    expect(rotated.monthly_quota).toEqual({ calls: null, searches: 1 });
    for (const either of [key, rotated]) expect((await search(either)).status).toBe(429);

    await sb.admin.request('POST', `/keys/${rotated.id}`, { monthly_quota: { searches: 3 } });
    expect((await search(key)).status).toBe(200);
    expect((await search(rotated)).status).toBe(200);
    expect((await search(rotated)).status).toBe(429);
    expect(await usedBy(rotated)).toEqual({ calls: 0, searches: 3 });
    await sb.admin.request('POST', `/keys/${key.id}`, { monthly_quota: { searches: null } });
    const free = await search(rotated);
    expect([free.status, quotaOf(free)]).toEqual([200, undefined]);
  });

  it('is found in the record of use by day [admin.pages]', async () => {
    const key = await newKey({});
    await search(key);
    await listTools(key);
    const { json } = await sb.get(`/v1/admin/usage?key_id=${key.id}`);
    expect(json).toEqual({
      usage: [
        {
          day: expect.stringMatching(/^\d{4}-\d\d-\d\d$/),
          key_id: key.id,
          name: 'test',
          tenant: 'local',
          calls: 1,
          searches: 1,
        },
      ],
      next_cursor: null,
    });
    const first = (await sb.get('/v1/admin/usage?limit=1')).json;
    const second = (await sb.get(`/v1/admin/usage?limit=1&cursor=${first.next_cursor}`)).json;
    expect(second.usage[0].key_id > first.usage[0].key_id).toBe(true);
    for (const wrong of ['cursor=x', 'cursor=2026-13-01~k', 'from=today', 'limit=-1'])
      expect((await sb.get(`/v1/admin/usage?${wrong}`)).status, wrong).toBe(400);
  });
});
