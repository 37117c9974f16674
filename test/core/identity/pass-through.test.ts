import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { open } from '../../support/raw-http.ts';
import { startIdentity, type IdentityUnderTest } from '../../support/identity.ts';
import {
  actingForUsers,
  startAuthorised,
  type AuthorisedServer,
} from '../../support/upstreams/authorised.ts';
import { listen, type Listening } from '../../support/upstreams/http.ts';

let modern: AuthorisedServer;
let streaming: Listening;
let sb: IdentityUnderTest;

beforeAll(async () => {
  modern = await startAuthorised('modern');
  streaming = await listen((_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
  });
  sb = await startIdentity({
    catalogue: [
      actingForUsers('modern', modern.url),
      { id: 'open', remote_url: modern.url },
      { id: 'stream', remote_url: streaming.origin },
    ],
    proxyLimits: { streamRecheckMs: 20 },
    allowedOrigins: [modern.origin],
    env: { SWITCHBOARD_RATE_LIMIT: 'off' },
  });
});
afterAll(async () => {
  await sb[Symbol.asyncDispose]();
  await Promise.all([modern[Symbol.asyncDispose](), streaming[Symbol.asyncDispose]()]);
});

const META = 'io.modelcontextprotocol/';
const message = {
  jsonrpc: '2.0',
  id: 7,
  method: 'tools/call',
  params: {
    name: 'echo',
    arguments: { message: 'hello' },
    _meta: { [`${META}protocolVersion`]: '2026-07-28', [`${META}clientCapabilities`]: {} },
  },
};
const call = (server: string, headers: Record<string, string> = {}) =>
  sb.post(`/mcp/${server}`, message, {
    accept: 'application/json, text/event-stream',
    'mcp-protocol-version': '2026-07-28',
    'mcp-method': 'tools/call',
    'mcp-name': 'echo',
    ...headers,
  });

describe('the pass-through acts for a user', () => {
  it("with the user's own token, only where the server's entry asks for it, never with ours", async () => {
    const alice = sb.as(await sb.connect('alice'));
    expect((await call('modern', alice)).text).toContain('Echo: hello');
    expect((await call('open', alice)).text).toContain('Echo: hello');
    const [token, ...others] = modern.seen();
    expect(others).toEqual([undefined]);
    expect((await sb.idp.introspect(token?.replace(/^Bearer /, '') ?? '')).active).toBe(true);
    expect(modern.inbox.all.some(({ headers }) => JSON.stringify(headers).includes(sb.key))).toBe(false);
  });

  it('a token that the server refuses is renewed once, and the request sent again', async () => {
    const bob = sb.as(await sb.connect('bob'));
    await call('modern', bob);
    modern.refuse(modern.inbox.all.at(-1)?.headers.authorization);
    const from = modern.inbox.all.length;
    const answer = await call('modern', bob);
    expect(answer.status).toBe(200);
    expect(answer.text).toContain('Echo: hello');
    const [refused, taken, ...more] = modern.inbox.all.slice(from);
    expect(taken?.message).toEqual(refused?.message);
    expect(taken?.headers.authorization).not.toBe(refused?.headers.authorization);
    expect(more).toEqual([]);
  });

  it('a server that wants a credential is 403, not a 401 that would make a client drop its key', async () => {
    modern.refuse(undefined);
    const answer = await call('open');
    expect(answer.status).toBe(403);
    expect(answer.json).toMatchObject({ id: 7, error: { data: { reason: 'connection_required' } } });
    expect(answer.headers.get('www-authenticate')).toBeNull();
  });

  it('without an identity token is 401, with a revoked one too, also where none is needed', async () => {
    expect((await call('modern')).json).toMatchObject({
      id: 7,
      error: { data: { reason: 'identity_token_required' } },
    });
    const carol = sb.as(await sb.connect('carol'));
    await sb.revoke('carol');
    for (const server of ['modern', 'open']) {
      const answer = await call(server, carol);
      expect(answer.status).toBe(401);
      expect(answer.json.error.data.reason).toBe('identity_token_invalid');
    }
  });

  it('an open stream ends when its user is revoked', async () => {
    const headers = { 'x-api-key': sb.key, ...sb.as(await sb.connect('erin')) };
    const stream = await open(sb.url, '/mcp/stream', { headers });
    expect(stream.statusCode).toBe(200);
    const broken = new Promise(resolve => stream.once('error', resolve).resume());
    await sb.revoke('erin');
    expect(await broken).toMatchObject({ code: 'ECONNRESET' });
  });

  it('without a connection is 403 with the page to open, and no secret', async () => {
    const dave = sb.as(await sb.connect('dave'));
    await sb.post('/v1/identity/revoke', { user_id: 'dave', provider: 'local' });
    const from = modern.inbox.all.length;
    const { status, json, text } = await call('modern', dave);
    expect(status).toBe(403);
    expect(json).toMatchObject({
      id: 7,
      error: { code: -32_000, data: { reason: 'connection_required', provider: 'local' } },
    });
    expect(json.error.data.auth_url).toMatch(new RegExp(`^${sb.url}/connect/`));
    expect(text).not.toContain('ses_');
    expect(modern.inbox.all).toHaveLength(from);
  });
});
