import { Agent, request, type IncomingHttpHeaders, type OutgoingHttpHeaders } from 'node:http';

export type Headers = Readonly<Record<string, string | readonly string[]>>;

export interface FuzzRequest {
  /**
   * `valid`: as the schemas want it. `near`: with one thing wrong in the body or the parameters. `broken`: with a body, a header or a key that
   * is none. `astray`: to a path or by a method that the document does not have.
   */
  readonly family: 'valid' | 'near' | 'broken' | 'astray';
  readonly method: string;
  /** Path and query as they are sent. */
  readonly target: string;
  readonly headers: Headers;
  readonly body?: string | Buffer;
}

/** The request with something else; headers that are not named stay. */
export const altered = (one: FuzzRequest, change: Partial<FuzzRequest>): FuzzRequest => ({
  ...one,
  ...change,
  headers: { ...one.headers, ...change.headers },
});

export interface FuzzAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

/** Sends requests as they are written over connections that are kept; one that was closed while it lay idle is opened again. */
export function sender(origin: string): Disposable & { send(one: FuzzRequest): Promise<FuzzAnswer> } {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const { hostname, port } = new URL(origin);
  const once = ({ method, target, headers, body }: FuzzRequest) =>
    new Promise<FuzzAnswer>((resolve, reject) => {
      // Who has said so sends no more on that connection (RFC 9112 §9.6); Node's agent would.
      const isLast = headers['connection'] === 'close';
      const all: OutgoingHttpHeaders = {
        ...(headers as OutgoingHttpHeaders),
        'content-length': Buffer.byteLength(body ?? ''),
      };
      const outgoing = request(
        { hostname, port, path: target, method, headers: all, agent: isLast ? false : agent },
        incoming => {
          const chunks: Buffer[] = [];
          incoming.on('data', (chunk: Buffer) => chunks.push(chunk));
          incoming.once('error', reject);
          incoming.once('end', () =>
            resolve({
              status: incoming.statusCode ?? 0,
              headers: incoming.headers,
              text: Buffer.concat(chunks).toString(),
            }),
          );
        },
      );
      outgoing.once('error', error => reject(Object.assign(error, { isStale: outgoing.reusedSocket })));
      outgoing.end(body);
    });
  return {
    async send(one) {
      try {
        return await once(one);
      } catch (error) {
        if ((error as { isStale?: boolean }).isStale !== true) throw error;
        return once(one);
      }
    },
    [Symbol.dispose]: () => agent.destroy(),
  };
}
