import { afterEach, beforeEach, describe, expect, inject, it } from 'vitest';
import { openPostgres } from '../../src/platform/database/postgres.ts';
import { createDatabase } from '../support/postgres.ts';
import { eventually } from '../support/processes.ts';
import { listed, startRegistry } from '../support/registry.ts';
import { scrape, sumOf } from '../support/scrape.ts';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';
import { startChangeable, type Changeable } from '../support/upstreams/changeable.ts';
import { startV2Server } from '../support/upstreams/v2.ts';

const DAY = 86_400_000;
const TIDES = 'tide tables of harbours';

let nowMs: number;
const clock = { now: () => nowMs };
let stack: AsyncDisposableStack;
/** Two servers that fit the query, the first of them better. */
let first: Changeable;
let second: Changeable;
let sb: RunningSwitchboard;
const entries = () => [
  { id: 'first', name: 'Harbours', description: 'Tide tables of harbours.', remote_url: first.url },
  {
    id: 'second',
    name: 'Other',
    description: 'Tide tables of all harbours, rivers.',
    remote_url: second.url,
  },
];

beforeEach(async () => {
  nowMs = Date.UTC(2026, 10, 1);
  stack = new AsyncDisposableStack();
  first = stack.use(await startChangeable());
  second = stack.use(await startChangeable());
  sb = stack.use(await startTestSwitchboard({ clock, catalogue: entries() }));
});
afterEach(() => stack.disposeAsync());

const probe = async (ids?: readonly string[], on = sb) =>
  (await on.admin.request('POST', '/catalogue/probe', ids ? { ids } : {})).json;
/** A visit of every server on each of so many days, the first of them tomorrow. */
async function probeDaily(days: number, ids?: readonly string[]) {
  let report: any;
  for (let day = 0; day < days; day++) {
    nowMs += DAY;
    report = await probe(ids);
  }
  return report;
}
const show = async (id: string) => (await sb.admin.request('GET', `/catalogue/${id}`)).json;
const search = async (query = TIDES, on = sb): Promise<any[]> =>
  (await on.post('/v1/search', { query })).json.servers;
const idsOf = (servers: readonly { id: string }[]) => servers.map(({ id }) => id);
const callStatus = async (id: string) => (await sb.post('/v1/mcp/tools/list', { server_id: id })).status;
const put = (lines: readonly object[]) =>
  sb.admin.request('POST', '/catalogue/import', lines.map(line => JSON.stringify(line)).join('\n'));
const audited = async (event: string) => (await sb.admin.request('GET', `/audit?event=${event}`)).json.audit;

describe('POST /catalogue/probe', () => {
  it('checks every server and shows its health wherever servers are shown [search.health]', async () => {
    first.conduct = 401;
    expect(idsOf(await search('harbours tides'))).toContain('first');
    expect(await search('harbours tides')).not.toContainEqual(
      expect.objectContaining({ health: expect.anything() }),
    );
    expect(await probe()).toEqual({
      visited: 2,
      ok: 1,
      needs_sign_in: 1,
      not_mcp: 0,
      unreachable: 0,
      no_verdict: 0,
      deactivated: 0,
      reactivated: 0,
      failing: [],
    });
    const at = '2026-11-01T00:00:00.000Z';
    const shown = new Map((await search()).map(({ id, health }) => [id, health]));
    expect(shown.get('first')).toEqual({ status: 'needs_sign_in', checked_at: at, latency_ms: 0 });
    expect(shown.get('second')).toEqual({ status: 'ok', checked_at: at, latency_ms: 0 });
    expect((await show('second')).health).toEqual({
      status: 'ok',
      checked_at: at,
      latency_ms: 0,
      last_ok_at: at,
      failures: 0,
    });
    const { servers } = (await sb.get('/v0.1/servers')).json;
    expect(servers.map((one: any) => one._meta['dev.switchboard/server'].health.status)).toEqual([
      'needs_sign_in',
      'ok',
    ]);
    const params = { name: 'search_servers', arguments: { query: TIDES } };
    const accept = { accept: 'application/json, text/event-stream' };
    const { text } = await sb.post('/mcp', { jsonrpc: '2.0', id: 1, method: 'tools/call', params }, accept);
    // Where all is well, it takes no room.
    expect(text.match(/health/g)).toHaveLength(2);
    expect(text).toMatch(/health.{1,5}:.{1,3}needs_sign_in/);
    const samples = await scrape(sb.url);
    expect(sumOf(samples, 'switchboard_servers', { state: 'ok' })).toBe(1);
    expect(sumOf(samples, 'switchboard_servers', { state: 'needs_sign_in' })).toBe(1);
    expect(sumOf(samples, 'switchboard_probes_total', { outcome: 'needs_sign_in' })).toBe(1);
  });

  it('brings the tools that a server lists into the catalogue, as calls do', async () => {
    first.tools = [
      { name: 'moon_phase', description: 'The phase of the moon.', inputSchema: { type: 'object' } },
    ];
    await probe();
    expect(await show('first')).toMatchObject({ tools_source: 'live', tools: [{ name: 'moon_phase' }] });
    expect((await search('the phase of the moon'))[0].id).toBe('first');
  });

  it('counts as no use and opens no circuit', async () => {
    first.conduct = 500;
    await probeDaily(10);
    first.conduct = 'mcp';
    expect(await callStatus('first')).toBe(200);
    const samples = await scrape(sb.url);
    expect(sumOf(samples, 'switchboard_proxy_call_duration_seconds_count', {})).toBe(1);
    expect(sumOf(samples, 'switchboard_upstream_circuits', {})).toBe(0);
    expect((await search()).map(({ scores }) => scores.popularity)).toEqual([0, 0]);
    expect(first.inbox.count('tools/call')).toBe(0);
  });

  it('checks named servers; an unknown id is 404, a deactivated one 410', async () => {
    expect(await probe(['second', 'second'])).toMatchObject({ visited: 1, ok: 1 });
    expect(first.inbox.all).toEqual([]);
    const refused = async (ids: string[]) =>
      (await sb.admin.request('POST', '/catalogue/probe', { ids })).status;
    expect(await refused(['second', 'nobody'])).toBe(404);
    await sb.admin.request('POST', '/catalogue/second/deactivate');
    expect(await refused(['second'])).toBe(410);
    expect(await refused([])).toBe(400);
  });

  it('keeps the health of a server that returns 429', async () => {
    await probe();
    const before = await show('first');
    first.conduct = 429;
    nowMs += DAY;
    expect(await probe()).toMatchObject({ no_verdict: 1, ok: 1 });
    expect((await show('first')).health).toEqual(before.health);
  });
});

it('a sweep whose caller hung up is in the audit log with its counts', async () => {
  second.conduct = 'silent';
  const hangingUp = new AbortController();
  const round = fetch(`${sb.url}/v1/admin/catalogue/probe`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-api-key': sb.key },
    body: '{}',
    signal: hangingUp.signal,
  });
  round.catch(() => {});
  const visited = async () => sumOf(await scrape(sb.url), 'switchboard_probes_total', { outcome: 'ok' });
  await eventually('one was visited', async () => (await visited()) === 1);
  hangingUp.abort();
  await expect(round).rejects.toThrow('abort');
  await eventually('it was noted', async () => (await audited('catalogue_probed')).length > 0);
  expect(await audited('catalogue_probed')).toMatchObject([{ outcome: 'failed', details: { ok: 1 } }]);
});

describe('a server that has moved', () => {
  it('has no health until it is checked at its new address', async () => {
    first.conduct = 'html';
    await probeDaily(3);
    expect((await show('first')).health).toMatchObject({ status: 'not_mcp', failures: 3 });
    await put([{ ...entries()[0], remote_url: `${second.url}?moved` }]);
    expect(await show('first')).not.toHaveProperty('health');
    expect((await search()).find(({ id }) => id === 'first')).not.toHaveProperty('health');
  });
});

describe('a dead server', () => {
  it('ranks lower from the third failure on, even when named, and returns when it answers [search.health]', async () => {
    const [best, other] = await search();
    expect([best.id, other.id]).toEqual(['first', 'second']);
    expect(other.final_score).toBeGreaterThan(best.final_score / 2);
    await first.pause();
    await probeDaily(2);
    // Searches are a day apart: none has the ranking of another.
    expect(idsOf(await search())).toEqual(['first', 'second']);
    expect((await search())[0].health).toMatchObject({ status: 'unreachable' });
    await probeDaily(1);
    const sunk = await search();
    expect(idsOf(sunk)).toEqual(['second', 'first']);
    expect(sunk[1].final_score).toBeCloseTo(best.final_score / 2);
    expect((await search('harbours'))[0].id).toBe('second');
    // An id is nobody else's, as a name may be.
    expect((await search('first'))[0].id).toBe('first');
    await first.resume();
    await probeDaily(1);
    expect(idsOf(await search())).toEqual(['first', 'second']);
  });

  it('is inactive (410) after 30 days, with an entry in the audit log, and active again when it answers [catalogue.dead]', async () => {
    await probeDaily(1);
    first.conduct = 503;
    await probeDaily(3);
    const deadSince = new Date(nowMs).toISOString();
    expect((await show('first')).health).toMatchObject({ failures: 3, dead_since: deadSince });
    expect(await probeDaily(29)).toMatchObject({ deactivated: 0, unreachable: 1 });
    expect(await callStatus('first')).not.toBe(410);
    expect(await probeDaily(1)).toMatchObject({ deactivated: 1 });
    expect(await callStatus('first')).toBe(410);
    const { json } = await sb.post('/v1/mcp/tools/list', { server_id: 'first' });
    expect(json).toMatchObject({ code: 'server_inactive', detail: expect.stringContaining('30 days') });
    expect(idsOf(await search())).toEqual(['second']);
    expect(await show('first')).toMatchObject({ active: false, unanswered: true, origin: 'shipped' });
    expect(await audited('server_deactivated')).toMatchObject([
      { key_id: null, outcome: 'ok', details: { server: 'first', dead_since: deadSince } },
    ]);
    expect(sumOf(await scrape(sb.url), 'switchboard_servers', { state: 'inactive' })).toBe(1);

    expect(await probeDaily(1)).toMatchObject({ visited: 2, deactivated: 0, reactivated: 0 });
    first.conduct = 'mcp';
    expect(await probeDaily(1)).toMatchObject({ reactivated: 1 });
    expect(await callStatus('first')).toBe(200);
    expect(idsOf(await search())).toEqual(['first', 'second']);
    expect(await show('first')).toMatchObject({ active: true, health: { status: 'ok', failures: 0 } });
    expect(await show('first')).not.toHaveProperty('unanswered');
    expect(await audited('server_reactivated')).toMatchObject([
      { key_id: null, details: { server: 'first' } },
    ]);
  });

  it('counts failures from zero after an import, and stays inactive after a deactivation', async () => {
    first.conduct = 'html';
    await probeDaily(33);
    expect(await show('first')).toMatchObject({ active: false, unanswered: true });
    await put([entries()[0]!]);
    expect(await show('first')).toMatchObject({ active: true, origin: 'operator', health: { failures: 0 } });
    expect(await probeDaily(32)).toMatchObject({ deactivated: 0 });
    expect(await probeDaily(1)).toMatchObject({ deactivated: 1 });

    await sb.admin.request('POST', '/catalogue/first/deactivate');
    expect(await show('first')).not.toHaveProperty('unanswered');
    first.conduct = 'mcp';
    expect(await probeDaily(1)).toMatchObject({ visited: 1, reactivated: 0 });
    expect(await callStatus('first')).toBe(410);
  });

  it('is not reactivated by a sync with its registry, unless at another address, and ends with its entry', async () => {
    const remotes = (url: string) => ({ remotes: [{ type: 'streamable-http', url }] });
    const others = ['a', 'b', 'c', 'd', 'e'].map(letter =>
      listed(`x.y/${letter}`, remotes(`${second.url}?${letter}`)),
    );
    await using registry = await startRegistry([listed('x.y/dead', remotes(`${first.url}?r`)), ...others]);
    const sync = async () =>
      (await sb.admin.request('POST', '/catalogue/sync', { url: registry.url, full: true })).json;
    await sync();
    first.conduct = 404;
    await probeDaily(33);
    expect(await show('x.y_dead')).toMatchObject({ active: false, unanswered: true, origin: 'registry' });
    expect(await sync()).toMatchObject({ synced: 5, left: 1, deactivated: 0 });
    expect(await show('x.y_dead')).toMatchObject({ active: false, unanswered: true });

    registry.entries = [listed('x.y/dead', remotes(`${second.url}?r`)), ...others];
    expect(await sync()).toMatchObject({ synced: 6 });
    expect(await show('x.y_dead')).toMatchObject({ active: true });
    registry.entries = [listed('x.y/dead', remotes(`${first.url}?r`)), ...others];
    await sync();
    await probeDaily(33);
    expect(await show('x.y_dead')).toMatchObject({ active: false, unanswered: true });
    // No longer listed: then it is over for good.
    registry.entries = others;
    expect(await sync()).toMatchObject({ deactivated: 1 });
    first.conduct = 'mcp';
    await probeDaily(1);
    expect(await show('x.y_dead')).toMatchObject({ active: false });
    expect(await show('x.y_dead')).not.toHaveProperty('unanswered');
  });
});

describe('a sweep in which most hosts fail', () => {
  it('is thrown away as our own outage: no failure is recorded, and /readyz says so', async () => {
    const others = await Promise.all(
      Array.from({ length: 10 }, async () => stack.use(await startChangeable())),
    );
    const turn = (conduct: Changeable['conduct']) =>
      [second, ...others].forEach(one => (one.conduct = conduct));
    await put(
      others.map(({ url }, at) => ({
        id: `many-${at}`,
        name: `Many ${at}`,
        description: 'One of many.',
        remote_url: url,
      })),
    );
    first.conduct = 503;
    await probeDaily(32);
    turn('html');
    for (let round = 0; round < 3; round++) {
      expect(await probeDaily(1)).toMatchObject({
        not_mcp: 11,
        deactivated: 0,
        doubted: expect.stringMatching(/own network/),
      });
    }
    expect((await show('many-3')).health).toMatchObject({ status: 'ok', failures: 0 });
    // It would have been inactive by now.
    expect(await show('first')).toMatchObject({ active: true, health: { failures: 32 } });
    expect((await sb.get('/readyz')).json.degraded).toEqual([
      expect.stringMatching(/^probing: .*own network/),
    ]);
    expect(sb.logged()).toMatch(/probing: .*own network/);
    const degraded = async () => sumOf(await scrape(sb.url), 'switchboard_degraded', { part: 'probing' });
    expect(await degraded()).toBe(1);
    turn('mcp');
    expect(await probeDaily(1)).toMatchObject({ ok: 11, deactivated: 1 });
    expect((await sb.get('/readyz')).json.degraded).toEqual([]);
    expect(await degraded()).toBe(0);
  });
});

it('a server starts no sweep by itself unless SWITCHBOARD_PROBE_EVERY is set', async () => {
  await using server = await startV2Server();
  const catalogue = [{ id: 'up', remote_url: server.url }];
  await using _silent = await startTestSwitchboard({ catalogue });
  await using probing = await startTestSwitchboard({ catalogue, env: { SWITCHBOARD_PROBE_EVERY: '24' } });
  await eventually('the server was visited', () => probing.logged().includes('servers probed'));
  expect(server.inbox.methods()).toEqual(['server/discover', 'tools/list']);
});

describe.skipIf(inject('postgresUrl') === undefined)('two processes on one Postgres', () => {
  it('share the health of servers and lose no check of each other', async () => {
    await using database = await createDatabase();
    const env = {
      DATABASE_URL: database.url,
      SWITCHBOARD_KEKS: `k1:${Buffer.alloc(32, 1).toString('base64')}`,
    };
    const start = () =>
      startTestSwitchboard({ env, catalogue: entries(), database: () => openPostgres(database.url) });
    await using a = await start();
    await using b = await start();
    first.conduct = 'html';
    await probe(undefined, a);
    const seen = async () => (await search(TIDES, b)).find(({ id }) => id === 'first')?.health?.status;
    await eventually('the other shows it', async () => (await seen()) === 'not_mcp');
    await Promise.all([probe(undefined, a), probe(undefined, b)]);
    for (const one of [a, b]) {
      const failures = async () =>
        (await one.admin.request('GET', '/catalogue/first')).json.health.failures as number;
      await eventually('all three visits count', async () => (await failures()) === 3);
    }
  });
});
