import { request, type IncomingHttpHeaders, type IncomingMessage } from 'node:http';

export interface RawAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  // Tests look into answers freely.
  readonly json: any;
}

interface RawRequest {
  readonly method?: string;
  readonly headers?: Record<string, string | string[]>;
  readonly body?: string | Buffer;
}

/** Opens a request as it is written here, path and all, and resolves with the head of its answer. The body is left unread. */
export function open(
  origin: string,
  path: string,
  { method = 'GET', headers = {}, body }: RawRequest = {},
): Promise<IncomingMessage> {
  const { hostname, port } = new URL(origin);
  return new Promise((resolve, reject) => {
    const outgoing = request({ hostname, port, path, method, headers, agent: false }, resolve);
    outgoing.once('error', reject);
    outgoing.end(body);
  });
}

/** The same, with the whole body. Rejects when the answer is broken off. */
export async function fetchRaw(origin: string, path: string, options: RawRequest = {}): Promise<RawAnswer> {
  const answer = await open(origin, path, options);
  const chunks: Buffer[] = [];
  for await (const chunk of answer) chunks.push(chunk as Buffer);
  const text = Buffer.concat(chunks).toString();
  const isJson = /json/.test(answer.headers['content-type'] ?? '');
  return {
    status: answer.statusCode ?? 0,
    headers: answer.headers,
    text,
    json: isJson && text !== '' ? JSON.parse(text) : undefined,
  };
}
