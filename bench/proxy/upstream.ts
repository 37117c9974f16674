/**
 * A small MCP server of revision 2025-06-18 with sessions, on bare node:http, so that its own cost does not hide what is
 * measured. `/json` and `/sse` differ in how they answer; the tool `echo` answers `size` characters of text, or of an array of
 * small objects. `GET /streams` opens an event stream; `/event` sends an event to all of them, `?to=one` to a random one, `?to=none` to none. Prints its origin.
 */
import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

interface Message {
  readonly id?: number | string;
  readonly method: string;
  readonly params?: { readonly arguments?: { readonly size?: number; readonly shape?: 'text' | 'objects' } };
}

const TOOL = {
  name: 'echo',
  description: 'Answers a text of the size that is asked for.',
  inputSchema: { type: 'object', properties: { size: { type: 'integer' }, text: { type: 'string' } } },
};
const sessions = new Set<string>();
/** The length of an object of the shape `objects`, or a little more. */
const ROW_CHARS = 76;
/** Results as JSON, by shape and size. */
const results = new Map<string, string>();

function callResult(shape: 'text' | 'objects', size: number): string {
  const key = `${shape} ${size}`;
  const known = results.get(key);
  if (known !== undefined) return known;
  const rows = (count: number) =>
    Array.from({ length: count }, (_, id) => ({
      id,
      name: `row ${id}`,
      ok: true,
      tags: ['a', 'b'],
      price: 1.5,
    }));
  const result = JSON.stringify(
    shape === 'text'
      ? { content: [{ type: 'text', text: 'x'.repeat(size) }] }
      : { content: [], structuredContent: { rows: rows(Math.ceil(size / ROW_CHARS)) } },
  );
  results.set(key, result);
  return result;
}

/** Returns the result as JSON. */
function resultOf({ method, params }: Message): string | undefined {
  switch (method) {
    case 'initialize':
      return JSON.stringify({
        protocolVersion: '2025-06-18',
        capabilities: { tools: {} },
        serverInfo: { name: 'bench', version: '1' },
      });
    case 'tools/list':
      return JSON.stringify({ tools: [TOOL] });
    case 'tools/call':
      return callResult(params?.arguments?.shape ?? 'text', params?.arguments?.size ?? 0);
  }
  return undefined;
}

function answer(request: IncomingMessage, response: ServerResponse, body: Buffer): void {
  const message = JSON.parse(body.toString()) as Message;
  const headers: Record<string, string | number> = {};
  if (message.method === 'initialize') {
    const id = randomUUID();
    sessions.add(id);
    headers['mcp-session-id'] = id;
  } else if (!sessions.has(String(request.headers['mcp-session-id']))) {
    const status = request.headers['mcp-session-id'] === undefined ? 400 : 404;
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end('{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no session"}}');
    return;
  }
  if (message.id === undefined) {
    response.writeHead(202, { 'content-length': 0 }).end();
    return;
  }
  const result = resultOf(message);
  const outcome =
    result === undefined ? '"error":{"code":-32601,"message":"Method not found"}' : `"result":${result}`;
  const text = `{"jsonrpc":"2.0","id":${JSON.stringify(message.id)},${outcome}}`;
  if (request.url === '/sse') {
    response.writeHead(200, { ...headers, 'content-type': 'text/event-stream', 'cache-control': 'no-cache' });
    response.end(`event: message\nid: 1\ndata: ${text}\n\n`);
  } else {
    headers['content-length'] = Buffer.byteLength(text);
    response.writeHead(200, { ...headers, 'content-type': 'application/json' });
    response.end(text);
  }
}

const streams = new Set<ServerResponse>();

function openStream(response: ServerResponse): void {
  streams.add(response);
  response.once('close', () => streams.delete(response));
  response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
}

/** Sends one event to all streams, to one of them that is chosen at random, or to none. Responds with their number. */
function sendEvent(to: string | null, response: ServerResponse): void {
  const all = [...streams];
  const one = all[Math.floor(Math.random() * all.length)];
  const event = `data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n`;
  const receivers = to === 'one' && one ? [one] : all;
  if (to !== 'none') for (const stream of receivers) stream.write(event);
  response.end(String(all.length));
}

const server = createServer((request, response) => {
  const { pathname, searchParams } = new URL(request.url ?? '/', 'http://upstream');
  if (pathname === '/event') {
    sendEvent(searchParams.get('to'), response);
    return;
  }
  if (request.method === 'GET' && pathname === '/streams') {
    openStream(response);
    return;
  }
  if (request.method !== 'POST') {
    response.writeHead(request.method === 'DELETE' ? 200 : 405, { 'content-length': 0 }).end();
    return;
  }
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => answer(request, response, Buffer.concat(chunks)));
});
server.listen(0, '127.0.0.1', () => {
  console.log(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
});
// Ends with its parent.
process.stdin.resume().once('end', () => {
  server.close();
  server.closeAllConnections();
});
