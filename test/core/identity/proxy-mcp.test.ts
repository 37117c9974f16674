import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { addScene, type User } from '../../support/authorization/scene.ts';
import { startIdentity, type IdentityUnderTest } from '../../support/identity.ts';
import { connectV1, connectV2, type Elicitation, type McpClient } from '../../support/mcp-clients.ts';
import {
  actingForUsers,
  startAuthorised,
  type AuthorisedServer,
} from '../../support/upstreams/authorised.ts';
import { UserAgent } from '../../support/user-agent.ts';

let upstream: AuthorisedServer;
let sb: IdentityUnderTest;

beforeAll(async () => {
  upstream = await startAuthorised('legacy');
  sb = await startIdentity({
    catalogue: [
      actingForUsers('plain', upstream.url),
      actingForUsers('calendar', upstream.url, { scopes: ['calendar.read'] }),
      { id: 'open', remote_url: upstream.url, description: 'Echoes a message.' },
    ],
    allowedOrigins: [upstream.origin],
    env: { SWITCHBOARD_RATE_LIMIT: 'off' },
  });
});
afterAll(async () => {
  await sb[Symbol.asyncDispose]();
  await upstream[Symbol.asyncDispose]();
});

let users = 0;
const newUser = () => `mcp-${++users}`;
async function withoutConnection(user = newUser()) {
  const headers = sb.as(await sb.connect(user));
  await sb.post('/v1/identity/revoke', { user_id: user, provider: 'local' });
  return { user, headers };
}

const URL_MODE = { elicitation: { url: {} } };

const MODERN = { pin: '2026-07-28' };

const echo = (client: McpClient, server_id = 'plain') =>
  client.call('call_remote_tool', { server_id, tool_name: 'echo', arguments: { message: 'hello' } });

/** Mode `page`: our page, the provider's, our page again with its click. */
async function signInOnPages(authUrl: string, login: string): Promise<string> {
  const agent = new UserAgent();
  const start = await agent.get(authUrl);
  expect(start.status).toBe(200);
  const leaving = await agent.submit(start);
  const toProvider = leaving.headers.get('location') ?? '';
  const isOurs = (url: string) => url.startsWith(`${sb.url}/`);
  const confirm = await agent.signIn(toProvider, { login, stopAt: isOurs });
  const done = await agent.follow(await agent.submit(confirm, { fields: { decision: 'connect' } }));
  return done.html;
}

const CLIENTS = [
  ['SDK v1', (headers: Record<string, string>) => connectV1(sb, { headers })],
  ['SDK v2, 2025-11-25', (headers: Record<string, string>) => connectV2(sb, 'legacy', { headers })],
  ['SDK v2, 2026-07-28', (headers: Record<string, string>) => connectV2(sb, MODERN, { headers })],
  [
    'SDK v2, 2026-07-28, elicitation by forms only',
    (headers: Record<string, string>) =>
      connectV2(sb, MODERN, { headers, capabilities: { elicitation: { form: {} } } }),
  ],
] as const;

describe.each(CLIENTS)('%s: call_remote_tool without a connection', (_name, connect) => {
  it('is a result that says where to sign in, on pages of ours; afterwards the same call works', async () => {
    const { user, headers } = await withoutConnection();
    await using client = await connect(headers);
    const refused = await echo(client);
    expect(refused.isError).toBe(true);
    expect(refused).not.toHaveProperty('structuredContent');
    expect(refused._meta).toMatchObject({
      'switchboard/server_id': 'plain',
      'switchboard/tool_name': 'echo',
      'switchboard/sign_in': {
        provider: 'local',
        reason: 'not_connected',
        missing_scopes: [],
        auth_url: expect.stringMatching(`^${sb.url}/connect/`),
        expires_at: expect.any(String),
      },
    });
    const authUrl: string = refused._meta?.['switchboard/sign_in'].auth_url;
    const text = refused.content[0]?.text ?? '';
    expect(text).toContain('has not connected a Local Provider account yet');
    expect(text).toContain(`auth_url: ${authUrl}`);
    expect(text).toContain('repeat this call');
    expect(JSON.stringify(refused)).not.toContain('ses_');

    expect(await signInOnPages(authUrl, user)).toContain('Connected');
    expect(await echo(client)).toMatchObject({ content: [{ text: 'Echo: hello' }] });
  });

  it('names the scopes that are missing', async () => {
    await using client = await connect(sb.as(await sb.connect(newUser())));
    const refused = await echo(client, 'calendar');
    expect(refused.content[0]?.text).toContain('missing_scopes: calendar.read');
    expect(refused._meta?.['switchboard/sign_in']).toMatchObject({
      reason: 'missing_scopes',
      missing_scopes: ['calendar.read'],
    });
  });
});

describe('URL elicitation, 2025-11-25', () => {
  const connecting = [
    ['SDK v1', (headers: Record<string, string>) => connectV1(sb, { headers, capabilities: URL_MODE })],
    [
      'SDK v2',
      (headers: Record<string, string>) => connectV2(sb, 'legacy', { headers, capabilities: URL_MODE }),
    ],
  ] as const;

  it.each(connecting)('%s: is error -32042; afterwards the same call works', async (_name, connect) => {
    const { user, headers } = await withoutConnection();
    await using client = await connect(headers);
    const refusal = async () =>
      echo(client).then(
        () => expect.fail('the call was not refused'),
        (error: unknown) => error as { code: number; data: { elicitations: Elicitation[] } },
      );
    const { code, data } = await refusal();
    expect(code).toBe(-32_042);
    expect(data.elicitations).toEqual([
      {
        mode: 'url',
        elicitationId: expect.stringMatching(/^[\w-]{43}$/),
        url: expect.stringMatching(`^${sb.url}/connect/`),
        message:
          'plain needs your account at Local Provider to run echo. Sign in there, then repeat the call.',
      },
    ]);
    // One sign-in is waited for, however many calls need it.
    expect((await refusal()).data).toEqual(data);
    await signInOnPages(data.elicitations[0]?.url ?? '', user);
    expect(await echo(client)).toMatchObject({ content: [{ text: 'Echo: hello' }] });
  });

  it('every client gets a session id of its own that says whether it opens URLs, and nobody is refused for another', async () => {
    const initialize = (capabilities: object) =>
      sb.post('/mcp', {
        jsonrpc: '2.0',
        id: 1,
        method: 'initialize',
        params: { protocolVersion: '2025-11-25', capabilities, clientInfo: { name: 'x', version: '1' } },
      });
    const sessionOf = async (capabilities: object) =>
      (await initialize(capabilities)).headers.get('mcp-session-id');
    for (const cannot of [{}, { elicitation: {} }, { elicitation: { form: {} } }])
      expect(await sessionOf(cannot)).toMatch(/^session\.[\da-f-]{36}$/);
    const first = await sessionOf(URL_MODE);
    expect(first).toMatch(/^elicitation-url\.[\da-f-]{36}$/);
    expect(await sessionOf(URL_MODE)).not.toBe(first);
    const ask = { jsonrpc: '2.0', id: 2, method: 'tools/list' };
    for (const id of ['elicitation-url', 'of-somebody-else'])
      expect((await sb.post('/mcp', ask, { 'mcp-session-id': id })).status).toBe(200);
  });
});

describe('URL elicitation, 2026-07-28', () => {
  it('is asked for as input; the client comes again by itself once the user has signed in', async () => {
    const { user, headers } = await withoutConnection();
    const asked: Elicitation[] = [];
    const answer = async (elicitation: Elicitation) => {
      asked.push(elicitation);
      await signInOnPages(elicitation.url ?? '', user);
      return 'accept' as const;
    };
    await using client = await connectV2(sb, MODERN, { headers, capabilities: URL_MODE, answer });
    expect(await echo(client)).toMatchObject({ content: [{ text: 'Echo: hello' }] });
    expect(asked).toMatchObject([
      { mode: 'url', url: expect.stringMatching(`^${sb.url}/connect/`), message: expect.any(String) },
    ]);
  });

  it.each(['accept', 'decline', 'cancel'] as const)(
    '%s without signing in: asked once, then the result tells the model',
    async action => {
      const { user, headers } = await withoutConnection();
      let asked = 0;
      const answer = async () => {
        asked++;
        return action;
      };
      await using client = await connectV2(sb, MODERN, { headers, capabilities: URL_MODE, answer });
      const refused = await echo(client);
      expect(asked).toBe(1);
      expect(refused.isError).toBe(true);
      await signInOnPages(refused._meta?.['switchboard/sign_in'].auth_url, user);
      expect(await echo(client)).toMatchObject({ content: [{ text: 'Echo: hello' }] });
      expect(asked).toBe(1);
    },
  );
});

describe('an identity token on /mcp', () => {
  const ask = (name: string, args: object) => ({
    jsonrpc: '2.0',
    id: 1,
    method: 'tools/call',
    params: { name, arguments: args },
  });

  it.each(['Bearer nonsense', 'Basic dXNlcjpwYXNz', 'nonsense'])(
    'that is none (%s) is HTTP 401 with a challenge',
    async authorization => {
      const answer = await sb.post('/mcp', ask('search_servers', { query: 'x' }), { authorization });
      expect(answer.status).toBe(401);
      expect(answer.headers.get('www-authenticate')).toBe(
        'Bearer realm="switchboard", error="invalid_token"',
      );
      expect(answer.json).toMatchObject({
        jsonrpc: '2.0',
        id: null,
        error: { code: -32_000, data: { reason: 'identity_token_invalid' } },
      });
    },
  );

  it('as the only Bearer is taken for a key, and is none', async () => {
    const tokens = sb.as(await sb.connect(newUser()));
    const answer = await sb.post('/mcp', ask('search_servers', { query: 'x' }), {
      'x-api-key': '',
      ...tokens,
    });
    expect(answer.status).toBe(401);
    expect(answer.json).toMatchObject({ error: { data: { reason: 'unauthorized' } } });
  });

  it('of a revoked user is a result that says what to do, of both tools', async () => {
    const user = newUser();
    const headers = sb.as(await sb.connect(user));
    await using client = await connectV2(sb, MODERN, { headers });
    expect((await client.call('search_servers', { query: 'echo' })).isError).toBeUndefined();
    await sb.revoke(user);
    const results = [
      await client.call('search_servers', { query: 'echo' }),
      await echo(client, 'open'),
      await echo(client),
    ];
    for (const { isError, content } of results) {
      expect(isError).toBe(true);
      expect(content[0]?.text).toMatch(
        /Refresh it, or let the user sign in again.*\(identity_token_invalid\)/,
      );
    }
  });

  it('is asked for where a server acts for a user', async () => {
    await using client = await connectV2(sb, MODERN);
    expect(await echo(client, 'open')).toMatchObject({ content: [{ text: 'Echo: hello' }] });
    const refused = await echo(client);
    expect(refused.isError).toBe(true);
    expect(refused.content[0]?.text).toMatch(/identity token.*\(identity_token_required\)/);
  });
});

const keyOf = ({ headers }: User) => ({ 'X-API-Key': headers['x-api-key'] ?? '' });

describe.each(CLIENTS)('%s: call_remote_tool at a server with its own sign-in', (_name, connect) => {
  it('is a result with the link; afterwards the same call works', async () => {
    await using scene = await addScene(sb);
    await using client = await connect(keyOf(scene.user));
    const refused = await echo(client, scene.serverId);
    expect(refused.isError).toBe(true);
    const text = refused.content[0]?.text ?? '';
    expect(text).toContain('After they have signed in, repeat this call');
    const [, link = ''] = /^auth_url: (\S+)$/m.exec(text) ?? [];
    await new UserAgent().connect(link);
    expect((await echo(client, scene.serverId)).content[0]?.text).toContain('hello');
  });
});

it('a client that opens URLs is asked to open that of a server with its own sign-in', async () => {
  await using scene = await addScene(sb);
  const asked: string[] = [];
  const answer = async ({ url = '', message }: Elicitation) => {
    asked.push(message);
    await new UserAgent().connect(url);
    return 'accept' as const;
  };
  const options = { headers: keyOf(scene.user), capabilities: URL_MODE, answer };
  await using client = await connectV2(sb, MODERN, options);
  expect((await echo(client, scene.serverId)).content[0]?.text).toContain('hello');
  expect(asked).toEqual([expect.stringContaining(`${scene.serverId} needs your account there to run echo.`)]);
});
