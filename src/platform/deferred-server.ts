import { createServer, type RequestListener, type Server } from 'node:http';

/** A server that can listen (and so hold the lock) before there is anything to serve. */
export function lateServer(): { server: Server; serve(listener: RequestListener): void } {
  let open: (listener: RequestListener) => void = () => {};
  const listener = new Promise<RequestListener>(resolve => (open = resolve));
  const server = createServer((request, response) => void listener.then(serve => serve(request, response)));
  return { server, serve: open };
}

/** How long requests under way may take to end before they are cut off. */
const DRAIN_MS = 10_000;

/** Takes no new connection, lets what is under way end, then cuts off what is left. */
export async function closeServer(server: Server): Promise<void> {
  if (!server.listening) return;
  // A client that keeps its connection busy goes elsewhere; else it were served until it is cut off, in the midst of a call.
  server.prependListener('request', (_request, response) => (response.shouldKeepAlive = false));
  const cutOff = setTimeout(() => server.closeAllConnections(), DRAIN_MS);
  await new Promise<void>(resolve => {
    server.close(() => resolve());
    server.closeIdleConnections();
  });
  clearTimeout(cutOff);
}
