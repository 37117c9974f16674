import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, inject, it, vi } from 'vitest';
import { adminEndpoints } from '../../src/api/admin/table.ts';
import { restEndpoints } from '../../src/api/rest/endpoints.ts';
import { errorCodes } from '../../src/errors.ts';
import { openPostgres } from '../../src/platform/database/postgres.ts';
import { createDatabase } from '../support/postgres.ts';
import { scrape, sumOf } from '../support/scrape.ts';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';
import { refusedPort } from '../support/upstreams/http.ts';
import { startV2Server, type V2Server } from '../support/upstreams/v2.ts';

const CALL = 'switchboard_proxy_call_duration_seconds_count';
const HTTP = 'switchboard_http_request_duration_seconds_count';
const MCP = { accept: 'application/json, text/event-stream' };

let upstream: V2Server;
let sb: RunningSwitchboard;
beforeAll(async () => {
  upstream = await startV2Server();
  sb = await startTestSwitchboard({
    env: { SWITCHBOARD_RATE_LIMIT: 'revoke=1/600' },
    catalogue: [
      { id: 'up', remote_url: upstream.url },
      { id: 'down', remote_url: `http://127.0.0.1:${await refusedPort()}/mcp` },
    ],
  });
});
afterAll(async () => {
  await sb[Symbol.asyncDispose]();
  await upstream[Symbol.asyncDispose]();
});

/** The count is written when the answer has left, which its client may hear of sooner. */
const counted = (name: string, labels: Record<string, string>, times: number) =>
  vi.waitFor(async () => expect(sumOf(await scrape(sb.url), name, labels)).toBe(times), { timeout: 5_000 });

describe('/metrics', () => {
  it('counts requests by the route as the code has it', async () => {
    await sb.get('/v1/identity/sessions/ses_nobody-has-this-one');
    await sb.post('/v1/search', { query: '' });
    await sb.post('/v1/search', { query: 'anything' }, { 'x-api-key': 'wrong' });
    await sb.get('/v1/nowhere');
    await sb.get('/connect/some-link');
    await sb.post('/mcp', { jsonrpc: '2.0', id: 1, method: 'tools/list' }, MCP);
    await sb.post('/mcp/nobody', { jsonrpc: '2.0', id: 1, method: 'tools/list' }, MCP);
    const session = '/v1/identity/sessions/:session_id';
    await counted(HTTP, { route: session, method: 'GET', status: '4xx' }, 1);
    await counted(HTTP, { route: '/v1/search', method: 'POST', status: '4xx' }, 1);
    await counted(HTTP, { route: '/connect/:ticket', method: 'GET' }, 1);
    await counted(HTTP, { route: '/mcp', method: 'POST', status: '2xx' }, 1);
    await counted(HTTP, { route: '/mcp/:server_id', method: 'POST', status: '4xx' }, 1);
    // Without a key nobody's path is looked up; the other has none.
    await counted(HTTP, { route: 'other' }, 2);
  });

  it('counts proxied calls by how they ended, and what is refused before any server is asked as none', async () => {
    await sb.post('/v1/mcp/tools/list', { server_id: 'up' });
    await sb.post('/v1/mcp/tools/list', { server_id: 'down' });
    await sb.post('/v1/mcp/tools/list', { server_id: 'nobody' });
    const samples = await scrape(sb.url);
    expect(sumOf(samples, CALL, { kind: 'list', outcome: 'ok' })).toBe(1);
    expect(sumOf(samples, CALL, { kind: 'list', outcome: 'upstream_unreachable' })).toBe(1);
    expect(sumOf(samples, CALL, { kind: 'list' })).toBe(2);
  });

  it('counts what its client no longer waited for as aborted, with the call that it made', async () => {
    const client = new AbortController();
    const called = upstream.inbox.count('tools/call');
    const left = fetch(`${sb.url}/v1/mcp/tools/call`, {
      method: 'POST',
      headers: { 'x-api-key': sb.key, 'content-type': 'application/json' },
      body: JSON.stringify({ server_id: 'up', name: 'wait', arguments: {} }),
      signal: client.signal,
    });
    await vi.waitFor(() => expect(upstream.inbox.count('tools/call')).toBe(called + 1), { timeout: 5_000 });
    client.abort();
    await expect(left).rejects.toThrow();
    await counted(HTTP, { route: '/v1/mcp/tools/call', status: 'aborted' }, 1);
    await counted(CALL, { kind: 'call', outcome: 'aborted' }, 1);
  });

  it('shows servers with open circuit breakers', async () => {
    const open = async () => sumOf(await scrape(sb.url), 'switchboard_upstream_circuits', { state: 'open' });
    expect(await open()).toBe(0);
    for (let call = 0; call < 8; call++) await sb.post('/v1/mcp/tools/list', { server_id: 'down' });
    expect(await open()).toBeGreaterThan(0);
    expect(sumOf(await scrape(sb.url), CALL, { outcome: 'upstream_unavailable' })).toBeGreaterThan(0);
  });

  it('counts what is refused with 429, and events of the audit log', async () => {
    const revoke = () => sb.post('/v1/identity/revoke', { user_id: 'nobody' });
    await revoke();
    expect((await revoke()).status).toBe(429);
    const quota = { searches: 1 };
    const made = await sb.admin.request('POST', '/keys', { name: 'n', monthly_quota: quota });
    const search = () => sb.post('/v1/search', { query: 'x' }, { 'x-api-key': made.json.key });
    await search();
    expect((await search()).status).toBe(429);
    const samples = await scrape(sb.url);
    const refusals = 'switchboard_rate_limit_refusals_total';
    expect(sumOf(samples, refusals, { class: 'revoke' })).toBe(1);
    expect(sumOf(samples, refusals, { class: 'searches-per-month' })).toBe(1);
    const events = 'switchboard_audit_events_total';
    expect(sumOf(samples, events, { event: 'key_created', outcome: 'ok' })).toBe(1);
  });

  it('shows the process, and its slots and sessions', async () => {
    const samples = await scrape(sb.url);
    for (const name of ['nodejs_eventloop_lag_p99_seconds', 'process_resident_memory_bytes'])
      expect(sumOf(samples, name)).toBeGreaterThan(0);
    for (const name of ['switchboard_upstream_slots', 'switchboard_search_slots'])
      expect(samples.filter(one => one.name === name).map(({ labels }) => labels['state'])).toEqual([
        'busy',
        'waiting',
      ]);
    expect(sumOf(samples, 'switchboard_upstream_sessions')).toBe(0);
  });

  it('has no label from outside, whatever comes', async () => {
    const odd = async () => {
      const word = `x${randomUUID()}`;
      const as = { 'x-api-key': `sbk_live_${word}` };
      for (const path of [`/${word}`, `/v1/${word}`, `/mcp/${word}`, `/v0.1/${word}`, `/connect/${word}`])
        await sb.get(path);
      for (const path of ['/v1/search', '/mcp', `/mcp/${word}`, `/v1/${word}`]) await sb.post(path, {}, as);
      await sb.get(`/v1/identity/sessions/${word}?${word}=${word}`);
      await fetch(`${sb.url}/v1/search`, { method: word.toUpperCase() });
      await fetch(`${sb.url}/healthz?${word}`, { method: 'OPTIONS', headers: { host: word } });
      await sb.post('/v1/search', { query: word, [word]: 1 });
      await sb.post('/v1/search', { query: word });
      await sb.post('/v1/mcp/tools/call', { server_id: word, name: word, arguments: {} });
      await sb.post('/v1/mcp/tools/call', { server_id: 'up', name: word, arguments: { [word]: word } });
      await sb.post('/v1/mcp/call', { server_id: 'up', method: word, id: word });
      await sb.post('/mcp/up', { jsonrpc: '2.0', id: word, method: word }, MCP);
      await sb.post('/v1/identity/sessions', { provider: word, user_id: word });
      await sb.post('/v1/identity/token/refresh', { refresh_token: word });
      await sb.admin.request('POST', '/keys', { name: word, tenant: word });
      return word;
    };
    const series = async () =>
      (await scrape(sb.url)).map(({ name, labels }) => `${name} ${JSON.stringify(labels)}`);
    const words = [await odd(), await odd()];
    const before = new Set((await series()).filter(one => one.startsWith('switchboard_')));
    for (let time = 0; time < 3; time++) words.push(await odd());
    const after = (await series()).filter(one => one.startsWith('switchboard_'));
    expect(after.filter(one => !before.has(one))).toEqual([]);
    for (const word of words) expect(after.join('\n').toLowerCase()).not.toContain(word);
  });

  it('has only labels of closed lists', async () => {
    const paths = [...restEndpoints, ...adminEndpoints].map(({ path }) => path);
    const pages = ['/connect/:ticket', '/oauth/callback/:provider', '/manage', '/manage/:link'];
    const own = ['/mcp', '/mcp/:server_id', '/healthz', '/readyz', '/metrics', '/docs', '/openapi.json'];
    const routes = new Set([...paths, ...pages, ...own, '/.well-known/jwks.json', 'other']);
    const outcomes = new Set<string | undefined>(['ok', 'aborted', ...errorCodes]);
    for (const { name, labels } of await scrape(sb.url)) {
      if (name === HTTP) {
        expect(routes).toContain(labels['route']);
        expect(labels['method']).toMatch(/^(GET|HEAD|POST|PATCH|DELETE|other)$/);
        expect(labels['status']).toMatch(/^([1-5]xx|aborted)$/);
      }
      if (name === CALL) expect(outcomes).toContain(labels['outcome']);
    }
  });
});

it.skipIf(inject('postgresUrl') === undefined)('/metrics shows the connections to Postgres', async () => {
  await using database = await createDatabase();
  await using onPostgres = await startTestSwitchboard({ database: () => openPostgres(database.url) });
  const samples = await scrape(onPostgres.url);
  const pool = 'switchboard_database_pool';
  expect(sumOf(samples, pool, { state: 'busy' }) + sumOf(samples, pool, { state: 'idle' })).toBeGreaterThan(
    0,
  );
  expect(sumOf(samples, pool, { state: 'waiting' })).toBe(0);
});
