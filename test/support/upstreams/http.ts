import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type RequestListener,
  type Server,
} from 'node:http';
import type { Socket } from 'node:net';

/** A JSON-RPC message as a test looks at it. */
export interface Message {
  readonly id?: string | number | null;
  readonly method?: string;
  readonly params?: any;
  readonly result?: any;
  readonly error?: any;
}

/** One HTTP request an upstream has received. */
export interface Received {
  readonly httpMethod: string;
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly message: Message;
}

/** What an upstream has received, in order; tests wait for a request here instead of sleeping. */
export class Inbox {
  readonly all: Received[] = [];
  readonly #waiting = new Set<() => void>();

  add(request: IncomingMessage, message: Message, path = request.url ?? ''): void {
    this.all.push({ httpMethod: request.method ?? '', path, headers: request.headers, message });
    for (const check of this.#waiting) check();
  }

  /** Requests with this JSON-RPC method (or HTTP method, for DELETE). */
  of(method: string): Received[] {
    return this.all.filter(({ message, httpMethod }) => message.method === method || httpMethod === method);
  }

  /** Of each request, in order, what `of` finds it by. */
  methods(): string[] {
    return this.all.map(({ message, httpMethod }) => message.method ?? httpMethod);
  }

  count(method: string): number {
    return this.of(method).length;
  }

  /** The first request that matches, now or when it comes. */
  async first(matches: (received: Received) => boolean): Promise<Received> {
    for (;;) {
      const found = this.all.find(matches);
      if (found) return found;
      await new Promise<void>(resolve => {
        const check = () => {
          this.#waiting.delete(check);
          resolve();
        };
        this.#waiting.add(check);
      });
    }
  }

  firstOf(method: string): Promise<Received> {
    return this.first(({ message, httpMethod }) => message.method === method || httpMethod === method);
  }
}

export interface Listening extends AsyncDisposable {
  readonly server: Server;
  readonly port: number;
  /** Without a trailing slash. */
  readonly origin: string;
  /** Cuts every open connection, and resolves once that is done; the server goes on listening. */
  cutConnections(): Promise<void>;
  /** Cuts every connection and refuses new ones, until `resume`. */
  pause(): Promise<void>;
  /** Listens again on the same port. */
  resume(): Promise<void>;
}

/** Ports that a server of this process has had. What remembers the address of one must not find another there. */
const used = new Set<number>();

async function listenOn(server: Server, wantedPort: number): Promise<number> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(wantedPort, '127.0.0.1', resolve);
  });
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('not listening on a port');
  const { port } = address;
  if (wantedPort !== 0 || !used.has(port)) {
    used.add(port);
    return port;
  }
  await new Promise(resolve => server.close(resolve));
  return listenOn(server, 0);
}

/** An HTTP server on 127.0.0.1, on a free port unless one is given; disposing it cuts its connections. */
export async function listen(handler: RequestListener, wantedPort = 0): Promise<Listening> {
  const server = createServer(handler);
  const sockets = new Set<Socket>();
  server.on('connection', socket => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  const port = await listenOn(server, wantedPort);
  const cutConnections = async () => {
    await Promise.all(
      Array.from(sockets, socket => new Promise(resolve => socket.once('close', resolve).destroy())),
    );
  };
  const pause = async () => {
    const closed = new Promise(resolve => server.close(resolve));
    await cutConnections();
    await closed;
  };
  return {
    server,
    port,
    origin: `http://127.0.0.1:${port}`,
    cutConnections,
    pause,
    resume: () =>
      new Promise((resolve, reject) => {
        server.once('error', reject);
        server.listen(port, '127.0.0.1', resolve);
      }),
    [Symbol.asyncDispose]: pause,
  };
}

/** A port of 127.0.0.1 where nobody listens. */
export async function refusedPort(): Promise<number> {
  await using listening = await listen(() => {});
  return listening.port;
}

export async function readBytes(request: AsyncIterable<Buffer>): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** The body of a request, and the message in it where it holds one. */
export async function readBody(request: AsyncIterable<Buffer>): Promise<{ text: string; message: Message }> {
  const text = (await readBytes(request)).toString();
  try {
    const message: Message = text === '' ? {} : JSON.parse(text);
    return { text, message };
  } catch {
    return { text, message: {} };
  }
}
