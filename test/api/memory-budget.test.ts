import { once } from 'node:events';
import { connect } from 'node:net';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';
import { startHostile, type Hostile } from '../support/upstreams/hostile.ts';

const KIB = 1024;

let upstream: Hostile;
let sb: RunningSwitchboard;
beforeAll(async () => {
  const image = { type: 'image', data: 'A'.repeat(800 * KIB), mimeType: 'image/png' };
  upstream = await startHostile({
    sessions: false,
    modes: { long: call => call.result({ content: [image] }) },
  });
  sb = await startTestSwitchboard({
    catalogue: ['hang', 'ok', 'long'].map(id => ({
      id,
      remote_url: upstream.url(id),
      // A tool that nobody knows would be looked up first.
      tools: [{ name: 't' }],
    })),
    faceLimits: { maxBytesPerKey: 512 * KIB, maxBytes: 768 * KIB },
    env: { SWITCHBOARD_RATE_LIMIT: 'off' },
  });
});
afterAll(async () => {
  await sb[Symbol.asyncDispose]();
  await upstream[Symbol.asyncDispose]();
});

const JSON_RPC = { jsonrpc: '2.0', id: 1, method: 'tools/call' };
/** A call of a tool, the same on every face. */
const FACES: Record<string, (serverId: string, args: object) => [path: string, body: object]> = {
  '/v1/mcp/call': (serverId, args) => [
    '/v1/mcp/call',
    { server_id: serverId, method: 'tools/call', params: { name: 't', arguments: args } },
  ],
  '/v1/mcp/tools/call': (serverId, args) => [
    '/v1/mcp/tools/call',
    { server_id: serverId, name: 't', arguments: args },
  ],
  '/mcp': (serverId, args) => [
    '/mcp',
    {
      ...JSON_RPC,
      params: {
        name: 'call_remote_tool',
        arguments: { server_id: serverId, tool_name: 't', arguments: args },
      },
    },
  ],
  '/mcp/{server_id}': (serverId, args) => [
    `/mcp/${serverId}`,
    { ...JSON_RPC, params: { name: 't', arguments: args } },
  ],
};
const faces = Object.entries(FACES);
const big = { x: 'x'.repeat(300 * KIB) };

/** A POST on a connection of its own, all but its last bytes where it is to stay unfinished. */
function open(path: string, body: Buffer, { encoding = 'identity', unsent = 0 } = {}) {
  const socket = connect(Number(new URL(sb.url).port), '127.0.0.1');
  socket.on('error', () => {});
  let text = '';
  socket.on('data', (chunk: Buffer) => (text += chunk.toString()));
  const head = [
    `POST ${path} HTTP/1.1`,
    'Host: 127.0.0.1',
    `X-API-Key: ${sb.key}`,
    'Content-Type: application/json',
    `Content-Encoding: ${encoding}`,
    `Content-Length: ${body.length}`,
  ];
  socket.write(`${head.join('\r\n')}\r\n\r\n`);
  socket.write(body.subarray(0, body.length - unsent));
  return { socket, text: () => text };
}

describe.each(faces)('%s', (_face, request) => {
  const send = (serverId: string, args: object) => sb.post(...request(serverId, args));

  it('refuses a body while other calls of the key use up its budget, and takes it when one of them has ended', async () => {
    const [path, body] = request('hang', big);
    const before = upstream.inbox.count('tools/call');
    const hanging = open(path, Buffer.from(JSON.stringify(body)));
    await expect.poll(() => upstream.inbox.count('tools/call')).toBe(before + 1);
    const refused = await send('ok', big);
    expect(refused.status).toBe(503);
    expect(refused.headers.get('retry-after')).toBe('1');
    expect(refused.headers.get('connection')).toBe('close');
    expect(refused.text).toMatch(/unavailable.*|hold too much data/);
    // Small ones cost next to nothing.
    expect((await send('ok', {})).status).toBe(200);
    hanging.socket.destroy();
    await expect.poll(async () => (await send('ok', big)).status).toBe(200);
  });

  it('refuses an endless body, and stops reading it', async () => {
    const [path, body] = request('ok', { x: 'x'.repeat(2_000 * KIB) });
    const { socket, text } = open(path, gzipSync(JSON.stringify(body)), { encoding: 'gzip', unsent: 10 });
    await once(socket, 'close');
    expect(text()).toMatch(/^HTTP\/1.1 503 /);
    expect((await send('ok', {})).status).toBe(200);
  });
});

it('the refusal of a body that is too large reaches a client that reads only after it has sent all of it', async () => {
  const [path, body] = FACES['/v1/mcp/tools/call']?.('ok', { x: 'x'.repeat(8_000 * KIB) }) ?? ['', {}];
  const { socket, text } = open(path, Buffer.from(JSON.stringify(body)));
  socket.pause();
  await once(socket, 'drain');
  socket.resume();
  await once(socket, 'close');
  expect(text()).toMatch(/^HTTP\/1.1 413 /);
});

describe.each(faces.filter(([face]) => face !== '/mcp/{server_id}'))('%s: JSON', (_face, request) => {
  it('counts by the memory that it takes, not by its bytes alone', async () => {
    const dense = (objects: number) => ({ x: Array.from({ length: objects }, () => ({})) });
    expect((await sb.post(...request('ok', dense(4_000)))).status).toBe(200);
    expect((await sb.post(...request('ok', dense(10_000)))).status).toBe(503);
  });

  it('is refused with more than 100,000 objects and arrays', async () => {
    const { status, text } = await sb.post(
      ...request('ok', { x: Array.from({ length: 100_001 }, () => []) }),
    );
    expect(status).toBe(413);
    expect(text).toContain('more than 100000 objects and arrays');
  });
});

describe.each(faces.filter(([face]) => face.startsWith('/v1/')))('%s: an answer', (_face, request) => {
  it('over the budget of its key is dropped', async () => {
    const { status, text } = await sb.post(...request('long', {}));
    expect(status).toBe(503);
    expect(text).toContain('too much data of earlier responses is still unread');
  });
});

describe('/mcp: an answer over the budget of its key', () => {
  it('is refused, as over REST', async () => {
    const [path, body] = FACES['/mcp']?.('long', {}) ?? ['', {}];
    const { socket, text } = open(path, Buffer.from(JSON.stringify(body)));
    await once(socket, 'close');
    expect(text()).toMatch(/^HTTP\/1.1 503 /);
    expect(text()).toContain('too much data of earlier responses');
    expect(text()).not.toContain('result');
  });
});
