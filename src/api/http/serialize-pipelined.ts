import type { RequestListener } from 'node:http';
import type { Socket } from 'node:net';

export interface ConnectionLimits {
  /** How long a client may take nothing of what is ready for it. */
  readonly stallMs: number;
  /** Requests of a connection that wait for the answer to an earlier one. */
  readonly maxWaiting: number;
}

export const CONNECTION_LIMITS: ConnectionLimits = { stallMs: 30_000, maxWaiting: 20 };

/**
 * A connection's requests are worked on one after another: Node hands out all that were sent at once (pipelined, RFC 9112
 * §9.3.2), and would keep the answers until they can be sent in order. A connection with too many, or whose client reads
 * nothing, is cut off. Those on which nothing is to be read, such as silent event streams, are left alone.
 */
export function inTurn(serve: RequestListener, { stallMs, maxWaiting }: ConnectionLimits): RequestListener {
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

/** Sockets restart this time with everything that moves. */
function cutIfUnread(socket: Socket): void {
  if (socket.writableLength > 0) socket.destroy();
}
