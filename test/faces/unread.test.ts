import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect, type AddressInfo, type Socket } from 'node:net';
import { describe, expect, it } from 'vitest';
import { UnreadAnswers } from '../../src/faces/rest/unread.ts';
import { SwitchboardError } from '../../src/errors.ts';

const ANSWER = 'x'.repeat(8 * 1024 * 1024);

/** A server that answers 8 MiB to the key in the path, and clients of it that read nothing until they are told. */
async function start(limits: { maxBytesPerKey: number; idleMs: number }) {
  const unread = new UnreadAnswers(limits);
  const closed: Promise<unknown>[] = [];
  const server = createServer((request, response) => {
    closed.push(once(response, 'close'));
    try {
      unread.add(response, request.url ?? '', ANSWER.length);
      response.end(ANSWER);
    } catch (error) {
      response.writeHead(error instanceof SwitchboardError ? error.status : 500).end();
    }
  });
  await new Promise<void>(resolve => void server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const sockets: Socket[] = [];
  /** Asks, reads no more than the first bytes, and resolves with the status. */
  const ask = async (key: string): Promise<{ status: number; socket: Socket }> => {
    const socket = connect(port, '127.0.0.1');
    sockets.push(socket);
    socket.on('error', () => {});
    socket.write(`GET ${key} HTTP/1.1\r\nHost: x\r\n\r\n`);
    const [head] = (await once(socket, 'data')) as [Buffer];
    socket.pause();
    return { status: Number(head.toString('latin1', 9, 12)), socket };
  };
  return {
    ask,
    closed,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      server.closeAllConnections();
      await new Promise(resolve => server.close(resolve));
    },
  };
}

describe('answers that are not read', () => {
  it('are bounded per key; reading them, or going away, makes room', async () => {
    await using server = await start({ maxBytesPerKey: 20 * 1024 * 1024, idleMs: 60_000 });
    const first = await server.ask('/a');
    const second = await server.ask('/a');
    expect([first.status, second.status, (await server.ask('/a')).status]).toEqual([200, 200, 503]);
    expect((await server.ask('/b')).status).toBe(200);
    first.socket.resume();
    await server.closed[0];
    expect((await server.ask('/a')).status).toBe(200);
    second.socket.destroy();
    await server.closed[1];
    expect((await server.ask('/a')).status).toBe(200);
  });

  it('are given up when nothing of them is taken for too long', async () => {
    await using server = await start({ maxBytesPerKey: 20 * 1024 * 1024, idleMs: 50 });
    const { socket } = await server.ask('/a');
    await server.closed[0];
    let bytes = 0;
    socket.on('data', (chunk: Buffer) => (bytes += chunk.length)).resume();
    await once(socket, 'close');
    expect(bytes).toBeLessThan(ANSWER.length);
  });
});
