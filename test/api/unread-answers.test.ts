import { once } from 'node:events';
import { createServer, IncomingMessage, ServerResponse } from 'node:http';
import { connect, Socket, type AddressInfo } from 'node:net';
import { describe, expect, it } from 'vitest';
import { defaultMemoryLimits, holdAnswer, MemoryBudget, type MemoryLimits } from '../../src/api/http/body.ts';
import { SwitchboardError } from '../../src/errors.ts';

const ANSWER = 'x'.repeat(8 * 1024 * 1024);

/** A server that answers 8 MiB to the key in the path, and clients of it that read nothing until they are told. */
async function start(limits: MemoryLimits) {
  const answers = new MemoryBudget(limits);
  const closed: Promise<unknown>[] = [];
  const server = createServer((request, response) => {
    closed.push(once(response, 'close'));
    try {
      holdAnswer(answers, response, request.url ?? '', ANSWER);
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

const MIB = 1024 * 1024;

describe('answers that are not read', () => {
  it('are bounded per key; reading them, or going away, makes room', async () => {
    await using server = await start({ maxBytesPerKey: 20 * MIB, maxBytes: 100 * MIB });
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

  it('are bounded for all keys together', async () => {
    await using server = await start({ maxBytesPerKey: 20 * MIB, maxBytes: 20 * MIB });
    const first = await server.ask('/a');
    expect([first.status, (await server.ask('/b')).status, (await server.ask('/c')).status]).toEqual([
      200, 200, 503,
    ]);
    first.socket.destroy();
    await server.closed[0];
    expect((await server.ask('/c')).status).toBe(200);
  });
});

describe('bytes for a response that is already closed', () => {
  it('are not counted, as nothing would release them', async () => {
    const answers = new MemoryBudget({ maxBytesPerKey: 1, maxBytes: 1 });
    const closed = new ServerResponse(new IncomingMessage(new Socket()));
    closed.destroy();
    await once(closed, 'close');
    const room = answers.hold(closed, 'a');
    expect([room(1), room(1)]).toEqual([true, true]);
    const open = answers.hold(new ServerResponse(new IncomingMessage(new Socket())), 'a');
    expect([open(1), open(1)]).toEqual([true, false]);
  });
});

describe('the default budget', () => {
  it.each([
    [4144, 256],
    [2096, 131],
    [512, 32],
    [256, 32],
  ])('follows the heap: of %i MiB, %i MiB', (heap, all) => {
    expect(defaultMemoryLimits(heap * MIB)).toEqual({ maxBytes: all * MIB, maxBytesPerKey: (all * MIB) / 4 });
  });
});
