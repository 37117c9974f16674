import { gzipSync } from 'node:zlib';
import type { HostileCall, HostileMode } from './hostile.ts';

const ok = { content: [{ type: 'text', text: 'ok' }] };

const rpcError = (call: HostileCall, code: number, message: string, status = 200, data?: unknown) =>
  call.json({ jsonrpc: '2.0', id: call.message.id, error: { code, message, data } }, status);

const raw = (
  call: HostileCall,
  status: number,
  headers: Record<string, string>,
  body: string | Buffer = '',
) => {
  call.response.writeHead(status, headers);
  call.response.end(body);
};

/** Writes the same chunk again and again, as fast as the other side reads, until it has gone. */
function pour(call: HostileCall, chunk: string | Buffer): void {
  const { response } = call;
  const more = () => {
    while (!response.destroyed && response.write(chunk));
  };
  response.on('drain', more);
  more();
}

/** Bytes on the connection as they are, instead of an answer that HTTP allows. */
const bytes = (call: HostileCall, text: string) => void call.request.socket.write(text);

const asJson = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n';

/** Writes the same bytes to the connection again and again, as fast as the other side reads, until it has gone. */
function pourBytes(call: HostileCall, first: string, chunk: string): void {
  const { socket } = call.request;
  const more = () => {
    while (!socket.destroyed && socket.write(chunk));
  };
  socket.on('drain', more);
  // Cut off by the other side in the midst of it: as it should be.
  socket.on('error', () => {});
  socket.write(first);
  more();
}

const answer = (call: HostileCall, result: unknown = ok) => ({ jsonrpc: '2.0', id: call.message.id, result });

/** How a server can misbehave in its answer to a call. */
export const hostileModes: Readonly<Record<string, HostileMode>> = {
  ok: call => call.result(ok),
  // Proper answers that a strict client might refuse.
  weird: call =>
    call.result({
      content: [{ type: 'hologram', z: 1 }],
      extra: { deep: [1, 2] },
      resultType: 'complete',
      ttlMs: 5,
    }),
  'weird-error': call =>
    call.json({
      jsonrpc: '2.0',
      id: call.message.id,
      error: { code: 7, message: 'custom', data: { trace: 'x' }, extra: 1 },
    }),
  'error-400': call => rpcError(call, -32_602, 'bad params', 400, { a: 1 }),
  'error-500': call => rpcError(call, -32_603, 'inside', 500),
  'error-no-id': call => call.json({ jsonrpc: '2.0', error: { code: -32_600, message: 'no id' } }, 400),
  'no-method': call => rpcError(call, -32_601, 'Method not found', 404),
  'string-id': call => call.json({ ...answer(call), id: String(call.message.id) }),
  'null-result': call => call.json(answer(call, null)),
  charset: call =>
    raw(call, 200, { 'content-type': 'Application/JSON; charset=utf-8' }, JSON.stringify(answer(call))),
  bom: call =>
    raw(call, 200, { 'content-type': 'application/json' }, `\u{feff}${JSON.stringify(answer(call))}`),
  batch: call => call.json([{ jsonrpc: '2.0', method: 'notifications/message' }, answer(call)]),
  // HTTP errors.
  '401': call => call.json({ error: 'invalid_token' }, 401, { 'www-authenticate': 'Bearer scope="a b"' }),
  '401-rpc': call => rpcError(call, -32_001, 'Unauthorized', 401),
  '403': call => call.json({ error: 'insufficient_scope' }, 403),
  '429': call => call.json({ e: 1 }, 429, { 'retry-after': '7' }),
  '429-bare': call => raw(call, 429, {}),
  '500-html': call => raw(call, 500, { 'content-type': 'text/html' }, '<html><b>boom</b> secret</html>'),
  '503-text': call =>
    raw(call, 503, { 'content-type': 'text/plain' }, `down\r\nfor\u{1b}[31m ${'maintenance '.repeat(100)}`),
  '410': call => call.json({ gone: true }, 410),
  // Answers that are none.
  'html-200': call => raw(call, 200, { 'content-type': 'text/html' }, '<html>Please log in</html>'),
  'no-type': call => raw(call, 200, {}, JSON.stringify(answer(call))),
  'empty-200': call => raw(call, 200, { 'content-type': 'application/json' }),
  '202': call => raw(call, 202, {}),
  '204': call => raw(call, 204, {}),
  'wrong-id': call => call.json({ ...answer(call), id: 'zzz' }),
  'empty-batch': call => call.json([]),
  'nested-batch': call => call.json([[answer(call)]]),
  'json-string': call => call.json('hello'),
  'json-null': call => call.json(null),
  'no-result': call => call.json({ jsonrpc: '2.0', id: call.message.id }),
  'bad-error': call => call.json({ jsonrpc: '2.0', id: call.message.id, error: 'oops' }),
  'bad-json': call => raw(call, 200, { 'content-type': 'application/json' }, '{"jsonrpc":'),
  'bad-utf8': call => raw(call, 200, { 'content-type': 'application/json' }, Buffer.from([0x22, 0xff, 0x22])),
  gzip: call =>
    raw(
      call,
      200,
      { 'content-type': 'application/json', 'content-encoding': 'gzip' },
      Buffer.from([0x1f, 0x8b]),
    ),
  // Event streams.
  sse: call => {
    call.sse(
      { jsonrpc: '2.0', method: 'notifications/message', params: { level: 'info', data: 'x' } },
      answer(call),
    );
    call.response.end();
  },
  'sse-open': call => call.sse(answer(call)),
  'sse-crlf': call =>
    raw(
      call,
      200,
      { 'content-type': 'text/event-stream; charset=utf-8' },
      `\u{feff}: hi\r\nid: 1\r\nevent: message\r\ndata: ${JSON.stringify(answer(call))}\r\n\r\n`,
    ),
  'sse-lines': call =>
    raw(
      call,
      200,
      { 'content-type': 'text/event-stream' },
      `${JSON.stringify(answer(call), null, 1).replaceAll(/^/gm, 'data: ')}\n\n`,
    ),
  // 2025-11-25: an event without data comes first, so that the client has an id to reconnect with.
  'sse-primed': call =>
    raw(
      call,
      200,
      { 'content-type': 'text/event-stream' },
      `id: 1\nretry: 10\ndata: \n\ndata: ${JSON.stringify(answer(call))}\n\n`,
    ),
  'sse-other-event': call =>
    raw(
      call,
      200,
      { 'content-type': 'text/event-stream' },
      `event: ping\ndata: not json\n\ndata: ${JSON.stringify(answer(call))}\n\n`,
    ),
  'sse-empty': call => raw(call, 200, { 'content-type': 'text/event-stream' }, ': nothing\n\n'),
  'sse-no-answer': call => {
    call.sse({ jsonrpc: '2.0', method: 'notifications/message' });
    call.response.end();
  },
  'sse-half': call =>
    raw(call, 200, { 'content-type': 'text/event-stream' }, `data: ${JSON.stringify(answer(call))}`),
  'sse-bad-json': call => raw(call, 200, { 'content-type': 'text/event-stream' }, 'data: {"jsonrpc"\n\n'),
  'sse-bad-utf8': call =>
    raw(
      call,
      200,
      { 'content-type': 'text/event-stream' },
      Buffer.from([...Buffer.from('data: '), 0xff, 10, 10]),
    ),
  'sse-cut': call => {
    call.sse({ jsonrpc: '2.0', method: 'notifications/message' });
    call.response.write('data: {"jso', () => call.response.destroy());
  },
  'sse-comments': call => {
    call.response.writeHead(200, { 'content-type': 'text/event-stream' });
    pour(call, `:${' keep alive'.repeat(1000)}\n`);
  },
  'sse-pings': call => {
    call.response.writeHead(200, { 'content-type': 'text/event-stream' });
    pour(call, `data: {"jsonrpc":"2.0","id":1,"method":"ping"}\n\n`);
  },
  'sse-one-line': call => {
    call.response.writeHead(200, { 'content-type': 'text/event-stream' });
    pour(call, 'data: '.padEnd(64 * 1024, 'x'));
  },
  // Size and time.
  huge: call => {
    call.response.writeHead(200, { 'content-type': 'application/json' });
    pour(call, Buffer.alloc(64 * 1024, 'y'));
  },
  'huge-announced': call => {
    call.response.writeHead(200, {
      'content-type': 'application/json',
      'content-length': String(10 * 1024 * 1024),
    });
    pour(call, Buffer.alloc(64 * 1024, 'y'));
  },
  'big-headers': call =>
    raw(
      call,
      200,
      { 'content-type': 'application/json', 'x-big': 'x'.repeat(20_000) },
      JSON.stringify(answer(call)),
    ),
  'many-headers': call =>
    raw(
      call,
      200,
      {
        'content-type': 'application/json',
        ...Object.fromEntries(Array.from({ length: 150 }, (_, i) => [`x-${i}`, 'v'])),
      },
      JSON.stringify(answer(call)),
    ),
  hang: () => {},
  'slow-headers': call => void call.request.socket.write('HTTP/1.1 200 OK\r\ncontent-type: appl'),
  'sse-hang': call => call.sse({ jsonrpc: '2.0', method: 'notifications/message' }),
  reset: call => void call.request.socket.resetAndDestroy(),
  'not-http': call => void call.request.socket.end('SSH-2.0-OpenSSH_9.6\r\n'),
  // Well-formed, and meant to hurt.
  deep: call =>
    raw(
      call,
      200,
      { 'content-type': 'application/json' },
      `{"jsonrpc":"2.0","id":${String(call.message.id)},"result":{"content":[],"x":${'['.repeat(1_000_000)}${']'.repeat(1_000_000)}}}`,
    ),
  'deep-objects': call =>
    raw(
      call,
      200,
      { 'content-type': 'application/json' },
      `{"jsonrpc":"2.0","id":${String(call.message.id)},"result":{"content":[],"x":${'{"a":'.repeat(200_000)}1${'}'.repeat(200_000)}}}`,
    ),
  proto: call =>
    raw(
      call,
      200,
      { 'content-type': 'application/json' },
      `{"jsonrpc":"2.0","id":${String(call.message.id)},"result":{"content":[],"__proto__":{"polluted":true},"constructor":1}}`,
    ),
  'null-id': call => call.json({ ...answer(call), id: null }),
  'both-result-and-error': call => call.json({ ...answer(call), error: { code: 1, message: 'both' } }),
  'gzip-bomb': call =>
    raw(
      call,
      200,
      { 'content-type': 'application/json', 'content-encoding': 'gzip' },
      gzipSync(Buffer.alloc(64 * 1024 * 1024)),
    ),
  duplicate: call => {
    call.sse(answer(call), answer(call, { content: [{ type: 'text', text: 'second' }] }));
    call.response.end();
  },
  'sse-endless-after': call => {
    call.sse(answer(call));
    pour(call, `data: ${JSON.stringify(answer(call, { content: [] }))}\n\n`);
  },
  'sse-100k-events': call => {
    const event = 'data: {"jsonrpc":"2.0","method":"notifications/message"}\n\n';
    const last = `data: ${JSON.stringify(answer(call))}\n\n`;
    raw(call, 200, { 'content-type': 'text/event-stream' }, event.repeat(100_000) + last);
  },
  'sse-big-event': call => {
    const comment = `: ${'x'.repeat(1_000)}\n`.repeat(5_000);
    const last = `data: ${JSON.stringify(answer(call))}\n\n`;
    raw(call, 200, { 'content-type': 'text/event-stream' }, comment + last);
  },
  'sse-batches': call => {
    call.sse([
      [{ jsonrpc: '2.0', method: 'notifications/message' }],
      { jsonrpc: '2.0', id: 'other', result: {} },
      answer(call),
    ]);
    call.response.end();
  },
  'http-1.0': call => {
    bytes(call, `HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n${JSON.stringify(answer(call))}`);
    call.request.socket.end();
  },
  'http-0.9': call => void call.request.socket.end(JSON.stringify(answer(call))),
  'early-hints': call => {
    bytes(call, 'HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n'.repeat(100));
    call.result(ok);
  },
  upgrade: call =>
    bytes(call, 'HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n'),
  'chunk-extensions': call => {
    const body = JSON.stringify(answer(call));
    const chunk = `${body.length.toString(16)};${'a=b;'.repeat(500)}\r\n${body}\r\n0\r\n\r\n`;
    bytes(call, `${asJson}transfer-encoding: chunked\r\n\r\n${chunk}`);
  },
  'chunk-size-huge': call =>
    bytes(call, `${asJson}transfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n{`),
  'big-trailers': call =>
    bytes(call, `${asJson}transfer-encoding: chunked\r\n\r\n0\r\nx-trailer: ${'x'.repeat(200_000)}\r\n\r\n`),
  'length-too-long': call => {
    bytes(call, `${asJson}content-length: 5000\r\n\r\n${JSON.stringify(answer(call))}`);
    call.request.socket.end();
  },
  'length-too-short': call =>
    bytes(call, `${asJson}content-length: 10\r\n\r\n${JSON.stringify(answer(call))}`),
  'length-twice': call =>
    bytes(call, `${asJson}content-length: 5\r\ncontent-length: 6\r\n\r\n${JSON.stringify(answer(call))}`),
  'length-and-chunked': call =>
    bytes(
      call,
      `${asJson}content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n${JSON.stringify(answer(call))}`,
    ),
  'header-folding': call => bytes(call, `${asJson}x-a: b\r\n\tc\r\n\u{0}: d\r\n\r\n{}`),
  'two-answers': call => {
    const body = JSON.stringify(answer(call));
    bytes(call, `${asJson}content-length: ${body.length}\r\n\r\n${body}`.repeat(2));
  },
  // Without an end.
  drip: call => {
    call.response.writeHead(200, { 'content-type': 'application/json' });
    const timer = setInterval(() => call.response.write(' '), 20);
    call.response.once('close', () => clearInterval(timer));
  },
  'endless-early-hints': call =>
    pourBytes(call, '', 'HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n'.repeat(500)),
  'endless-chunk-extension': call =>
    pourBytes(call, `${asJson}transfer-encoding: chunked\r\n\r\n1;`, 'a'.repeat(64 * 1024)),
  'endless-trailers': call =>
    pourBytes(call, `${asJson}transfer-encoding: chunked\r\n\r\n0\r\n`, 'x-a: b\r\n'.repeat(8 * 1024)),
  'endless-headers': call => pourBytes(call, asJson, 'x-a: b\r\n'.repeat(8 * 1024)),
  // Redirects.
  'redirect-307': call => raw(call, 307, { location: '/ok' }),
  'redirect-308': call => raw(call, 308, { location: `${call.server.origin}/ok` }),
  'redirect-302': call => raw(call, 302, { location: '/ok' }),
  'redirect-loop': call => raw(call, 307, { location: '/redirect-loop' }),
  'redirect-away': call => raw(call, 307, { location: `http://localhost:${call.server.port}/ok` }),
  'redirect-metadata': call => raw(call, 308, { location: 'http://169.254.169.254/latest/meta-data' }),
  'redirect-credentials': call =>
    raw(call, 307, { location: `http://user:pass@127.0.0.1:${call.server.port}/ok` }),
  'redirect-nowhere': call => raw(call, 307, {}),
};
