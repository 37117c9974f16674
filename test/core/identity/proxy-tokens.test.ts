import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startIdentity, type IdentityUnderTest } from '../../support/identity.ts';
import {
  actingForUsers,
  startAuthorised,
  type AuthorisedServer,
} from '../../support/upstreams/authorised.ts';
import { startHostile, type Hostile } from '../../support/upstreams/hostile.ts';

const ECHOED = { content: [{ type: 'text', text: 'Echo: hello' }], isError: false };

let legacy: AuthorisedServer;
let modern: AuthorisedServer;
let open: AuthorisedServer;
let elsewhere: Hostile;
let redirecting: Hostile;
let sb: IdentityUnderTest;

beforeAll(async () => {
  [legacy, modern, open, elsewhere] = await Promise.all([
    startAuthorised('legacy'),
    startAuthorised('modern'),
    startAuthorised('legacy'),
    startHostile(),
  ]);
  redirecting = await startHostile({
    modes: {
      away: ({ response }) => void response.writeHead(307, { location: elsewhere.url('ok') }).end(),
    },
  });
  sb = await startIdentity({
    catalogue: [
      actingForUsers('legacy', legacy.url),
      actingForUsers('modern', modern.url),
      actingForUsers('not-allowed', elsewhere.url('ok')),
      actingForUsers('redirecting', redirecting.url('away')),
      { id: 'open', remote_url: open.url },
    ],
    allowedOrigins: [legacy.origin, modern.origin, redirecting.origin],
    env: { SWITCHBOARD_RATE_LIMIT: 'off' },
  });
});
afterAll(async () => {
  await sb[Symbol.asyncDispose]();
  await Promise.all([legacy, modern, open, elsewhere, redirecting].map(each => each[Symbol.asyncDispose]()));
});

const echo = (serverId: string, headers?: Record<string, string>) =>
  sb.post(
    '/v1/mcp/tools/call',
    { server_id: serverId, name: 'echo', arguments: { message: 'hello' } },
    headers,
  );

let users = 0;
const connected = async (login = `attach-${++users}`) => sb.as(await sb.connect(login));

/** What the provider says of the account a token is of. */
const isOfProvider = async (authorization: string | undefined) =>
  (await sb.idp.introspect(authorization?.replace(/^Bearer /, '') ?? '')).active;

describe('85: the provider`s token [identity.proxy]', () => {
  it.each(['legacy', 'modern'] as const)(
    'reaches a server whose entry and origin name it, with every message (%s)',
    async era => {
      const server = era === 'legacy' ? legacy : modern;
      const from = server.inbox.all.length;
      const answer = await echo(era, await connected());
      expect(answer.status).toBe(200);
      expect(answer.json).toMatchObject(ECHOED);
      const authorizations = new Set(
        server.inbox.all.slice(from).map(({ headers }) => headers.authorization),
      );
      expect(authorizations.size).toBe(1);
      expect(await isOfProvider([...authorizations][0])).toBe(true);
    },
  );

  it('reaches no server whose entry does not ask for it', async () => {
    const answer = await echo('open', await connected());
    expect(answer.json).toMatchObject(ECHOED);
    expect(open.seen()).toEqual([undefined]);
  });

  it('reaches no server whose origin the provider`s settings do not name: 503 says whose work it is', async () => {
    const answer = await echo('not-allowed', await connected());
    expect(answer.status).toBe(503);
    expect(answer.json).toMatchObject({
      code: 'provider_not_configured',
      detail: expect.stringContaining(`allowed_origins does not include ${elsewhere.origin}`),
    });
    expect(elsewhere.inbox.all).toEqual([]);
  });

  it('appears in no answer and no log line', async () => {
    const headers = await connected();
    const texts = [
      await echo('legacy', headers),
      await echo('modern', headers),
      await echo('redirecting', headers),
      await sb.post('/v1/mcp/call', { server_id: 'legacy', method: 'no/such' }, headers),
      await sb.post('/v1/mcp/tools/list', { server_id: 'legacy' }, headers),
    ].map(({ text, headers: answered }) => text + JSON.stringify([...answered]));
    const told = texts.join() + sb.logged();
    for (const secret of sb.idp.secretsSeen) expect(told).not.toContain(secret);
  });
});

describe('86: a server that redirects to another origin', () => {
  it('gets the token, the other origin gets nothing: 502, on the generic call 200 with -32000', async () => {
    const headers = await connected();
    const answer = await echo('redirecting', headers);
    expect(answer.status).toBe(502);
    expect(answer.json).toMatchObject({ code: 'upstream_blocked' });
    const generic = await sb.post(
      '/v1/mcp/call',
      { server_id: 'redirecting', method: 'tools/call', params: { name: 'echo' } },
      headers,
    );
    expect(generic.status).toBe(200);
    expect(generic.json.error).toMatchObject({ code: -32_000, data: { reason: 'upstream_blocked' } });
    expect(redirecting.inbox.of('tools/call')[0]?.headers.authorization).toMatch(/^Bearer /);
    expect(elsewhere.inbox.all).toEqual([]);
  });
});

describe('87: what the caller sends', () => {
  it('is never forwarded: key, identity token, cookies, whatever else', async () => {
    const identity = await connected();
    const canaries = {
      ...identity,
      cookie: 'session=canary-cookie',
      'proxy-authorization': 'Basic canary-proxy',
      'x-forwarded-for': '203.0.113.77',
      'x-canary': 'canary-any',
      'user-agent': 'canary-agent',
    };
    for (const server of ['legacy', 'modern', 'open'])
      expect((await echo(server, canaries)).json).toMatchObject(ECHOED);
    const received = JSON.stringify([legacy, modern, open].map(server => server.inbox.all));
    expect(received).not.toMatch(/canary|203\.0\.113\.77/);
    expect(received).not.toContain(sb.key);
    expect(received).not.toContain(identity['authorization']);
  });
});

describe('sessions with upstreams', () => {
  it('are never shared by two users, and each has its own token', async () => {
    const from = legacy.inbox.all.length;
    const [one, two] = await Promise.all([connected(), connected()]);
    await Promise.all([one, two, one, two].map(headers => echo('legacy', headers)));
    const calls = legacy.inbox.all.slice(from).filter(({ message }) => message.method === 'tools/call');
    expect(calls).toHaveLength(4);
    const tokensOf = Map.groupBy(calls, ({ headers }) => headers['mcp-session-id']);
    expect(tokensOf.size).toBe(2);
    // Two calls a session, one token a session, and not the same one.
    const pairs = new Set(
      calls.map(({ headers: sent }) => JSON.stringify([sent['mcp-session-id'], sent.authorization])),
    );
    expect(pairs.size).toBe(2);
    expect(new Set(calls.map(call => call.headers.authorization)).size).toBe(2);
  });

  it('are not taken over by another account of the same user', async () => {
    const user = `changes-${++users}`;
    const headers = sb.as(await sb.connect(user, { login: `${user}-private` }));
    const from = legacy.inbox.all.length;
    await echo('legacy', headers);
    await sb.connect(user, { login: `${user}-work`, session: { allow_account_change: true } });
    expect((await echo('legacy', headers)).json).toMatchObject(ECHOED);
    const calls = legacy.inbox.all.slice(from).filter(({ message }) => message.method === 'tools/call');
    expect(calls).toHaveLength(2);
    expect(new Set(calls.map(call => call.headers['mcp-session-id'])).size).toBe(2);
    expect(new Set(calls.map(call => call.headers.authorization)).size).toBe(2);
  });

  it('are kept by a user who signs in again with the same account', async () => {
    const user = `stays-${++users}`;
    const headers = sb.as(await sb.connect(user));
    const from = legacy.inbox.all.length;
    await echo('legacy', headers);
    await sb.connect(user);
    await echo('legacy', headers);
    const calls = legacy.inbox.all.slice(from).filter(({ message }) => message.method === 'tools/call');
    expect(new Set(calls.map(call => call.headers['mcp-session-id'])).size).toBe(1);
    expect(new Set(calls.map(call => call.headers.authorization)).size).toBe(2);
  });
});
