import { describe, expect, it } from 'vitest';
import { addScene, echo, newUser } from '../../support/authorization/scene.ts';
import { DATABASES, useIdentity, type IdentityUnderTest } from '../../support/identity.ts';
import { parallel, statusesOf } from '../../support/processes.ts';
import { UserAgent } from '../../support/user-agent.ts';

describe.each(DATABASES)('on $name: a server with a sign-in of its own', database => {
  let sb: IdentityUnderTest;
  useIdentity(database, started => (sb = started));

  it.each([
    ['modern', 'kind oauth', {}],
    ['legacy', 'kind oauth', {}],
    ['modern', 'no kind', null],
    ['legacy', 'no kind', null],
  ] as const)(
    'of the %s era whose entry has %s asks for a sign-in, and is called with its token',
    async (era, _kind, auth) => {
      await using scene = await addScene(sb, { mcp: { era }, auth });
      const { issuer, mcp, serverId } = scene;
      const required = await scene.call();
      expect(required).toMatchObject({
        status: 403,
        json: {
          code: 'connection_required',
          kind: 'oauth',
          server_id: serverId,
          reason: 'not_connected',
          missing: [],
        },
      });
      expect(required.json.auth_url).toMatch(new RegExp(`^${sb.url}/connect/link_`));
      expect(Date.parse(required.json.expires_at)).toBeGreaterThan(Date.now());
      expect(mcp.tokens()).toEqual([]);
      expect(issuer.sent('authorize')).toEqual([]);

      const agent = new UserAgent();
      const link = await agent.get(required.json.auth_url);
      expect(link.status).toBe(200);
      for (const shown of [`Name of ${serverId}`, scene.user.id, new URL(issuer.issuer).host])
        expect(link.html).toContain(shown);
      const done = await agent.connect(required.json.auth_url);
      expect([done.status, done.html]).toEqual([200, expect.stringContaining('Connected')]);
      expect(new URL(done.url).pathname).toMatch(/^\/oauth\/done\//);
      expect((await sb.poll(required.json.session_id)).json).toEqual({ status: 'complete' });

      const called = await scene.call();
      expect([called.status, called.json.content?.[0]?.text]).toEqual([200, 'Echo: hello']);
      const [registration] = issuer.sent('register');
      const redirectUri = registration?.fields['redirect_uris'][0];
      expect(registration?.fields).toMatchObject({
        application_type: 'native',
        grant_types: ['authorization_code', 'refresh_token'],
        response_types: ['code'],
      });
      expect(redirectUri).toMatch(new RegExp(`^${sb.url}/oauth/return/`));
      const [request] = issuer.sent('authorize');
      expect(request?.query).toMatchObject({
        response_type: 'code',
        redirect_uri: redirectUri,
        code_challenge_method: 'S256',
        resource: mcp.url,
      });
      const [exchange] = issuer.sent('token');
      expect(exchange?.fields).toMatchObject({
        grant_type: 'authorization_code',
        redirect_uri: redirectUri,
        resource: mcp.url,
      });
      expect(mcp.tokens()).toHaveLength(1);
      expect(issuer.introspect(mcp.tokens()[0] ?? '')?.resource).toBe(mcp.url);
      // A link works once.
      expect((await agent.get(required.json.auth_url)).status).toBe(400);
    },
  );

  it('asks a user once: the same link for every call and for a session that a backend creates', async () => {
    await using scene = await addScene(sb);
    const replies = await parallel(10, () => scene.call());
    expect(statusesOf(replies)).toEqual({ 403: 10 });
    expect(new Set(replies.map(({ json }) => json.auth_url)).size).toBe(1);
    expect(scene.issuer.sent('register')).toHaveLength(1);
    const other = await newUser(sb);
    expect((await scene.call(other)).json.auth_url).not.toBe(replies[0]?.json.auth_url);
    expect(scene.issuer.sent('register')).toHaveLength(1);
    const created = await sb.post('/v1/identity/sessions', {
      user_id: scene.user.id,
      server_id: scene.serverId,
    });
    expect(created.status, created.text).toBe(200);
    const page = await new UserAgent().connect(created.json.auth_url);
    expect(page.status, page.html).toBe(200);
    expect((await sb.poll(created.json.session_id)).json).toEqual({ status: 'complete' });
    expect((await scene.call()).status).toBe(200);
    // The token is this user's alone.
    expect((await scene.call(other)).json.code).toBe('connection_required');
  });

  it('gives no identity token: its sign-in says nothing about who the user is', async () => {
    await using scene = await addScene(sb);
    const required = await scene.call();
    await new UserAgent().connect(required.json.auth_url);
    expect((await sb.token(required.json.session_id)).status).toBe(400);
  });

  it('is called over /mcp and /mcp/{server_id} with the same token', async () => {
    await using scene = await addScene(sb);
    const { mcp, serverId, user } = scene;
    await scene.connect();
    const message = (method: string, params: object) => ({
      jsonrpc: '2.0',
      id: 1,
      method,
      params: {
        ...params,
        _meta: {
          'io.modelcontextprotocol/protocolVersion': '2026-07-28',
          'io.modelcontextprotocol/clientInfo': { name: 'test', version: '1' },
          'io.modelcontextprotocol/clientCapabilities': {},
        },
      },
    });
    const send = (path: string, method: string, params: object = {}, name?: string) =>
      sb.post(path, message(method, params), {
        ...user.headers,
        accept: 'application/json, text/event-stream',
        'mcp-protocol-version': '2026-07-28',
        'mcp-method': method,
        ...(name === undefined ? {} : { 'mcp-name': name }),
      });
    const passed = await send(`/mcp/${serverId}`, 'tools/list');
    expect(passed.status, passed.text).toBe(200);
    const relayed = await send(
      '/mcp',
      'tools/call',
      {
        name: 'call_remote_tool',
        arguments: { server_id: serverId, tool_name: 'echo', arguments: { message: 'hello' } },
      },
      'call_remote_tool',
    );
    expect(relayed.text).toContain('Echo: hello');
    expect(mcp.tokens()).toHaveLength(1);
  });

  it('is listed with its issuer and scopes, and a revocation ends it at the authorization server, too', async () => {
    await using scene = await addScene(sb, { mcp: { metadata: { scopes_supported: ['read', 'write'] } } });
    const { issuer, mcp, serverId, user } = scene;
    await scene.connect();
    await scene.call();
    const listed = await sb.get(`/v1/identity/connections?user_id=${user.id}`);
    const { connections } = listed.json;
    expect(connections).toMatchObject([
      {
        kind: 'oauth',
        server_id: serverId,
        issuer: issuer.issuer,
        scopes: ['read', 'write'],
        status: 'active',
      },
    ]);
    const [token = ''] = mcp.tokens();
    expect(issuer.introspect(token)).toBeDefined();
    const revoked = await sb.post('/v1/identity/revoke', { user_id: user.id, server_id: serverId });
    expect(revoked.status, revoked.text).toBe(200);
    const before = mcp.inbox.all.length;
    expect((await scene.call()).json).toMatchObject({ code: 'connection_required', reason: 'not_connected' });
    expect(mcp.inbox.all.slice(before).every(({ headers }) => headers.authorization === undefined)).toBe(
      true,
    );
    await expect.poll(() => issuer.introspect(token), { timeout: 10_000 }).toBeUndefined();
    expect(issuer.sent('revoke').length).toBeGreaterThan(0);
    // And can be made anew.
    await scene.connect();
    expect((await scene.call()).status).toBe(200);
  });

  it('tells a user who said no, and asks again at the next call', async () => {
    await using scene = await addScene(sb, { issuer: { denies: true } });
    const { page, session } = await scene.connect();
    expect(page.status).toBe(400);
    expect(session).toEqual({ status: 'error', error: expect.stringMatching(/^access_denied/) });
    expect(scene.issuer.sent('token')).toEqual([]);
    scene.issuer.switches.denies = false;
    await scene.connect();
    expect((await scene.call()).status).toBe(200);
  });

  it('keeps the tokens of two servers apart that share an authorization server, and registers there once', async () => {
    await using one = await addScene(sb);
    await using two = await addScene(sb, { issuer: one.issuer });
    await one.connect();
    expect((await echo(sb, two.serverId, one.user)).json.code).toBe('connection_required');
    await two.connect(one.user);
    expect((await echo(sb, two.serverId, one.user)).status).toBe(200);
    expect((await one.call()).status).toBe(200);
    expect(one.issuer.sent('register')).toHaveLength(1);
    const [first = ''] = one.mcp.tokens();
    const [second = ''] = two.mcp.tokens();
    expect(first).not.toBe(second);
    expect([one.mcp.tokens(), two.mcp.tokens()]).toEqual([[first], [second]]);
  });

  it('says that an operator must connect it, to a call for no user', async () => {
    await using scene = await addScene(sb);
    const refused = await echo(sb, scene.serverId, { id: '', headers: {} });
    expect(refused).toMatchObject({ status: 403, json: { code: 'connection_required', kind: 'oauth' } });
    expect(refused.json.auth_url).toBeUndefined();
    expect(refused.json.detail).toContain(`npx switchboard connect ${scene.serverId}`);
  });
});
