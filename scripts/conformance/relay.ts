import { once } from 'node:events';
import { createServer, request, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface Relay extends AsyncDisposable {
  /** Without a trailing slash. */
  readonly origin: string;
}

/** Stands on loopback in front of Switchboard and adds the API key, which the suite cannot send. */
export async function startRelay(target: string, key: string): Promise<Relay> {
  const { hostname, port } = new URL(target);
  const relay = (incoming: IncomingMessage, outgoing: ServerResponse): void => {
    const { method, url, headers } = incoming;
    const onward = request(
      { hostname, port, method, path: url, headers: { ...headers, 'x-api-key': key } },
      answer => {
        outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
        outgoing.flushHeaders();
        answer.pipe(outgoing);
      },
    );
    onward.once('error', () => outgoing.destroy());
    outgoing.once('close', () => onward.destroy());
    incoming.pipe(onward);
  };
  const server = createServer(relay);
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      const closed = once(server.close(), 'close');
      server.closeAllConnections();
      await closed;
    },
  };
}
