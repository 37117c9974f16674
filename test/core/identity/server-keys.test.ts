import { sql } from 'drizzle-orm';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { rows } from '../../../src/platform/database/database.ts';
import { DATABASES, startIdentity, type IdentityUnderTest, type TokenSet } from '../../support/identity.ts';
import { startAuthorised, type AuthorisedServer } from '../../support/upstreams/authorised.ts';
import { UserAgent } from '../../support/user-agent.ts';

const GOOD = 'key-of-alice-0123456789';
const TEAM = 'key-of-the-team-0123456789';

/** Returns the rows of a page's list of facts. */
const facts = (html: string): string[][] =>
  [...html.matchAll(/<dt>(.*?)<\/dt>\s*<dd>(?:<bdi>)?(.*?)(?:<\/bdi>)?<\/dd>/gs)].map(([, ...row]) => row);

describe.each(DATABASES)('on $name: a server that takes a key', ({ kind, skipped }) => {
  let upstream: AuthorisedServer;
  let other: AuthorisedServer;
  let sb: IdentityUnderTest;
  let tokens: TokenSet;
  /** Keys that the server takes. */
  const accepted = new Set<string>();
  let users = 0;
  let user: string;

  beforeAll(async () => {
    if (skipped) return;
    upstream = await startAuthorised('modern', ({ 'x-api-key': key }) => accepted.has(String(key)));
    other = await startAuthorised('legacy', ({ authorization }) => authorization === `Bearer ${GOOD}`);
    sb = await startIdentity({
      database: kind,
      catalogue: [
        {
          id: 'weather',
          name: 'Weather Office',
          remote_url: upstream.url,
          auth: {
            kind: 'credentials',
            key_url: 'https://weather.example/keys',
            headers: [
              { name: 'X-Api-Key', value: '{api_key}', description: 'From your account page.' },
              { name: 'X-Region', required: false, secret: false, choices: ['eu', 'us'] },
            ],
          },
        },
        { id: 'plain', remote_url: other.url, auth: { kind: 'static_header' } },
        { id: 'open', remote_url: other.url, auth: { kind: 'none' } },
        { id: 'unsure', remote_url: other.url },
      ],
    });
  });
  afterAll(async () => {
    await sb?.[Symbol.asyncDispose]();
    await upstream?.[Symbol.asyncDispose]();
    await other?.[Symbol.asyncDispose]();
  });
  beforeEach(async ctx => {
    if (skipped) ctx.skip();
    accepted.clear();
    accepted.add(GOOD).add(TEAM);
    user = `user-${++users}`;
    tokens = await sb.connect(user);
    await sb.admin.request('POST', '/connections/revoke', { server_id: 'weather' });
    await sb.admin.request('POST', '/connections/revoke', { server_id: 'plain' });
  });

  const echo = (serverId: string, headers: Record<string, string> = {}) =>
    sb.post(
      '/v1/mcp/tools/call',
      { server_id: serverId, name: 'echo', arguments: { message: 'hello' } },
      headers,
    );
  const put = (body: object, headers: Record<string, string> = {}) =>
    sb.put('/v1/identity/connections', { user_id: user, server_id: 'weather', ...body }, headers);
  const keysSeen = () => new Set(upstream.inbox.all.map(({ headers }) => headers['x-api-key']));

  it("is called with the user's own key, over REST and /mcp/{server_id}, and with no other header of the caller's", async () => {
    const made = await put({ values: { api_key: ` ${GOOD} ` } });
    expect(made).toMatchObject({
      status: 200,
      json: { kind: 'credentials', server_id: 'weather', provider: null, status: 'active', problem: null },
    });
    expect(made.text).not.toContain(GOOD);
    expect((await echo('weather', sb.as(tokens))).json.content[0].text).toContain('hello');
    const passed = await sb.post(
      '/mcp/weather',
      {
        jsonrpc: '2.0',
        id: 1,
        method: 'tools/list',
        params: {
          _meta: {
            'io.modelcontextprotocol/protocolVersion': '2026-07-28',
            'io.modelcontextprotocol/clientInfo': { name: 'test', version: '1' },
            'io.modelcontextprotocol/clientCapabilities': {},
          },
        },
      },
      {
        ...sb.as(tokens),
        accept: 'application/json, text/event-stream',
        'mcp-protocol-version': '2026-07-28',
        'mcp-method': 'tools/list',
      },
    );
    expect(passed.status, passed.text).toBe(200);
    const last = upstream.inbox.all.at(-1)?.headers;
    expect(last).toMatchObject({ 'x-api-key': GOOD });
    expect(last).not.toHaveProperty('x-region');
    expect(last?.authorization).toBeUndefined();
  });

  it('is not touched without a key: 403 with a page of ours, the same for every such call', async () => {
    const before = upstream.inbox.all.length;
    const [one, two] = [await echo('weather', sb.as(tokens)), await echo('weather', sb.as(tokens))];
    expect(one).toMatchObject({
      status: 403,
      json: {
        code: 'connection_required',
        kind: 'credentials',
        server_id: 'weather',
        reason: 'not_connected',
      },
    });
    expect(one.json.auth_url).toBe(two.json.auth_url);
    expect(one.json.auth_url).toMatch(new RegExp(`^${sb.url}/connect/`));
    expect(upstream.inbox.all).toHaveLength(before);
    const params = { name: 'echo', arguments: { message: 'hello' } };
    const message = { jsonrpc: '2.0', id: 7, method: 'tools/call', params };
    const passed = await sb.post('/mcp/weather', message, {
      ...sb.as(tokens),
      accept: 'application/json, text/event-stream',
    });
    // Clients show people the message, and nothing else.
    expect(passed).toMatchObject({ status: 403, json: { error: { data: { auth_url: one.json.auth_url } } } });
    expect(passed.json.error.message).toBe(
      `${one.json.detail}\nauth_url: ${one.json.auth_url}\nreason: not_connected`,
    );
    expect(passed.text).not.toContain(one.json.session_id);
    const asNobody = await echo('weather');
    expect(asNobody).toMatchObject({ status: 403, json: { code: 'connection_required' } });
    expect(asNobody.json.auth_url).toBeUndefined();
    expect(asNobody.json.detail).toContain('npx switchboard connect weather');
  });

  it('takes a key that a user enters on the page; the call then works, and the session is complete', async () => {
    const { json } = await sb.post('/v1/identity/sessions', { user_id: user, server_id: 'weather' });
    const agent = new UserAgent();
    const page = await agent.get(json.auth_url);
    expect(page.html).toContain('Weather Office');
    // This tenant's app has no name.
    expect(facts(page.html)).toEqual([
      ['You, in the app', user],
      ['Server', 'Weather Office'],
      ['Its address', new URL(upstream.url).host],
    ]);
    expect(page.html).toContain('https://weather.example/keys');
    expect(page.html).toContain('From your account page.');
    const wrong = await agent.submit(page, { fields: { 'value.api_key': 'key-that-is-wrong-1' } });
    expect(wrong.status).toBe(400);
    expect(wrong.html).toContain('refused the key');
    expect(wrong.html).not.toContain('key-that-is-wrong-1');
    expect((await sb.poll(json.session_id)).json).toEqual({ status: 'pending' });
    const done = await agent.follow(
      await agent.submit(page, { fields: { 'value.api_key': GOOD, 'value.X-Region': 'eu' } }),
    );
    expect(done.status, done.html).toBe(200);
    expect(done.html).toContain('Connected');
    expect(done.html).not.toContain(GOOD);
    expect((await sb.poll(json.session_id)).json).toEqual({ status: 'complete' });
    expect((await echo('weather', sb.as(tokens))).status).toBe(200);
    expect(upstream.inbox.all.at(-1)?.headers).toMatchObject({ 'x-api-key': GOOD, 'x-region': 'eu' });
    // A link works once. Who opens it again may have no app.
    expect((await agent.get(json.auth_url)).html).toContain('Start again where you got the link.');
    expect((await agent.get(json.auth_url)).status).toBe(400);
  });

  it('shares the key of the operator with calls for no user, and with users only where that is allowed', async () => {
    const shared = { server_id: 'weather', values: { api_key: TEAM } };
    expect((await sb.admin.request('PUT', '/connections', shared)).status).toBe(200);
    expect((await echo('weather')).status).toBe(200);
    expect(upstream.inbox.all.at(-1)?.headers['x-api-key']).toBe(TEAM);
    expect((await echo('weather', sb.as(tokens))).status).toBe(403);
    expect((await echo('weather', { 'x-api-key': sb.otherKey })).status).toBe(403);
    expect((await sb.admin.request('PUT', '/connections', { ...shared, for_users: true })).status).toBe(200);
    expect((await echo('weather', sb.as(tokens))).status).toBe(200);
    await put({ values: { api_key: GOOD } });
    expect((await echo('weather', sb.as(tokens))).status).toBe(200);
    expect(upstream.inbox.all.at(-1)?.headers['x-api-key']).toBe(GOOD);
    const listed = await sb.admin.request('GET', '/connections');
    expect(listed.json.connections).toMatchObject([{ server_id: 'weather', status: 'active' }]);
    expect((await sb.admin.request('POST', '/connections/revoke', { server_id: 'weather' })).json).toEqual({
      ended: true,
    });
    expect((await echo('weather')).status).toBe(403);
  });

  it('is told once that a key has ended: the call says so, the server is left alone, and a new key works at once', async () => {
    await put({ values: { api_key: GOOD } });
    accepted.delete(GOOD);
    const first = await echo('weather', sb.as(tokens));
    expect(first).toMatchObject({ status: 403, json: { code: 'connection_required', reason: 'rejected' } });
    const asked = upstream.inbox.all.length;
    expect((await echo('weather', sb.as(tokens))).json.reason).toBe('rejected');
    expect(upstream.inbox.all).toHaveLength(asked);
    const { json } = await sb.get(`/v1/identity/connections?user_id=${user}`);
    expect(json.connections.find((one: { server_id: string }) => one.server_id === 'weather').status).toBe(
      'rejected',
    );
    accepted.add(GOOD);
    await sb.elapse(61_000);
    // The server refused a good key for a moment.
    expect((await echo('weather', sb.as(await sb.connect(user)))).status).toBe(200);
    await put({ values: { api_key: TEAM } });
    expect((await echo('weather', sb.as(await sb.connect(user)))).status).toBe(200);
    expect(upstream.inbox.all.at(-1)?.headers['x-api-key']).toBe(TEAM);
  });

  it('never goes on in a session that an older key has opened', async () => {
    await using accounts = await startAuthorised('legacy');
    const line = { id: 'accounts', name: 'accounts', description: 'x', remote_url: accounts.url };
    await sb.admin.request(
      'POST',
      '/catalogue/import',
      JSON.stringify({ ...line, auth: { kind: 'credentials' } }),
    );
    const one = { server_id: 'accounts', values: { token: 'key-of-one-account' } };
    await put(one);
    await echo('accounts', sb.as(tokens));
    await put({ ...one, values: { token: 'key-of-another-account' } });
    await echo('accounts', sb.as(tokens));
    const keysBySession = Map.groupBy(
      accounts.inbox.all.filter(({ headers }) => headers['mcp-session-id'] !== undefined),
      ({ headers }) => headers['mcp-session-id'],
    );
    for (const [session, requests] of keysBySession)
      expect(new Set(requests.map(({ headers }) => headers.authorization)).size, String(session)).toBe(1);
    expect(keysBySession.size).toBeGreaterThanOrEqual(2);
  });

  it('is not taken from everybody by one user whose call is refused', async () => {
    await sb.admin.request('PUT', '/connections', {
      server_id: 'weather',
      values: { api_key: TEAM },
      for_users: true,
    });
    accepted.delete(TEAM);
    expect((await echo('weather', sb.as(tokens))).json.code).toBe('upstream_unauthorized');
    accepted.add(TEAM);
    expect((await echo('weather')).status).toBe(200);
    expect((await echo('weather', sb.as(tokens))).status).toBe(200);
  });

  it('proves nothing about the user: its session gives no identity token', async () => {
    const { json } = await sb.post('/v1/identity/sessions', { user_id: user, server_id: 'weather' });
    const agent = new UserAgent();
    await agent.submit(await agent.get(json.auth_url), { fields: { 'value.api_key': GOOD } });
    expect((await sb.poll(json.session_id)).json).toEqual({ status: 'complete' });
    expect((await sb.token(json.session_id)).json).toMatchObject({
      status: 400,
      code: 'invalid_grant',
      detail: expect.stringContaining('keys create --user USER_ID'),
    });
  });

  it('has no scopes to ask for', async () => {
    const wanted = { user_id: user, server_id: 'weather', scopes: ['read'] };
    expect((await sb.post('/v1/identity/sessions', wanted)).json).toMatchObject({
      status: 400,
      code: 'invalid_request',
      detail: 'scopes: weather takes a key, which has none. Leave scopes out.',
    });
  });

  it('asks the user of a server whose entry says nothing, once it answers 401', async () => {
    const refused = await echo('unsure', sb.as(tokens));
    expect(refused).toMatchObject({
      status: 403,
      json: { code: 'connection_required', server_id: 'unsure' },
    });
    expect(refused.json.auth_url).toMatch(/\/connect\//);
    const asNobody = await echo('unsure');
    expect(asNobody.json).toMatchObject({ code: 'connection_required', kind: 'credentials' });
    expect(asNobody.json.detail).toContain('npx switchboard connect unsure');
  });

  it('ends with its revocation, by server, by connection, and with the user', async () => {
    const made = await put({ values: { api_key: GOOD } });
    const revoke = (body: object) => sb.post('/v1/identity/revoke', { user_id: user, ...body });
    expect((await revoke({ server_id: 'plain' })).status).toBe(200);
    for (const user_id of [user, 'nobody-ever'])
      expect(await revoke({ user_id, server_id: 'wether' })).toMatchObject({
        status: 404,
        json: { code: 'server_not_found', detail: expect.stringContaining('weather') },
      });
    expect((await echo('weather', sb.as(tokens))).status).toBe(200);
    expect((await revoke({ connection_id: made.json.id })).status).toBe(200);
    expect((await echo('weather', sb.as(tokens))).status).toBe(403);
    await put({ values: { api_key: GOOD } });
    expect((await revoke({ server_id: 'weather' })).status).toBe(200);
    expect((await echo('weather', sb.as(tokens))).status).toBe(403);
    expect((await revoke({ server_id: 'weather', provider: 'local' })).status).toBe(400);
    await put({ values: { api_key: GOOD } });
    await sb.revoke(user);
    expect((await sb.get(`/v1/identity/connections?user_id=${user}`)).json.connections).toEqual([]);
  });

  it('whose entry names no header gets a bearer token, or the header that a person names', async () => {
    const pasted = { server_id: 'plain', values: { token: `Bearer ${GOOD}` } };
    expect((await put(pasted)).json.status).toBe('active');
    expect((await echo('plain', sb.as(tokens))).status).toBe(200);
    expect(other.seen()).toContain(`Bearer ${GOOD}`);
    const elsewhere = await put({ ...pasted, header: 'X-Token' });
    expect(elsewhere).toMatchObject({ status: 400, json: { code: 'credentials_rejected' } });
    expect(other.inbox.all.at(-1)?.headers).toMatchObject({ 'x-token': `Bearer ${GOOD}` });
    // What was there stays.
    expect((await echo('plain', sb.as(tokens))).status).toBe(200);
  });

  it('need not be known to take a key: a connection is used where the entry says nothing', async () => {
    expect((await put({ server_id: 'unsure', values: { token: GOOD } })).status).toBe(200);
    expect((await echo('unsure', sb.as(tokens))).status).toBe(200);
  });

  it.each<[string, object, string, RegExp]>([
    [
      'a key that the server refuses',
      { values: { api_key: 'wrong-key-0123' } },
      'credentials_rejected',
      /refused/,
    ],
    ['a missing value', { values: {} }, 'invalid_request', /values\.api_key: is missing/],
    ['an empty value', { values: { api_key: '  ' } }, 'invalid_request', /values\.api_key: is missing/],
    [
      'a surplus value',
      { values: { api_key: GOOD, apikey: 'x' } },
      'invalid_request',
      /no value called "apikey".*"api_key"/,
    ],
    ['a line break', { values: { api_key: 'a\r\nX-Admin: 1' } }, 'invalid_request', /printable ASCII/],
    ['a NUL', { values: { api_key: 'a\u0000b' } }, 'invalid_request', /printable ASCII/],
    [
      'a value of 9 KiB',
      { values: { api_key: 'k'.repeat(9 * 1024) } },
      'invalid_request',
      /at most 8192 bytes/,
    ],
    ['another choice', { values: { api_key: GOOD, 'X-Region': 'mars' } }, 'invalid_request', /one of eu, us/],
    [
      'a header that the entry settles',
      { values: { api_key: GOOD }, header: 'X-K' },
      'invalid_request',
      /leave it out/,
    ],
    [
      'a header of HTTP',
      { server_id: 'plain', values: { token: GOOD }, header: 'Host' },
      'invalid_request',
      /cannot carry a key/,
    ],
    [
      'a header of MCP',
      { server_id: 'plain', values: { token: GOOD }, header: 'Mcp_Session_Id' },
      'invalid_request',
      /cannot carry a key/,
    ],
    [
      'a server that needs nothing',
      { server_id: 'open', values: { token: GOOD } },
      'invalid_request',
      /needs no connection/,
    ],
    ['an unknown server', { server_id: 'nowhere', values: { token: GOOD } }, 'server_not_found', /nowhere/],
  ])('refuses %s, and stores nothing', async (_what, body, code, detail) => {
    const answer = await put(body);
    expect(answer.json).toMatchObject({ code, detail: expect.stringMatching(detail) });
    expect(answer.text).not.toContain('wrong-key-0123');
    const { json } = await sb.get(`/v1/identity/connections?user_id=${user}`);
    expect(json.connections.filter((one: { kind: string }) => one.kind === 'credentials')).toEqual([]);
  });

  it('says in a search whether this caller is connected, and at once when that ends', async () => {
    const access = async (headers = {}) => {
      const { json } = await sb.post('/v1/search', { query: 'weather office' }, headers);
      return json.servers.find((one: { id: string }) => one.id === 'weather').access;
    };
    expect(await access(sb.as(tokens))).toEqual({ kind: 'credentials', status: 'connect' });
    const { json: made } = await put({ values: { api_key: GOOD } });
    expect(await access(sb.as(tokens))).toEqual({ kind: 'credentials', status: 'connected' });
    expect(await access()).toEqual({ kind: 'credentials', status: 'connect' });
    await sb.post('/v1/identity/revoke', { user_id: user, connection_id: made.id });
    expect(await access(sb.as(tokens))).toEqual({ kind: 'credentials', status: 'connect' });
  });

  it('finds its key in no row of the database, in no log line, and in no answer', async () => {
    await put({ values: { api_key: GOOD } });
    await echo('weather', sb.as(tokens));
    const tables = await rows<{ name: string }>(
      sb.db,
      sql`select table_name as name from information_schema.tables where table_schema = 'public'`,
    );
    expect(tables.length).toBeGreaterThan(10);
    for (const { name } of tables) {
      const dumped = await rows(sb.db, sql`select t::text as line from ${sql.identifier(name)} t`);
      expect(JSON.stringify(dumped), name).not.toContain(GOOD);
    }
    expect(sb.logged()).not.toContain(GOOD);
    expect(keysSeen()).toContain(GOOD);
  });
});
