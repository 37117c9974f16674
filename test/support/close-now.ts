import type { Server } from 'node:http';

/** Closes a server that listens, and cuts every connection, also those of requests that still wait for an answer. */
export async function closeNow(server: Server): Promise<void> {
  const closed = new Promise(resolve => server.close(resolve));
  server.closeAllConnections();
  await closed;
}
