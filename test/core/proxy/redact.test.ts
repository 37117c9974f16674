import { describe, expect, it } from 'vitest';
import { startHostile, type HostileMode } from '../../support/upstreams/hostile.ts';
import { startHttpSse } from '../../support/upstreams/http-sse.ts';
import { bearer, callerFor, failure, startProxy, type Harness } from './harness.ts';

const TOKEN = 'ya29.a0-SECRET_token+value';

const withToken: Parameters<typeof startProxy>[1] = {
  credentials: {
    forCall: () => Promise.resolve(bearer(TOKEN)),
    renewAfterRefusal: () => Promise.resolve(undefined),
  },
};

/** What a call fails with, and everything that was logged. */
async function told(harness: Harness): Promise<string> {
  const error = await failure(harness.proxy.callTool(callerFor('u'), { serverId: 's', name: 'a' }));
  return JSON.stringify([error.detail, error.upstreamError, error.members, harness.logged]);
}

const raw =
  (status: number, type: string, body: string): HostileMode =>
  ({ response }) =>
    void response.writeHead(status, { 'content-type': type }).end(body);

const padded = (chars: number) => `${'x'.repeat(chars)} ${TOKEN}`;

describe('a server that repeats the user`s token where it refuses it', () => {
  const modes: [name: string, mode: HostileMode][] = [
    ['an HTTP error of text', raw(500, 'text/plain', `bad token ${TOKEN}`)],
    ['an HTTP error of JSON', raw(400, 'application/json', JSON.stringify({ error: TOKEN }))],
    ['cut by our own limit', raw(500, 'text/plain', padded(180))],
    ['cut by our other limit', raw(500, 'text/plain', `${' '.repeat(985)}${TOKEN}`)],
    ['401', raw(401, 'text/plain', TOKEN)],
    ['403', raw(403, 'application/json', JSON.stringify({ error: `${padded(170)} is not allowed` }))],
    ['a content type', raw(200, `text/${TOKEN}`, 'x')],
    [
      'a JSON-RPC error',
      call =>
        call.json({
          jsonrpc: '2.0',
          id: call.message.id,
          error: { code: -32_001, message: `token ${TOKEN} expired`, data: { seen: [`Bearer ${TOKEN}`] } },
        }),
    ],
    ...['\u200b', '\u0000', '\u001b[0m', '\u2028', ' '].flatMap((between): [string, HostileMode][] => {
      const hidden = `bad ${TOKEN.split('').join(between)}`;
      const error = { code: -32_001, message: hidden, data: { seen: [hidden] } };
      return [
        [`text with ${JSON.stringify(between)} in it`, raw(400, 'text/plain', hidden)],
        [
          `a JSON-RPC error with ${JSON.stringify(between)} in it`,
          call => call.json({ jsonrpc: '2.0', id: call.message.id, error }),
        ],
      ];
    }),
    ['what is not HTTP', call => void call.request.socket.end(`Bearer ${TOKEN}\r\n\r\n`)],
    ['broken JSON', raw(200, 'application/json', `{"token": ${TOKEN}`)],
  ];
  it.each(modes)('%s: it is neither shown nor logged', async (_name, mode) => {
    await using upstream = await startHostile({ modes: { m: mode } });
    await using harness = startProxy(upstream.url('m'), withToken);
    const text = await told(harness);
    // Not even the beginning of it, not even with something in between.
    expect(text).not.toMatch(/y\W*a\W*2\W*9/);
    expect(text).not.toContain(TOKEN.split('').join(' '));
  });

  it('at the place where its answer is cut', async () => {
    const long = 'y2k9-'.repeat(1_600);
    const credentials = {
      forCall: () => Promise.resolve(bearer(long)),
      renewAfterRefusal: () => Promise.resolve(undefined),
    };
    await using upstream = await startHostile({
      modes: { m: raw(500, 'text/plain', `${long} `.repeat(9)) },
    });
    await using harness = startProxy(upstream.url('m'), { credentials });
    expect(await told(harness)).not.toContain('y2k9');
  });

  it('in a huge error is not searched for beyond its beginning, and neither is anything shown', async () => {
    const data = Array.from({ length: 1_000 }, (_, at) => `é part ${at} `.repeat(100));
    const error = { code: -32_001, message: 'bad', data: [...data, TOKEN, 7, { [TOKEN]: TOKEN }] };
    await using upstream = await startHostile({
      modes: { m: call => call.json({ jsonrpc: '2.0', id: call.message.id, error }) },
    });
    await using harness = startProxy(upstream.url('m'), withToken);
    const input = { serverId: 's', method: 'tools/call', params: { name: 'a' } };
    const answer = await harness.proxy.call(callerFor('u'), input);
    expect(JSON.stringify(answer)).not.toContain('ya29');
    expect(answer).toMatchObject({ error: { code: -32_001, message: 'bad' } });
    const shown = 'error' in answer ? (answer.error.data as unknown[]) : [];
    expect([shown[0], shown.slice(-4)]).toEqual([data[0], Array(4).fill('[redacted]')]);
  });

  it.each(['server/discover', 'initialize'])('in its answer to %s', async method => {
    const error = { code: -32_001, message: `bad ${TOKEN}`, data: { supported: [TOKEN] } };
    await using upstream = await startHostile({
      modes: { [method]: call => call.json({ jsonrpc: '2.0', id: call.message.id, error }) },
    });
    await using harness = startProxy(upstream.url('ok'), withToken);
    if (method === 'initialize') expect(await told(harness)).toContain('bad [redacted]');
    else await harness.proxy.callTool(callerFor('u'), { serverId: 's', name: 'a' });
    expect(JSON.stringify(harness.logged)).not.toContain('ya29');
  });

  it('over HTTP+SSE', async () => {
    await using upstream = await startHttpSse({
      modes: {
        'tools/call': call => {
          call.accept();
          const error = { code: 1, message: `bad ${TOKEN}` };
          call.session.send({ jsonrpc: '2.0', id: call.message.id, error });
        },
      },
    });
    await using harness = startProxy(upstream.url, withToken);
    harness.catalogue('s', upstream.url, { transport: 'sse' });
    const text = await told(harness);
    expect(text).toContain('bad [redacted]');
    expect(text).not.toContain('ya29');
  });

  it('an error without it is passed on as it is, results always', async () => {
    const error = { code: 1, message: 'other', extra: { a: 1 } };
    await using upstream = await startHostile({
      modes: {
        e: call => call.json({ jsonrpc: '2.0', id: call.message.id, error }),
        r: call => call.result({ content: [{ type: 'text', text: TOKEN }] }),
      },
    });
    await using harness = startProxy(upstream.url('e'), withToken);
    const input = { serverId: 's', method: 'tools/call', params: { name: 'a' } };
    expect(await harness.proxy.call(callerFor('u'), input)).toEqual({ error });
    harness.catalogue('s', upstream.url('r'));
    expect(await harness.proxy.call(callerFor('u'), input)).toMatchObject({
      result: { content: [{ text: TOKEN }] },
    });
  });
});
