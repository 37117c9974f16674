import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { expect, it } from 'vitest';
import { closeServer } from '../../src/platform/deferred-server.ts';
import { eventually } from '../support/processes.ts';

it('a server that stops answers what comes on a connection in use, and gives the connection up with that answer', async () => {
  const waiting: ServerResponse[] = [];
  const server = createServer((_request, response) => void waiting.push(response));
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
