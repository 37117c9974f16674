import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';

let nowMs = Date.UTC(2026, 10, 1);
let sb: RunningSwitchboard;
beforeAll(async () => {
  sb = await startTestSwitchboard({
    clock: { now: () => nowMs },
    env: { SWITCHBOARD_RATE_LIMIT: 'search=4/60' },
  });
});
afterAll(() => sb[Symbol.asyncDispose]());

const keyWith = async (more: object) => (await sb.post('/v1/admin/keys', { name: 'x', ...more })).json;
const searchAs = async ({ key }: { key: string }) =>
  (await sb.post('/v1/search', { query: 'news' }, { 'x-api-key': key })).status;
const recordsOf = async ({ id }: { id: string }) =>
  (await sb.get(`/v1/admin/audit?key_id=${id}&event=request_refused`)).json.audit;

describe('refused requests', () => {
  it('are counted on the overview, and audited once an hour for each key and reason [console.refusals]', async () => {
    const looks = await keyWith({ scopes: ['admin_read'] });
    const spent = await keyWith({ monthly_quota: { searches: 1 } });
    const fast = await keyWith({ tenant: 'app' });
    for (let n = 0; n < 3; n++)
      expect((await sb.post('/v1/admin/keys', { name: 'y' }, { 'x-api-key': looks.key })).status).toBe(403);
    expect([await searchAs(spent), await searchAs(spent)]).toEqual([200, 429]);
    for (let n = 0; n < 4; n++) expect(await searchAs(fast)).toBe(200);
    for (let n = 0; n < 5; n++) expect(await searchAs(fast)).toBe(429);
    expect(await searchAs({ key: 'wrong' })).toBe(401);

    expect(await recordsOf(looks)).toMatchObject([
      { outcome: 'refused', tenant: 'local', details: { reason: 'insufficient_scope' } },
    ]);
    expect(await recordsOf(spent)).toMatchObject([
      { details: { reason: 'quota_exceeded', limit: 'searches' } },
    ]);
    expect(await recordsOf(fast)).toMatchObject([
      { tenant: 'app', request_id: expect.any(String), details: { reason: 'rate_limited', limit: 'search' } },
    ]);
    expect((await sb.get('/v1/admin/overview')).json.traffic.refusals).toEqual([
      { code: 'rate_limited', limit: 'search', count: 5 },
      { code: 'insufficient_scope', limit: null, count: 3 },
      { code: 'quota_exceeded', limit: 'searches', count: 1 },
      { code: 'unauthorized', limit: null, count: 1 },
    ]);

    nowMs += 3_600_000;
    await sb.post('/v1/admin/keys', { name: 'y' }, { 'x-api-key': looks.key });
    expect((await recordsOf(looks)).map((one: any) => one.details)).toEqual([
      { reason: 'insufficient_scope', further: 2 },
      { reason: 'insufficient_scope' },
    ]);
  });

  it('are no record if the input was wrong', async () => {
    const key = await keyWith({});
    expect((await sb.post('/v1/search', {}, { 'x-api-key': key.key })).status).toBe(400);
    expect(await recordsOf(key)).toEqual([]);
  });
});
