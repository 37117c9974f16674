import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, statSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { createServer as createHttpServer, type ServerResponse } from 'node:http';
import { connect, createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import {
  closeServer,
  isAnswered,
  listenExclusively,
  SocketInUse,
} from '../../src/platform/server-lifecycle.ts';
import { eventually } from '../support/processes.ts';

const folder = mkdtempSync(path.join(tmpdir(), 'sb-'));
afterAll(() => rm(folder, { recursive: true }));

const close = (server: ReturnType<typeof createServer>) => new Promise(resolve => server.close(resolve));

describe('listenExclusively', () => {
  it('lets one process in and refuses the second', async () => {
    const at = path.join(folder, 'a.sock');
    const first = createServer();
    await listenExclusively(first, at);
    expect(statSync(at).mode & 0o777).toBe(0o600);
    await expect(listenExclusively(createServer(), at)).rejects.toThrow(SocketInUse);
    await close(first);
    const second = createServer();
    await listenExclusively(second, at);
    await close(second);
  });

  it('takes over what a killed process left behind, and only one of many takers gets it', async () => {
    const at = path.join(folder, 'b.sock');
    const script = `require('node:net').createServer().listen(${JSON.stringify(at)}, () => console.log('up'))`;
    const killed = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'inherit'] });
    await once(killed.stdout, 'data');
    killed.kill('SIGKILL');
    await once(killed, 'exit');
    expect(await isAnswered(at)).toBe(false);

    const servers = Array.from({ length: 8 }, () => createServer());
    const outcomes = await Promise.allSettled(servers.map(server => listenExclusively(server, at)));
    const winners = outcomes.filter(outcome => outcome.status === 'fulfilled');
    expect(winners).toHaveLength(1);
    for (const outcome of outcomes)
      if (outcome.status === 'rejected') expect(outcome.reason).toBeInstanceOf(SocketInUse);
    await Promise.all(servers.filter(server => server.listening).map(close));
  });

  it('says so when the path is too long for a socket', async () => {
    await expect(listenExclusively(createServer(), path.join(folder, 'x'.repeat(120)))).rejects.toThrow(
      /too long.*SWITCHBOARD_DATA_DIR/,
    );
  });
});

it('a stopping server responds on connections in use and closes them with that response', async () => {
  const waiting: ServerResponse[] = [];
  const server = createHttpServer((_request, response) => void waiting.push(response));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  let received = '';
  socket.on('data', (chunk: Buffer) => (received += chunk.toString()));
  const ended = once(socket, 'end');
  const send = () => socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');

  send();
  await eventually('the first is under way', () => waiting.length === 1);
  const closed = closeServer(server);
  waiting[0]?.end('first');
  await eventually('it is answered', () => received.includes('first'));
  expect(received).toMatch(/^connection: keep-alive\r$/im);
  received = '';
  send();
  await eventually('the second is under way', () => waiting.length === 2);
  waiting[1]?.end('second');
  await ended;
  expect(received).toMatch(/^connection: close\r$/im);
  expect(received).toContain('second');
  await closed;
});
