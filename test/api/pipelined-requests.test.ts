import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { CONNECTION_LIMITS, serializePipelined } from '../../src/api/http/app.ts';
import { startTestSwitchboard } from '../support/switchboard.ts';

/** A server that keeps the responses it is to write, and one client of it. */
async function start(limits: Partial<typeof CONNECTION_LIMITS> = {}) {
  const responses: ServerResponse[] = [];
  const server = createServer(
    serializePipelined((_request, response) => void responses.push(response), {
      ...CONNECTION_LIMITS,
      ...limits,
    }),
  );
  await new Promise<void>(resolve => void server.listen(0, '127.0.0.1', resolve));
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  socket.on('error', () => {});
  let received = '';
  return {
    socket,
    responses,
    received: () => received,
    /** So many requests in one packet, read or not. */
    async send(requests: number, { read = true } = {}) {
      if (read) socket.on('data', (chunk: Buffer) => (received += chunk.toString()));
      socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(requests));
      await once(server, 'request');
      await nextTurn();
    },
    async [Symbol.asyncDispose]() {
      socket.destroy();
      server.closeAllConnections();
      await new Promise(resolve => server.close(resolve));
    },
  };
}

describe('requests that are sent at once on one connection', () => {
  it('are served one after another, and answered in order', async () => {
    await using client = await start();
    await client.send(3);
    for (const at of [0, 1, 2]) {
      await expect.poll(() => client.responses.length).toBe(at + 1);
      client.responses[at]?.end(`answer ${at}.`);
    }
    await expect
      .poll(() => client.received().match(/answer \d/g))
      .toEqual(['answer 0', 'answer 1', 'answer 2']);
  });

  it('close the connection when too many wait', async () => {
    await using client = await start({ maxWaiting: 2 });
    const closed = once(client.socket, 'close');
    await client.send(4);
    await closed;
    expect(client.responses).toHaveLength(1);
  });

  it('may be sent again once some are answered', async () => {
    await using client = await start({ maxWaiting: 2 });
    await client.send(3);
    client.responses[0]?.end();
    await expect.poll(() => client.responses.length).toBe(2);
    client.socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
    for (const at of [1, 2, 3]) {
      await expect.poll(() => client.responses.length).toBe(at + 1);
      client.responses[at]?.end();
    }
  });
});

describe('a client that reads nothing', () => {
  it('is cut off', async () => {
    await using client = await start({ stallMs: 50 });
    await client.send(1, { read: false });
    const [response] = client.responses;
    response?.end(Buffer.alloc(32 * 1024 * 1024));
    if (response) await once(response, 'close');
    expect(response?.writableFinished).toBe(false);
  });

  it('is not cut off while a silent stream has nothing to read', async () => {
    await using client = await start({ stallMs: 50 });
    await client.send(1);
    const [response] = client.responses;
    response?.write('begun,');
    if (response) await once(response, 'timeout');
    response?.end(' and ended.');
    await expect.poll(() => client.received()).toContain(' and ended.');
  });
});

describe('hundreds of requests for documents at once, without a key', () => {
  it('are not all served: the connection closes', async () => {
    await using sb = await startTestSwitchboard();
    const socket = connect(Number(new URL(sb.url).port), '127.0.0.1');
    socket.on('error', () => {}).resume();
    socket.write('GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n'.repeat(1_000));
    await once(socket, 'close');
    expect(sb.logged().match(/"path":"\/openapi.json"/g)?.length ?? 0).toBeLessThan(100);
  });
});
