import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startIdentity, type IdentityUnderTest } from '../support/identity.ts';
import { startTestSwitchboard, type Answer, type RunningSwitchboard } from '../support/switchboard.ts';
import { actingForUsers, startAuthorised, type AuthorisedServer } from '../support/upstreams/authorised.ts';
import { startHostile, type Hostile } from '../support/upstreams/hostile.ts';

const INITIALIZE = {
  jsonrpc: '2.0',
  id: 1,
  method: 'initialize',
  params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 't', version: '1' } },
};
const LIST = { jsonrpc: '2.0', id: 'list-1', method: 'tools/list' };
const ACCEPT = { accept: 'application/json, text/event-stream' };

type Headers = Record<string, string>;
const initialize = (sb: RunningSwitchboard, server: string, headers: Headers = {}) =>
  sb.post(`/mcp/${server}`, INITIALIZE, { ...ACCEPT, ...headers });
const list = (sb: RunningSwitchboard, server: string, session: string, headers: Headers = {}) =>
  sb.post(`/mcp/${server}`, LIST, { ...ACCEPT, 'mcp-session-id': session, ...headers });
const sessionOf = (answer: Answer): string => answer.headers.get('mcp-session-id') ?? '';

function expectNoSession(answer: Answer): void {
  expect(answer.status).toBe(404);
  expect(answer.json).toMatchObject({
    jsonrpc: '2.0',
    id: 'list-1',
    error: { code: -32_000, data: { origin: 'switchboard', reason: 'mcp_session_not_found' } },
  });
}

describe('a session id that is handed out', () => {
  let upstream: Hostile;
  let acting: AuthorisedServer;
  let sb: IdentityUnderTest;
  let users: Record<'alice' | 'bob', Headers>;

  beforeAll(async () => {
    [upstream, acting] = await Promise.all([startHostile(), startAuthorised('legacy')]);
    sb = await startIdentity({
      catalogue: [
        { id: 'a', remote_url: upstream.url('ok') },
        { id: 'b', remote_url: upstream.url('ok') },
        actingForUsers('acting', acting.url),
      ],
      allowedOrigins: [acting.origin],
      env: { SWITCHBOARD_RATE_LIMIT: 'off' },
    });
    users = { alice: sb.as(await sb.connect('alice')), bob: sb.as(await sb.connect('bob')) };
  });
  afterAll(async () => {
    await sb[Symbol.asyncDispose]();
    await Promise.all([upstream[Symbol.asyncDispose](), acting[Symbol.asyncDispose]()]);
  });

  it("is not the server's own, which alone reaches the server", async () => {
    const session = sessionOf(await initialize(sb, 'a'));
    expect(session).toMatch(/^k1\.[\w-]{40,}$/);
    const from = upstream.inbox.all.length;
    expect((await list(sb, 'a', session)).status).toBe(200);
    expect(upstream.inbox.all.slice(from).map(({ headers }) => headers['mcp-session-id'])).toEqual([
      [...upstream.sessionIds].at(-1),
    ]);
    expect(Buffer.from(session.slice(3), 'base64url').toString('latin1')).not.toContain('session-');
  });

  it('works for no other tenant, key, user or server', async () => {
    const { json } = await sb.admin.request('POST', '/keys', { name: 'second' });
    const owners: Record<string, [server: string, headers: Headers]> = {
      key: ['a', {}],
      'another key': ['a', { 'x-api-key': json.key }],
      'another tenant': ['a', { 'x-api-key': sb.otherKey }],
      alice: ['a', users.alice],
      bob: ['a', users.bob],
      'another server': ['b', {}],
    };
    const sessions = new Map<string, string>();
    for (const [name, [server, headers]] of Object.entries(owners))
      sessions.set(name, sessionOf(await initialize(sb, server, headers)));
    const from = upstream.inbox.all.length;
    for (const [name, [server, headers]] of Object.entries(owners)) {
      for (const [other, session] of sessions) {
        const answer = await list(sb, server, session, headers);
        if (name === other) expect(answer.status).toBe(200);
        else expectNoSession(answer);
      }
    }
    expect(upstream.inbox.all.slice(from)).toHaveLength(sessions.size);
  });

  it('serves the same user over another account no more', async () => {
    const carol = sb.as(await sb.connect('carol'));
    const session = sessionOf(await initialize(sb, 'acting', carol));
    expect((await list(sb, 'acting', session, carol)).status).toBe(200);
    await sb.revoke('carol');
    const again = sb.as(await sb.connect('carol', { login: 'other' }));
    expectNoSession(await list(sb, 'acting', session, again));
  });

  it('altered, cut, doubled or made up is 404', async () => {
    const session = sessionOf(await initialize(sb, 'a'));
    const from = upstream.inbox.all.length;
    const last = session.at(-1) ?? '';
    const changed = (char: string) => (char === 'A' ? 'B' : 'A');
    const wrong = [
      `k2${session.slice(2)}`,
      `k1.${changed(session[3] ?? '')}${session.slice(4)}`,
      session.slice(0, -1) + changed(last),
      session.slice(0, -1),
      `${session}A`,
      `${session}=`,
      `${session}, ${session}`,
      [...upstream.sessionIds].at(-1) ?? '',
      randomBytes(80).toString('base64url'),
      'x'.repeat(8_000),
      '%00',
    ];
    for (const each of wrong) expectNoSession(await list(sb, 'a', each));
    expect(upstream.inbox.all).toHaveLength(from);
  });

  it('of a session that the server has ended brings the answer of the server', async () => {
    const session = sessionOf(await initialize(sb, 'a'));
    upstream.sessionIds.clear();
    const answer = await list(sb, 'a', session);
    expect(answer.status).toBe(404);
    expect(answer.json).toEqual({
      jsonrpc: '2.0',
      id: null,
      error: { code: -32_001, message: 'Session not found' },
    });
  });

  it('stays the same where the server repeats its own', async () => {
    const first = await initialize(sb, 'acting', users.alice);
    const again = await list(sb, 'acting', sessionOf(first), users.alice);
    expect(sessionOf(again)).toBe(sessionOf(first));
  });
});

describe('a session id', () => {
  const start = (upstream: Hostile, env: Record<string, string>, nowMs = () => Date.now()) =>
    startTestSwitchboard({
      catalogue: [{ id: 'a', remote_url: upstream.url('ok') }],
      env,
      clock: { now: nowMs },
    });
  const keks = (...names: string[]) => ({
    SWITCHBOARD_KEKS: names.map(name => `${name}:${Buffer.alloc(32, name).toString('base64')}`).join(','),
  });

  it('holds across restarts and processes with the same keys, and as long as a rotated key is there', async () => {
    await using upstream = await startHostile();
    let session: string;
    {
      await using first = await start(upstream, keks('k1'));
      session = sessionOf(await initialize(first, 'a'));
    }
    await using rotated = await start(upstream, keks('k2', 'k1'));
    expect((await list(rotated, 'a', session)).status).toBe(200);
    await using retired = await start(upstream, keks('k2'));
    expectNoSession(await list(retired, 'a', session));
    expect((await list(retired, 'a', sessionOf(await initialize(rotated, 'a')))).status).toBe(200);
  });

  it.each([400, 404, 500])(
    'that comes with HTTP %i is not handed on: clients would adopt it',
    async status => {
      await using upstream = await startHostile({
        modes: { GET: call => call.json({}, status, { 'mcp-session-id': 'beside-initialize' }) },
      });
      await using sb = await start(upstream, {});
      const early = await sb.get('/mcp/a', { accept: 'text/event-stream' });
      expect([early.status, early.headers.get('mcp-session-id')]).toEqual([status, null]);
      expect((await list(sb, 'a', sessionOf(await initialize(sb, 'a')))).status).toBe(200);
    },
  );

  it('ends after seven days', async () => {
    await using upstream = await startHostile();
    let aheadMs = 0;
    await using sb = await start(upstream, {}, () => Date.now() + aheadMs);
    const session = sessionOf(await initialize(sb, 'a'));
    aheadMs = 7 * 24 * 60 * 60_000 - 60_000;
    expect((await list(sb, 'a', session)).status).toBe(200);
    aheadMs += 60_000;
    expectNoSession(await list(sb, 'a', session));
  });

  it('of 1,024 characters is handed out, a longer one or one of other characters is a broken answer', async () => {
    let given = 'x'.repeat(1024);
    await using upstream = await startHostile({
      modes: {
        initialize: call =>
          call.json({ jsonrpc: '2.0', id: 1, result: {} }, 200, { 'mcp-session-id': given }),
      },
    });
    await using sb = await start(upstream, {});
    upstream.sessionIds.add(given);
    const session = sessionOf(await initialize(sb, 'a'));
    expect(session).toMatch(/^[\w.-]{1,1500}$/);
    expect((await list(sb, 'a', session)).status).toBe(200);
    for (given of ['x'.repeat(1025), 'two words', 'ümlaut']) {
      const answer = await initialize(sb, 'a');
      expect(answer.status).toBe(502);
      expect(answer.json.error.data.reason).toBe('upstream_protocol');
    }
  });
});
