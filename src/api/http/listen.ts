import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Config } from '../../config/index.ts';

const HTTP_LIMITS = {
  /** Room for a token that is far too long, which is then refused as such. */
  maxHeaderSize: 128 * 1024,
  /** Whoever sends more slowly than this is cut off. */
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
