import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { MCP_URL, PUBLIC_URL, startWithSignIn } from '../support/mcp-sign-in.ts';
import { listen } from '../support/upstreams/http.ts';
import { startV2Server } from '../support/upstreams/v2.ts';

const opened = new AsyncDisposableStack();
let on: Awaited<ReturnType<typeof startWithSignIn>>;
beforeAll(async () => {
  const echo = opened.use(await startV2Server({ legacy: 'stateless' }));
  const streaming = opened.use(
    await listen((_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.flushHeaders();
    }),
  );
  const catalogue = [
    { id: 'echo', remote_url: echo.url },
    { id: 'stream', remote_url: `${streaming.origin}/mcp` },
  ];
  const env = { SWITCHBOARD_RATE_LIMIT: 'off' };
  on = opened.use(await startWithSignIn({ catalogue, env }));
});
afterAll(() => opened.disposeAsync());

const namesOf = (answer: { json: any }): string[] =>
  answer.json.result.tools.map(({ name }: { name: string }) => name);

describe('a client that knows only the URL', () => {
  it('is led from the 401 to the sign-in, and acts as its user', async () => {
    const refused = await on.rpc('/mcp', undefined);
    expect(refused.status).toBe(401);
    expect(refused.headers.get('www-authenticate')).toBe(
      `Bearer resource_metadata="${PUBLIC_URL}/.well-known/oauth-protected-resource/mcp", scope="mcp:search mcp:call"`,
    );
    const metadata = await (await on.fetch(`${PUBLIC_URL}/.well-known/oauth-protected-resource/mcp`)).json();
    expect(metadata).toMatchObject({ resource: MCP_URL, authorization_servers: [`${PUBLIC_URL}/auth`] });
    const server = await (await on.fetch(`${PUBLIC_URL}/.well-known/oauth-authorization-server/auth`)).json();
    expect(server).toMatchObject({
      issuer: `${PUBLIC_URL}/auth`,
      authorization_endpoint: `${PUBLIC_URL}/auth/authorize`,
      token_endpoint: `${PUBLIC_URL}/auth/token`,
      registration_endpoint: `${PUBLIC_URL}/auth/register`,
      revocation_endpoint: `${PUBLIC_URL}/auth/revoke`,
      code_challenge_methods_supported: ['S256'],
      client_id_metadata_document_supported: true,
      authorization_response_iss_parameter_supported: true,
    });
    const { access_token: token, scope, expires_in } = await on.tokens('alice');
    expect([scope, expires_in]).toEqual(['mcp:search mcp:call', 3600]);
    expect(namesOf(await on.rpc('/mcp', token))).toContain('search_servers');
  });

  it('connects to one server by that server’s own URL', async () => {
    const refused = await on.rpc('/mcp/echo', undefined);
    expect(refused.headers.get('www-authenticate')).toContain(
      '/.well-known/oauth-protected-resource/mcp/echo"',
    );
    const { access_token: token, scope } = await on.tokens('alice', { resource: `${MCP_URL}/echo` });
    expect(scope).toBe('mcp:call');
    expect(namesOf(await on.rpc('/mcp/echo', token))).toContain('echo');
  });

  it('gets a code with state and issuer, at the port that it chose', async () => {
    const { json } = await on.register();
    const agent = on.browser();
    const attempt = on.attempt(json.client_id, { redirect_uri: 'http://127.0.0.1:61234/callback' });
    const back = await on.answer(agent, await on.toConsent(agent, attempt.url));
    expect(back.origin + back.pathname).toBe('http://127.0.0.1:61234/callback');
    expect(back.searchParams.get('state')).toBe('the-state');
    expect(back.searchParams.get('iss')).toBe(`${PUBLIC_URL}/auth`);
    expect((await on.redeem(attempt, back)).status).toBe(200);
  });

  it('is told if the user does not allow it', async () => {
    const agent = on.browser();
    const attempt = on.attempt((await on.register()).json.client_id);
    const back = await on.answer(agent, await on.toConsent(agent, attempt.url), 'deny');
    expect([back.searchParams.get('error'), back.searchParams.get('code')]).toEqual(['access_denied', null]);
  });

  it('refreshes its tokens, with fewer scopes if it wants', async () => {
    const first = await on.tokens();
    const { status, json } = await on.refresh(first, { scope: 'mcp:search' });
    expect([status, json.scope]).toEqual([200, 'mcp:search']);
    expect(json.refresh_token).not.toBe(first.refresh_token);
    const args = {
      name: 'call_remote_tool',
      arguments: { server_id: 'echo', tool_name: 'echo', arguments: {} },
    };
    const refused = await on.rpc('/mcp', json.access_token, 'tools/call', args);
    expect(JSON.stringify(refused.json)).toContain('insufficient_scope');
  });

  it('can connect while another is being connected in the same browser', async () => {
    const agent = on.browser();
    const begin = async (client_name: string) => {
      const attempt = on.attempt((await on.register({ client_name })).json.client_id);
      return { attempt, page: await agent.follow(await agent.get(attempt.url)) };
    };
    const [one, two] = [await begin('One'), await begin('Two')];
    const consent = await agent.follow(
      await agent.submit(one.page, { fields: { link: await on.link('alice') } }),
    );
    const back = {
      one: await on.answer(agent, consent),
      two: await on.answer(agent, await agent.get(two.page.url)),
    };
    const answers = [await on.redeem(one.attempt, back.one), await on.redeem(two.attempt, back.two)];
    expect(answers.map(({ status }) => status)).toEqual([200, 200]);
  });

  it('is still connected by a key, as if there were no sign-in', async () => {
    const byKey = async (headers: Record<string, string>) =>
      on.sb.post('/mcp', LIST, { ...ACCEPT, ...headers });
    expect((await byKey({})).status).toBe(200);
    const wrong = await byKey({ 'x-api-key': 'wrong' });
    expect([wrong.status, wrong.headers.get('www-authenticate')]).toEqual([
      401,
      'Bearer realm="switchboard", error="invalid_token"',
    ]);
    const wrongBearer = await on.rpc('/mcp', 'sbk_live_wrong');
    expect(wrongBearer.headers.get('www-authenticate')).not.toContain('resource_metadata');
  });
});

const ACCEPT = { accept: 'application/json, text/event-stream' };
const LIST = { jsonrpc: '2.0', id: 1, method: 'tools/list', params: {} };

describe('the page that asks for consent', () => {
  it('says who asks, where it leads and as whom, and warns of an app that nobody has checked', async () => {
    const { json } = await on.register({ client_name: 'Sly <b>client</b>' });
    const page = await on.toConsent(on.browser(), on.attempt(json.client_id).url, 'bob@example.test');
    expect(page.html).toContain('Sly &#60;b&#62;client&#60;/b&#62;');
    expect(page.html).toContain('bob@example.test');
    expect(page.html).toContain('an app on this computer (');
    expect(page.html).toContain('127.0.0.1:5000');
    expect(page.html).toContain('nobody has checked it');
    expect(page.html).toContain('Go on only if you have just started this yourself');
    const policy = page.headers.get('content-security-policy') ?? '';
    expect(policy).toContain("frame-ancestors 'none'");
    expect(policy).toContain("form-action 'self' http://127.0.0.1:5000;");
  });

  it('is shown at once to a user whose page of connections is open', async () => {
    const agent = on.browser();
    await agent.follow(await agent.submit(await agent.get(await on.link('carol'))));
    const { json } = await on.register();
    const page = await agent.follow(await agent.get(on.attempt(json.client_id).url));
    expect(page.html).toContain('Allow</button>');
  });

  it('says so where a link does not work', async () => {
    const agent = on.browser();
    const { json } = await on.register();
    const who = await agent.follow(await agent.get(on.attempt(json.client_id).url));
    const again = await agent.submit(who, { fields: { link: 'page_nonsense' } });
    expect(again.html).toContain('This is no link that works here');
  });

  it('goes on with a link that this browser has just opened', async () => {
    const agent = on.browser();
    const { json } = await on.register();
    const who = await agent.follow(await agent.get(on.attempt(json.client_id).url));
    const link = await on.link('frank');
    await agent.follow(await agent.submit(await agent.get(link)));
    const page = await agent.follow(await agent.submit(who, { fields: { link } }));
    expect(page.html).toContain('frank');
    expect(page.html).toContain('Allow</button>');
  });
});

describe('a sign-in', () => {
  it('is a key that operators see, limit and revoke, and that its user sees and ends', async () => {
    const { access_token: token } = await on.tokens('dora');
    const { json } = await on.sb.admin.request('GET', '/keys');
    const key = json.keys.find((one: { user: string }) => one.user === 'dora');
    expect(key).toMatchObject({
      name: 'Test client',
      scopes: ['search', 'proxy'],
      client_id: expect.any(String),
    });
    await on.sb.admin.request('POST', `/keys/${key.id}`, { monthly_quota: { searches: 1 } });
    const search = () => on.rpc('/mcp', token, 'tools/call', SEARCH);
    expect((await search()).json.result.isError).not.toBe(true);
    expect(JSON.stringify((await search()).json)).toContain('quota_exceeded');

    // Signing in again does not lift the limit.
    const { access_token: another } = await on.tokens('dora');
    expect(JSON.stringify((await on.rpc('/mcp', another, 'tools/call', SEARCH)).json)).toContain(
      'quota_exceeded',
    );

    const agent = on.browser();
    await agent.submit(await agent.get(await on.link('dora')));
    const page = await agent.get(`${PUBLIC_URL}/manage`);
    expect(page.html).toContain('Apps that act for you');
    const formIndex = [...page.html.matchAll(/<form[^>]*action="([^"]*)"/g)].findIndex(([, action]) =>
      action?.endsWith('/manage/sign-out'),
    );
    const after = await agent.follow(await agent.submit(page, { formIndex }));
    expect(after.html).toContain('The app was signed out.');
    // The latest sign-in comes first.
    expect((await on.rpc('/mcp', token)).status).toBe(200);
    const refused = await on.rpc('/mcp', another);
    expect([refused.status, refused.headers.get('www-authenticate')]).toEqual([
      401,
      expect.stringContaining('error="invalid_token", resource_metadata='),
    ]);
  });

  it('cannot be rotated like a key, since nobody has its secret', async () => {
    await on.tokens('emil');
    const { json } = await on.sb.admin.request('GET', '/keys');
    const { id } = json.keys.find((one: { user: string }) => one.user === 'emil');
    const refused = await on.sb.admin.request('POST', `/keys/${id}/rotate`, { overlap_sec: 0 });
    expect([refused.status, refused.json.detail]).toEqual([
      400,
      expect.stringContaining('stands for a sign-in'),
    ]);
  });

  it('ends with its user, and so do its open streams', async () => {
    const { access_token: token, ...rest } = await on.tokens('frida', { resource: `${MCP_URL}/stream` });
    const stream = await on.fetch(`${MCP_URL}/stream`, {
      headers: { accept: 'text/event-stream', authorization: `Bearer ${token}` },
    });
    expect(stream.status).toBe(200);
    const ended = stream.text().then(
      () => 'ended',
      () => 'ended',
    );
    await on.sb.post('/v1/identity/revoke', { user_id: 'frida' });
    expect(await ended).toBe('ended');
    expect((await on.rpc('/mcp/stream', token)).status).toBe(401);
    expect((await on.refresh({ ...rest })).json.error).toBe('invalid_grant');
  });

  it('is ended by its client', async () => {
    const tokens = await on.tokens('greta');
    const body = new URLSearchParams({ token: tokens.refresh_token, client_id: tokens.clientId });
    expect((await on.fetch(`${PUBLIC_URL}/auth/revoke`, { method: 'POST', body })).status).toBe(200);
    expect((await on.rpc('/mcp', tokens.access_token)).status).toBe(401);
  });
});

const SEARCH = { name: 'search_servers', arguments: { query: 'echo a text' } };

describe('a registration', () => {
  it('takes what real clients say of themselves', async () => {
    const vscode = await on.register({
      grant_types: ['authorization_code', 'refresh_token', 'urn:ietf:params:oauth:grant-type:device_code'],
      redirect_uris: ['https://vscode.dev/redirect', 'http://127.0.0.1:33418/'],
      scope: 'openid profile offline_access',
      application_type: 'web',
    });
    expect([vscode.status, vscode.json.application_type]).toEqual([201, 'native']);
    const cursor = await on.register({ redirect_uris: ['cursor://anysphere.cursor-mcp/oauth/callback'] });
    expect(cursor.status).toBe(201);
    const web = await on.register({
      token_endpoint_auth_method: undefined,
      redirect_uris: ['https://app.example/cb'],
    });
    expect(web.json).toMatchObject({
      client_secret: expect.any(String),
      token_endpoint_auth_method: 'client_secret_basic',
    });
  });

  it.each([
    [['http://app.example/callback'], 'https, or http on loopback'],
    [['javascript:alert(1)'], 'javascript'],
    [['http://localhost.evil.example/'], 'https, or http on loopback'],
    [Array.from({ length: 21 }, (_, at) => `https://app.example/${at}`), 'at most 20'],
    [[], 'redirect_uris'],
  ])('refuses the redirects %j', async (redirect_uris, why) => {
    const { status, json } = await on.register({ redirect_uris });
    expect([status, json.error_description]).toEqual([400, expect.stringContaining(why)]);
  });

  it('is limited by address', async () => {
    await using strict = await startWithSignIn();
    const statuses = new Set<number>();
    for (let at = 0; at < 61; at++) statuses.add((await strict.register()).status);
    expect([...statuses]).toEqual([201, 429]);
  });
});

describe('with a proxy that adds a path', () => {
  const publicUrl = 'https://sb.example/tools';

  it('names addresses below that path', async () => {
    await using below = await startWithSignIn({
      env: { PUBLIC_URL: publicUrl, SWITCHBOARD_ALLOWED_HOSTS: '*' },
    });
    const get = async (path: string) => (await below.sb.get(path)).json;
    const { authorization_endpoint } = await get('/.well-known/oauth-authorization-server/tools/auth');
    expect(authorization_endpoint).toBe(`${publicUrl}/auth/authorize`);
    expect(await get('/.well-known/oauth-protected-resource/tools/mcp')).toMatchObject({
      resource: `${publicUrl}/mcp`,
    });
  });
});

describe('without the sign-in', () => {
  it.each([
    { SWITCHBOARD_MCP_SIGN_IN: 'off' },
    { PUBLIC_URL: 'http://sb.example', SWITCHBOARD_ALLOWED_HOSTS: '*' },
  ])('nothing of it is there (%j)', async env => {
    await using off = await startWithSignIn({ env });
    expect((await off.sb.get('/.well-known/oauth-protected-resource/mcp')).status).toBe(404);
    expect((await off.sb.post('/auth/register', {})).status).toBe(404);
    const refused = await off.sb.post('/mcp', LIST, { ...ACCEPT, 'x-api-key': '' });
    expect(refused.headers.get('www-authenticate')).not.toContain('resource_metadata');
  });
});
