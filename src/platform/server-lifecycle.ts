import { createServer, type RequestListener, type Server } from 'node:http';
import { chmod, open, rm, stat, type FileHandle } from 'node:fs/promises';
import { connect, type Server as NetServer } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

/** Another process is listening on the socket. */
export class SocketInUse extends Error {
  override readonly name = 'SocketInUse';
}

/** sun_path has 108 bytes on Linux and 104 on macOS, including the NUL. */
const MAX_PATH_BYTES = 103;
const TAKEOVER_TIMEOUT_MS = 10_000;

/**
 * Makes `server` listen on a Unix socket that doubles as a lock. The kernel closes it however the process ends, so a socket
 * file without a listener is a leftover of a killed process and is taken over. Only its owner can connect.
 * @throws SocketInUse if another process listens there
 */
export async function listenExclusively(server: NetServer, path: string): Promise<void> {
  if (Buffer.byteLength(path) > MAX_PATH_BYTES) {
    throw new Error(
      `${path} is too long for a Unix socket (${MAX_PATH_BYTES} bytes at most). Use a shorter SWITCHBOARD_DATA_DIR.`,
    );
  }
  if (await tryListen(server, path)) return chmod(path, 0o600);
  if (await isAnswered(path)) throw new SocketInUse(path);
  await using _takeover = await takeoverLock(`${path}.takeover`);
  // The previous holder of the takeover lock may have taken the socket.
  if (await isAnswered(path)) throw new SocketInUse(path);
  await rm(path, { force: true });
  if (!(await tryListen(server, path))) throw new SocketInUse(path);
  await chmod(path, 0o600);
}

async function tryListen(server: NetServer, path: string): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const onError = (error: NodeJS.ErrnoException) => {
      if (error.code === 'EADDRINUSE') resolve(false);
      else reject(error);
    };
    server.once('error', onError);
    // Exclusive: a process of a cluster would otherwise get its listener from the primary, which would keep it open.
    server.listen({ path, exclusive: true }, () => {
      server.off('error', onError);
      resolve(true);
    });
  });
}

/** Error codes of a path without a listener, or one that does not exist. */
const NOBODY: ReadonlySet<string> = new Set(['ECONNREFUSED', 'ENOENT', 'ENOTDIR']);

/** Resolves to whether a process accepts connections at the path. */
export function isAnswered(path: string): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const socket = connect(path, () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', (error: NodeJS.ErrnoException) => {
      if (NOBODY.has(error.code ?? '')) resolve(false);
      else if (error.code === 'EAGAIN') resolve(true);
      else reject(error);
    });
  });
}

/** Lets one process take over at a time. An old lock file was left by a kill during the few milliseconds it is held. */
async function takeoverLock(path: string): Promise<AsyncDisposable> {
  const deadline = Date.now() + 2 * TAKEOVER_TIMEOUT_MS;
  while (Date.now() < deadline) {
    const file = await createNew(path);
    if (file) {
      await file.close();
      return { [Symbol.asyncDispose]: () => rm(path, { force: true }) };
    }
    const age =
      Date.now() -
      (await stat(path).then(
        one => one.mtimeMs,
        () => Date.now(),
      ));
    if (age > TAKEOVER_TIMEOUT_MS) await rm(path, { force: true });
    else await delay(20);
  }
  throw new Error(`${path} is locked by another process. If none is running, delete the file.`);
}

async function createNew(path: string): Promise<FileHandle | undefined> {
  try {
    return await open(path, 'wx', 0o600);
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EEXIST') return undefined;
    throw error;
  }
}

/** A server whose requests wait until `serve` gives it a listener. */
export interface DeferredServer {
  readonly server: Server;
  serve(listener: RequestListener): void;
}

/** Creates a server that can listen, and so hold its socket, before there is anything to serve. */
export function deferredServer(): DeferredServer {
  let serve: (listener: RequestListener) => void = () => {};
  const listener = new Promise<RequestListener>(resolve => (serve = resolve));
  const server = createServer((request, response) => void listener.then(listen => listen(request, response)));
  return { server, serve };
}

/** How long running requests may take before they are cut off. */
const DRAIN_MS = 10_000;

/** Accepts no new connections, lets running requests end, then cuts off the rest. */
export async function closeServer(server: Server): Promise<void> {
  if (!server.listening) return;
  // Otherwise a client that keeps its connection busy would be served until it is cut off in the middle of a call.
  server.prependListener('request', (_request, response) => (response.shouldKeepAlive = false));
  const cutOff = setTimeout(() => server.closeAllConnections(), DRAIN_MS);
  await new Promise<void>(resolve => {
    server.close(() => resolve());
    server.closeIdleConnections();
  });
  clearTimeout(cutOff);
}
