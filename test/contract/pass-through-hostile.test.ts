import type { IncomingMessage, ServerResponse } from 'node:http';
import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { fetchRaw, open } from '../support/raw-http.ts';
import { scrape, sumOf } from '../support/scrape.ts';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';
import { listen, refusedPort, type Listening } from '../support/upstreams/http.ts';

const IDLE_MS = 1_500;
const CHUNK = Buffer.alloc(64 * 1024, 'x');
const json = { 'content-type': 'application/json' };
const sse = { 'content-type': 'text/event-stream' };
const EARLY_HINTS = 'HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n';
const html = { 'content-type': 'text/html' };
const text = { 'content-type': 'text/plain; charset=utf-8' };

/** How the server answers, by path; what it has written, and which requests were closed on it. */
const written: Record<string, number> = {};
const closed: Record<string, Promise<unknown>> = {};
const requests: Record<string, number> = {};
let elsewhere = '';

const LONG_EVENT = `data: ${'x'.repeat(100_000)}\n\n`;

function events(response: ServerResponse): ServerResponse {
  response.writeHead(200, sse);
  for (let event = 0; event < 3; event++) response.write(`data: ${event}\n\n`);
  return response;
}

/** Writes without end, as fast as the other side reads. */
function pour(path: string, response: ServerResponse): void {
  const more = () => {
    while (!response.destroyed) {
      written[path] = (written[path] ?? 0) + CHUNK.length;
      if (!response.write(CHUNK)) return;
    }
  };
  response.on('drain', more);
  more();
}

const modes: Record<string, (response: ServerResponse, request: IncomingMessage, path: string) => void> = {
  ok: response => void response.writeHead(200, json).end('{"ok":true}'),
  /** Chunks that arrive together. */
  events: response => void events(response).end(),
  'events-long': response => void events(response).end(LONG_EVENT),
  hang: () => {},
  'hang-once': () => {},
  'hang-in-body': response => void response.writeHead(200, sse).write('data: 1\n\n'),
  cut: response => void response.writeHead(200, sse).write('data: 1\n\n', () => response.destroy()),
  'cut-length': response =>
    void response
      .writeHead(200, { ...json, 'content-length': 100 })
      .write('{"half":', () => response.destroy()),
  'cut-head': response => void response.destroy(),
  drip: response => {
    response.writeHead(200, sse);
    const timer = setInterval(() => void response.write(':\n\n'), IDLE_MS / 10);
    response.once('close', () => clearInterval(timer));
  },
  stream: response => response.writeHead(200, sse).flushHeaders(),
  endless: (response, _request, path) => {
    response.writeHead(200, json);
    pour(path, response);
  },
  'many-headers': response => {
    for (let at = 0; at < 150; at++) response.setHeader(`x-${at}`, 'y');
    response.writeHead(200, json).end('{}');
  },
  'long-header': response =>
    void response.writeHead(200, { ...json, 'x-long': 'y'.repeat(20_000) }).end('{}'),
  gzip: response => void response.writeHead(200, { ...json, 'content-encoding': 'gzip' }).end('x'),
  'not-http': response => void response.socket?.end('SSH-2.0-OpenSSH\r\n'),
  interim: response => {
    response.socket?.write(EARLY_HINTS.repeat(200));
    response.writeHead(200, json).end('{"ok":true}');
  },
  'interim-endless': response => {
    const { socket } = response;
    if (!socket) return;
    const more = () => {
      while (!socket.destroyed && socket.write(EARLY_HINTS.repeat(500)));
    };
    socket.on('drain', more).on('error', () => {});
    more();
  },
  '307': response => void response.writeHead(307, { location: '/ok' }).end(),
  '308': response => void response.writeHead(308, { location: '/ok' }).end('moved'),
  '302': response => void response.writeHead(302, { location: '/ok' }).end(),
  'redirect-loop': response => void response.writeHead(307, { location: '/redirect-loop' }).end(),
  'redirect-away': response => void response.writeHead(307, { location: `${elsewhere}/ok` }).end(),
  'redirect-nowhere': response => void response.writeHead(307).end(),
  'redirect-endless': (response, _request, path) => {
    response.writeHead(307, { location: '/ok' });
    pour(path, response);
  },
  '401': response => void response.writeHead(401, { 'www-authenticate': 'Bearer' }).end('x'),
  '403': response => void response.writeHead(403, json).end('{"error":"plan expired"}'),
  '407': response => void response.writeHead(407).end(),
  '400': response =>
    void response.writeHead(400, json).end('{"jsonrpc":"2.0","id":1,"error":{"code":-32602}}'),
  '404': response =>
    void response.writeHead(404, json).end('{"jsonrpc":"2.0","id":1,"error":{"code":-32601}}'),
  '405': response => void response.writeHead(405, { allow: 'POST' }).end(),
  '404-html': response => void response.writeHead(404, html).end('<b>secret</b>'),
  '503-html': response => void response.writeHead(503, { ...html, 'retry-after': '9' }).end('<b>secret</b>'),
  '502-html': response => void response.writeHead(502, html).end('<b>secret</b>'),
  '429-once': response => void response.writeHead(429, { ...json, 'retry-after': '50' }).end('{}'),
  '503-once': response => void response.writeHead(503, { 'retry-after': '50' }).end(),
  '400-text': response =>
    void response.writeHead(400, text).end(`bad\u0000 ${'request '.repeat(10_000)}secret`),
  '400-text-open': response => void response.writeHead(400, text).write('no session'),
  '200-html': response => void response.writeHead(200, html).end('<b>secret</b>'),
  '200-two-types': response =>
    void response.writeHead(200, { 'content-type': 'application/json, text/html' }).end('<b>secret</b>'),
  '202-text': response => void response.writeHead(202, text).end('Accepted'),
  '200-bare': response => void response.writeHead(200).end('{"secret":1}'),
  '200-empty': response => void response.writeHead(200, html).end(),
  'problem-json': response =>
    void response.writeHead(422, { 'content-type': 'application/problem+json' }).end('{"a":1}'),
  '406': response => void response.writeHead(406, json).end('{}'),
  '410': response => void response.writeHead(410, json).end('{}'),
  '429': response => void response.writeHead(429, { ...json, 'retry-after': '7' }).end('{"slow":1}'),
  '500': response => void response.writeHead(500, json).end('{"boom":1}'),
  '503': response => void response.writeHead(503, { 'retry-after': '3' }).end(),
  '202': response => void response.writeHead(202).end(),
};

let upstream: Listening;
let other: Listening;
let sb: RunningSwitchboard;

beforeAll(async () => {
  other = await listen((_request, response) => void response.end('stolen'));
  elsewhere = other.origin;
  upstream = await listen((request, response) => {
    const path = (request.url ?? '').slice(1);
    requests[path] = (requests[path] ?? 0) + 1;
    closed[path] = once(response, 'close');
    request.resume().once('end', () => modes[path]?.(response, request, path));
  });
  sb = await startTestSwitchboard({
    catalogue: [
      ...Object.keys(modes).map(mode => ({ id: mode, remote_url: `${upstream.origin}/${mode}` })),
      { id: 'refused', remote_url: `http://127.0.0.1:${await refusedPort()}/` },
      { id: 'metadata', remote_url: 'http://169.254.169.254/latest' },
    ],
    proxyLimits: { passIdleMs: IDLE_MS, streamIdleMs: IDLE_MS, maxStreamsPerKey: 3, connectionsPerOrigin: 2 },
  });
});
afterAll(async () => {
  await sb[Symbol.asyncDispose]();
  await Promise.all([upstream[Symbol.asyncDispose](), other[Symbol.asyncDispose]()]);
});

const call = { method: 'POST', body: '{"jsonrpc":"2.0","id":1,"method":"tools/call"}' };
const headers = () => ({ 'x-api-key': sb.key, ...json });
const post = (mode: string) => fetchRaw(sb.url, `/mcp/${mode}`, { ...call, headers: headers() });
const openPost = (mode: string) => open(sb.url, `/mcp/${mode}`, { ...call, headers: headers() });
const openGet = (mode: string) => open(sb.url, `/mcp/${mode}`, { headers: headers() });
const ended = (answer: IncomingMessage) =>
  new Promise<string>(resolve => {
    answer
      .once('end', () => resolve('ended'))
      .once('error', () => resolve('broken'))
      .resume();
  });

describe('bad responses of a server', () => {
  it.each([
    ['hang', 'upstream_timeout'],
    ['cut-head', 'upstream_unreachable'],
    ['refused', 'upstream_unreachable'],
    ['metadata', 'upstream_blocked'],
    ['many-headers', 'upstream_protocol'],
    ['long-header', 'upstream_protocol'],
    ['gzip', 'upstream_protocol'],
    ['not-http', 'upstream_protocol'],
    ['interim-endless', 'upstream_protocol'],
    ['302', 'upstream_http_error'],
    ['redirect-loop', 'upstream_http_error'],
    ['redirect-nowhere', 'upstream_http_error'],
    ['redirect-away', 'upstream_blocked'],
    ['401', 'upstream_unauthorized'],
    ['403', 'upstream_forbidden'],
    ['407', 'upstream_http_error'],
    ['200-html', 'upstream_protocol'],
    ['200-two-types', 'upstream_protocol'],
    ['200-bare', 'upstream_protocol'],
  ])('%s is 502 %s, a JSON-RPC error of ours', async (mode, reason) => {
    const answer = await post(mode);
    expect(answer.status).toBe(502);
    expect(answer.json).toMatchObject({
      jsonrpc: '2.0',
      id: 1,
      error: { code: -32_000, data: { origin: 'switchboard', reason } },
    });
    expect(answer.headers['www-authenticate']).toBeUndefined();
    expect(answer.text).not.toContain('secret');
  });

  it.each([
    ['hang', true],
    ['cut-head', true],
    ['gzip', true],
    ['200-html', true],
    ['502-html', true],
    ['refused', false],
    ['metadata', false],
    ['401', false],
  ])('%s: of a call that was written it says that it may have run: %o', async (mode, mayHaveRun) => {
    const { error } = (await post(mode)).json;
    expect(/may have run/.test(error.message)).toBe(mayHaveRun);
    if (mayHaveRun) expect(error.data.retryable).toBe(false);
  });

  it.each([
    ['404-html', 404, 'upstream_http_error'],
    ['502-html', 502, 'upstream_http_error'],
    ['503-html', 503, 'upstream_unavailable'],
    ['400-text', 400, 'upstream_http_error'],
    ['400-text-open', 400, 'upstream_http_error'],
  ])('%s keeps its status %i, with a JSON-RPC error in place of its body', async (mode, status, reason) => {
    for (const method of ['POST', 'GET']) {
      const body = method === 'POST' ? { body: call.body } : {};
      const answer = await fetchRaw(sb.url, `/mcp/${mode}`, { method, headers: headers(), ...body });
      expect(answer.status).toBe(status);
      expect(answer.json.error.data).toMatchObject({ origin: 'switchboard', reason });
      expect(answer.text).not.toContain('secret');
      expect(answer.headers['content-type']).toMatch(/^application\/json/);
    }
  });

  it('some interim responses are ignored', async () => {
    const answer = await post('interim');
    expect([answer.status, answer.text]).toEqual([200, '{"ok":true}']);
  });

  it("the client's own timeout applies", async () => {
    const answer = await fetchRaw(sb.url, '/mcp/drip', {
      ...call,
      headers: { ...headers(), 'switchboard-timeout-ms': '10' },
    });
    expect([answer.status, answer.json.error.data.reason]).toEqual([400, 'invalid_request']);
    const timed = await fetchRaw(sb.url, '/mcp/hang-once', {
      ...call,
      headers: { ...headers(), 'switchboard-timeout-ms': '1000' },
    });
    expect(timed.json.error).toMatchObject({
      message: expect.stringMatching(
        /after 1 s; the call may have run\. To allow more time, send the header Switchboard-Timeout-Ms/,
      ),
      data: { reason: 'upstream_timeout', retryable: false },
    });
  });

  it('the reason of a refusal is shown', async () => {
    expect((await post('403')).json.error.message).toContain('(HTTP 403): {"error":"plan expired"}. ');
  });

  it('the beginning of a plain text is quoted, and Retry-After stays a header', async () => {
    expect((await post('400-text')).json.error.message).toMatch(/HTTP 400: bad request request .{20,200}…$/);
    expect((await post('400-text-open')).json.error.message).toBe(
      'The MCP server returned HTTP 400: no session',
    );
    expect((await post('503-html')).headers['retry-after']).toMatch(/^[1-9]$/);
  });

  it.each([
    ['429-once', 429, 'upstream_rate_limited'],
    ['503-once', 503, 'upstream_unavailable'],
  ])(
    '%s asks to wait: until then the answer is %i with Retry-After, and it is not asked',
    async (mode, status, reason) => {
      await post(mode);
      const asked = requests[mode];
      const answer = await post(mode);
      expect(answer.status).toBe(status);
      expect(answer.json).toMatchObject({
        id: 1,
        error: { data: { origin: 'switchboard', reason, retryable: true } },
      });
      expect(Number(answer.headers['retry-after'])).toBe(answer.json.error.data.retry_after);
      expect(requests[mode]).toBe(asked);
    },
  );

  it.each(['404-html', '405'])('a POST without a session that meets %s learns of HTTP+SSE', async mode => {
    const answer = await post(mode);
    expect(answer.status).toBe(Number(mode.slice(0, 3)));
    expect(answer.json).toMatchObject({ id: 1, error: { data: { retryable: false } } });
    expect(answer.json.error.message).toMatch(/only the old HTTP\+SSE .* POST \/v1\/mcp\/call/);
    const get = await fetchRaw(sb.url, `/mcp/${mode}`, { headers: headers() });
    expect(get.text).not.toContain('HTTP+SSE');
  });

  it.each(['400', '404', '406', '410', '429', '500', '503', '202', '200-empty', 'problem-json'])(
    'HTTP %s is passed on unchanged, including the body',
    async mode => {
      const [direct, passed] = await Promise.all([fetchRaw(upstream.origin, `/${mode}`, call), post(mode)]);
      expect([passed.status, passed.text]).toEqual([direct.status, direct.text]);
      for (const name of ['content-type', 'allow', 'retry-after'])
        expect(passed.headers[name]).toBe(direct.headers[name]);
    },
  );

  it.each(['202-text', '200-html', '200-bare'])(
    '%s: where no body is waited for, it is left out',
    async mode => {
      const note = '{"jsonrpc":"2.0","method":"notifications/initialized"}';
      for (const asked of [{ method: 'POST', body: note }, { method: 'DELETE' }]) {
        const answer = await fetchRaw(sb.url, `/mcp/${mode}`, { ...asked, headers: headers() });
        expect([answer.status, answer.text]).toEqual([Number(mode.slice(0, 3)), '']);
        expect(answer.headers['content-type']).toBeUndefined();
      }
    },
  );

  it('a GET that is not allowed is passed on, with what is', async () => {
    const answer = await fetchRaw(sb.url, '/mcp/405', { headers: headers() });
    expect([answer.status, answer.text, answer.headers.allow]).toEqual([405, '', 'POST']);
  });

  it.each(['307', '308', 'redirect-endless'])('%s within the origin is followed once', async mode => {
    expect((await post(mode)).text).toBe('{"ok":true}');
    expect(requests[mode]).toBe(1);
  });

  it.each(['cut', 'cut-length', 'hang-in-body'])(
    '%s breaks the response to the client too: never a clean end',
    async mode => {
      const answer = await openPost(mode);
      expect(answer.statusCode).toBe(200);
      expect(await ended(answer)).toBe('broken');
      await closed[mode];
    },
  );

  it('an end is a clean end', async () => {
    expect(await ended(await openPost('ok'))).toBe('ended');
  });
});

describe('streams', () => {
  it('the head of a silent stream comes at once, and no proxy in front is to buffer it', async () => {
    const answer = await openGet('stream');
    expect(answer.headers['x-accel-buffering']).toBe('no');
    answer.destroy();
    await closed['stream'];
  });

  it.each([
    ['events', ''],
    ['events-long', LONG_EVENT],
  ])('%s that arrive together arrive whole, also while other responses are written', async (mode, last) => {
    const stream = await openGet('stream');
    const answers = await Promise.all(Array.from({ length: 5 }, () => post(mode)));
    const whole = `data: 0\n\ndata: 1\n\ndata: 2\n\n${last}`;
    expect(answers.map(({ text: got }) => got === whole)).toEqual([true, true, true, true, true]);
    stream.destroy();
    await closed['stream'];
  });

  it('a byte now and then keeps a stream open', async () => {
    const answer = await openGet('drip');
    let bytes = 0;
    for await (const chunk of answer) {
      bytes += (chunk as Buffer).length;
      if (bytes > 3 * 6) break;
    }
    await closed['drip'];
  });

  it('a client that goes away closes the request at the server, before the head and after it', async () => {
    const { promise: arrived, resolve } = Promise.withResolvers<void>();
    upstream.server.once('request', () => resolve());
    const leave = new AbortController();
    const hanging = fetch(`${sb.url}/mcp/hang`, { ...call, headers: headers(), signal: leave.signal });
    await arrived;
    leave.abort();
    await expect(hanging).rejects.toThrow();
    await closed['hang'];
    const answer = await openPost('drip');
    answer.destroy();
    await closed['drip'];
  });

  it('an endless answer to a client that does not read stops at the server, and ends with the idle time', async () => {
    const answer = await openPost('endless');
    expect(answer.statusCode).toBe(200);
    answer.pause();
    await closed['endless'];
    // What the kernel's and Node's buffers of three connections hold.
    expect(written['endless']).toBeLessThan(48 * 1024 * 1024);
    expect(await ended(answer)).toBe('broken');
  });

  it('are bounded per key, and take no place from calls', async () => {
    const streams = [await openGet('drip'), await openGet('drip'), await openGet('drip')];
    const refused = await fetchRaw(sb.url, '/mcp/drip', { headers: headers() });
    expect(refused.status).toBe(429);
    expect(refused.headers['retry-after']).toBe('30');
    expect(refused.json).toMatchObject({ jsonrpc: '2.0', error: { data: { reason: 'rate_limited' } } });
    const { json: made } = await sb.admin.request('POST', '/keys', { name: 'second' });
    const another = await open(sb.url, '/mcp/drip', { headers: { 'x-api-key': made.key } });
    expect(another.statusCode).toBe(200);
    another.destroy();
    expect((await post('ok')).status).toBe(200);
    for (const stream of streams) stream.destroy();
    // The place of a stream that its client left is free again.
    for (let status = 429; status === 429;) {
      const next = await openGet('drip');
      status = next.statusCode ?? 0;
      next.destroy();
    }
  });

  it('a call that waits for a client`s answer does not keep the answer waiting', async () => {
    const hanging = await Promise.all([openPost('hang-in-body'), openPost('hang-in-body')]);
    let broken = 0;
    for (const each of hanging) each.once('error', () => broken++).resume();
    const body = '{"jsonrpc":"2.0","id":5,"result":{"content":"\\"method\\""}}';
    const answer = await fetchRaw(sb.url, '/mcp/202', { method: 'POST', body, headers: headers() });
    expect(answer.status).toBe(202);
    expect(broken).toBe(0);
    for (const each of hanging) each.destroy();
  });

  it('settings limit their number, of a key and of all keys', async () => {
    await using small = await startTestSwitchboard({
      catalogue: [{ id: 'stream', remote_url: `${upstream.origin}/stream` }],
      env: { SWITCHBOARD_MAX_STREAMS: '3', SWITCHBOARD_MAX_STREAMS_PER_KEY: '2' },
    });
    const keys = [small.key, (await small.admin.request('POST', '/keys', { name: 'other' })).json.key];
    const openWith = (key: string) => open(small.url, '/mcp/stream', { headers: { 'x-api-key': key } });
    const streams = [await openWith(keys[0]), await openWith(keys[0])];
    expect((await openWith(keys[0])).resume().statusCode).toBe(429);
    streams.push(await openWith(keys[1]));
    expect((await openWith(keys[1])).resume().statusCode).toBe(503);
    expect(streams.map(stream => stream.statusCode)).toEqual([200, 200, 200]);
    const shown = async (state: string) => sumOf(await scrape(small.url), 'switchboard_streams', { state });
    expect([await shown('open'), await shown('free')]).toEqual([3, 0]);
    for (const stream of streams) stream.destroy();
    await vi.waitFor(async () => expect([await shown('open'), await shown('free')]).toEqual([0, 3]), 10_000);
  });

  it('end when their key is revoked, and not before', async () => {
    await using quick = await startTestSwitchboard({
      catalogue: [{ id: 'stream', remote_url: `${upstream.origin}/stream` }],
      proxyLimits: { streamRecheckMs: 20 },
    });
    const make = async () => (await quick.admin.request('POST', '/keys', { name: 'one' })).json;
    const [kept, revoked] = [await make(), await make()];
    const openWith = (key: string) => open(quick.url, '/mcp/stream', { headers: { 'x-api-key': key } });
    const [stays, ends] = [await openWith(kept.key), await openWith(revoked.key)];
    let keptEnded = false;
    const stayed = ended(stays).then(end => {
      keptEnded = true;
      return end;
    });
    await quick.admin.request('POST', `/keys/${revoked.id}/revoke`);
    expect(await ended(ends)).toBe('broken');
    expect(keptEnded).toBe(false);
    await quick.admin.request('POST', `/keys/${kept.id}/revoke`);
    expect(await stayed).toBe('broken');
  });

  it('end when their server is deactivated or removed, and not before', async () => {
    const ids = ['deactivated', 'removed', 'kept'] as const;
    const entry = (id: string) => ({
      id,
      name: id,
      description: id,
      remote_url: `${upstream.origin}/stream`,
    });
    await using quick = await startTestSwitchboard({
      catalogue: ids.map(entry),
      proxyLimits: { streamRecheckMs: 20 },
    });
    const over: string[] = [];
    const streams = ids.map(async id => {
      const answer = await open(quick.url, `/mcp/${id}`, { headers: { 'x-api-key': quick.key } });
      return { end: ended(answer).finally(() => over.push(id)) };
    });
    const [deactivated, removed] = await Promise.all(streams);
    await quick.admin.request('POST', '/catalogue/deactivated/deactivate');
    expect(await deactivated?.end).toBe('broken');
    expect(over).toEqual(['deactivated']);
    await quick.admin.request('POST', '/catalogue/import?replace=true', JSON.stringify(entry('kept')));
    expect(await removed?.end).toBe('broken');
    expect(over).toEqual(['deactivated', 'removed']);
  });

  it('a stop ends them at once', async () => {
    const stopping = await startTestSwitchboard({
      catalogue: [{ id: 'drip', remote_url: `${upstream.origin}/drip` }],
    });
    const answer = await open(stopping.url, '/mcp/drip', { headers: { 'x-api-key': stopping.key } });
    const end = ended(answer);
    const before = performance.now();
    await stopping[Symbol.asyncDispose]();
    expect(await end).toBe('broken');
    // Calls under way would get ten seconds.
    expect(performance.now() - before).toBeLessThan(8_000);
  });
});
