import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import type { Config } from '../../config/index.ts';

const HTTP_LIMITS = {
  /** Leaves room for a token that is far too long, so that it is refused as such. */
  maxHeaderSize: 128 * 1024,
  /** Milliseconds within which a client must send its headers, and its whole request. */
  headersTimeout: 10_000,
  requestTimeout: 60_000,
  connectionsCheckingInterval: 2_000,
};

export const createPublicServer = (listener: RequestListener): Server =>
  createServer({ ...HTTP_LIMITS }, listener);

/** The configured address cannot be listened on. The message names the setting to change. */
export class CannotListen extends Error {
  override readonly name = 'CannotListen';
}

/**
 * Starts listening and returns the address the server is reached by.
 * @throws CannotListen
 */
export async function listen(server: Server, { host, port }: Config['http']): Promise<string> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      const { code } = error;
      if (code === 'EADDRINUSE') reject(new CannotListen(`PORT: ${port} is in use on ${host}`));
      else reject(new CannotListen(`HOST: cannot listen on ${host}, port ${port}: ${code ?? error.message}`));
    });
    server.listen(port, host, resolve);
  });
  const { port: bound } = server.address() as AddressInfo;
  return `http://${host.includes(':') ? `[${host}]` : host}:${bound}`;
}

export interface ConnectionLimits {
  /** The longest time, in milliseconds, for which a client may leave everything unread that is ready for it. */
  readonly stallMs: number;
  /** Requests of one connection that wait for the answer to an earlier one. */
  readonly maxWaiting: number;
}

export const CONNECTION_LIMITS: ConnectionLimits = { stallMs: 30_000, maxWaiting: 20 };

/**
 * Works on a connection's requests one after another. Node hands out all that were sent at once (pipelined, RFC 9112 §9.3.2), and
 * would keep the answers until they can be sent in order. Cuts off a connection with too many waiting requests, or whose client reads
 * nothing. Connections on which there is nothing to read, such as silent event streams, are left alone.
 */
export function serializePipelined(
  serve: RequestListener,
  { stallMs, maxWaiting }: ConnectionLimits,
): RequestListener {
  const waiting = new WeakMap<Socket, number>();
  const start: RequestListener = (request, response) => {
    response.setTimeout(stallMs, () => cutIfUnread(request.socket));
    serve(request, response);
  };
  return (request, response) => {
    // The connection is given to one response at a time.
    if (response.socket !== null) return start(request, response);
    const { socket } = request;
    const ahead = waiting.get(socket) ?? 0;
    if (socket.destroyed || ahead >= maxWaiting) {
      socket.destroy();
      return;
    }
    waiting.set(socket, ahead + 1);
    response.once('socket', () => {
      waiting.set(socket, (waiting.get(socket) ?? 1) - 1);
      start(request, response);
    });
  };
}

/** A socket's timer starts again with everything that moves on it. */
function cutIfUnread(socket: Socket): void {
  if (socket.writableLength > 0) socket.destroy();
}
