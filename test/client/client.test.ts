import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isSwitchboardError, Switchboard, SwitchboardError, unwrap } from '../../client/src/index.ts';
import { generateApiKey } from '../../src/core/access/key-text.ts';
import { errorCodes } from '../../src/errors.ts';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';
import { startEverything, type Everything } from '../support/upstreams/everything.ts';
import { listen, refusedPort } from '../support/upstreams/http.ts';

let upstream: Everything;
let sb: RunningSwitchboard;
let client: Switchboard;
beforeAll(async () => {
  upstream = await startEverything();
  sb = await startTestSwitchboard({
    catalogue: [
      { id: 'everything', remote_url: upstream.url, description: 'Echoes a message.' },
      { id: 'down', remote_url: `http://127.0.0.1:${await refusedPort()}/mcp`, description: 'Has sunk.' },
    ],
  });
  client = new Switchboard({ url: sb.url, apiKey: sb.key });
});
afterAll(async () => {
  await sb[Symbol.asyncDispose]();
  await upstream[Symbol.asyncDispose]();
});

const failureOf = (promise: Promise<unknown>) =>
  promise.then(
    () => expect.unreachable('it succeeded'),
    (error: unknown) => error,
  );

describe('requests', () => {
  it('search, list the tools of a hit and call one', async () => {
    const { servers, metadata } = await client.search({ query: 'echo a message', limit: 1 });
    const [server] = servers;
    expect(server?.id).toBe('everything');
    const { tools } = await client.listTools({ server_id: server?.id ?? '' });
    expect(tools.find(({ name }) => name === 'echo')?.inputSchema).toMatchObject({ required: ['message'] });
    const result = await client.callTool({
      server_id: 'everything',
      name: 'echo',
      arguments: { message: 'ebb' },
      query_log_id: metadata.query_log_id,
    });
    expect(result).toMatchObject({ content: [{ type: 'text', text: 'Echo: ebb' }], isError: false });
  });

  it('reach every endpoint of the document, admin included, below an address with a slash', async () => {
    const { api } = new Switchboard({ url: `${sb.url}/`, apiKey: sb.key });
    const shown = await unwrap(
      api.GET('/v1/admin/catalogue/{id}', { params: { path: { id: 'everything' } } }),
    );
    expect(shown).toMatchObject({ id: 'everything' });
  });

  it('end when their signal aborts', async () => {
    const signal = AbortSignal.abort(new Error('no longer wanted'));
    await expect(client.search({ query: 'x' }, { signal })).rejects.toThrow('no longer wanted');
  });
});

describe('errors', () => {
  it.each([
    [
      'unauthorized',
      401,
      () => new Switchboard({ url: sb.url, apiKey: generateApiKey().key }).search({ query: 'x' }),
    ],
    ['invalid_request', 400, () => client.search({ query: ' ' })],
    ['invalid_params', 400, () => client.callTool({ server_id: 'everything', name: 'echo', arguments: {} })],
    ['server_not_found', 404, () => client.listTools({ server_id: 'nobody' })],
    ['upstream_unreachable', 502, () => client.listTools({ server_id: 'down' })],
    [
      'session_not_found',
      404,
      () => client.waitFor({ session_id: 'ses_x', expires_at: new Date().toISOString() }),
    ],
    ['invalid_grant', 400, () => client.refresh('sbr_x')],
    [
      'identity_token_invalid',
      401,
      () => client.as('not.a.token').callTool({ server_id: 'everything', name: 'echo' }),
    ],
  ] as const)('have the code %s and status %i', async (code, status, request) => {
    const error = await failureOf(request());
    expect(isSwitchboardError(error, code)).toBe(true);
    expect(isSwitchboardError(error, 'quota_exceeded')).toBe(false);
    expect(error).toMatchObject({ code, status, problem: { code, status } });
    if (!isSwitchboardError(error)) return;
    expect(error.detail.length).toBeGreaterThan(10);
    expect(error.message).toContain(error.detail);
    expect(sb.logged()).toContain(error.requestId);
  });

  it('know all codes that there are', () => {
    const response = new Response(null, { status: 400 });
    for (const code of errorCodes)
      expect(isSwitchboardError(new SwitchboardError(code, response), code)).toBe(true);
  });

  it('say after how many seconds to retry', async () => {
    await using limited = await startTestSwitchboard({ env: { SWITCHBOARD_RATE_LIMIT: 'search=1/600' } });
    const limitedClient = new Switchboard({ url: limited.url, apiKey: limited.key });
    await limitedClient.search({ query: 'x' });
    const error = await failureOf(limitedClient.search({ query: 'x' }));
    expect(error).toMatchObject({ code: 'rate_limited', status: 429, retryAfter: expect.any(Number) });
    expect((error as SwitchboardError).retryAfter).toBeGreaterThan(590);
  });

  it('are those of fetch if there is no response', async () => {
    const unreachable = new Switchboard({ url: `http://127.0.0.1:${await refusedPort()}`, apiKey: sb.key });
    const error = await failureOf(unreachable.search({ query: 'x' }));
    expect(error).toBeInstanceOf(TypeError);
    expect(isSwitchboardError(error)).toBe(false);
  });

  it('are unexpected_response if a proxy in between answers', async () => {
    await using proxy = await listen((_request, response) => {
      response.writeHead(503, { 'content-type': 'text/html', 'retry-after': '7' }).end('<h1>Busy</h1>');
    });
    const behind = new Switchboard({ url: proxy.origin, apiKey: sb.key });
    const error = await failureOf(behind.search({ query: 'x' }));
    expect(error).toMatchObject({ code: 'unexpected_response', status: 503, retryAfter: 7 });
  });
});

describe('the API key', () => {
  it('does not follow a redirect to another host', async () => {
    const seen: unknown[] = [];
    await using other = await listen((request, response) => {
      seen.push(request.headers['x-api-key']);
      response.end('{}');
    });
    await using redirecting = await listen((_request, response) => {
      response.writeHead(307, { location: `${other.origin}/v1/search` }).end();
    });
    const redirected = new Switchboard({ url: redirecting.origin, apiKey: sb.key });
    await expect(redirected.search({ query: 'x' })).rejects.toThrow(TypeError);
    expect(seen).toEqual([]);
  });
});
