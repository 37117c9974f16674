/**
 * A small MCP server of revision 2025-06-18 with sessions, on bare node:http, so that its own cost does not hide what is
 * measured. `/json` and `/sse` differ in how they answer; the tool `echo` answers `size` characters. Prints its origin.
 */
import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

interface Message {
  readonly id?: number | string;
  readonly method: string;
  readonly params?: { readonly arguments?: { readonly size?: number } };
}

const TOOL = {
  name: 'echo',
  description: 'Answers a text of the size that is asked for.',
  inputSchema: { type: 'object', properties: { size: { type: 'integer' }, text: { type: 'string' } } },
};
const sessions = new Set<string>();
const texts = new Map<number, string>();

function textOf(size: number): string {
  const text = texts.get(size) ?? 'x'.repeat(size);
  texts.set(size, text);
  return text;
}

function resultOf({ method, params }: Message): object | undefined {
  switch (method) {
    case 'initialize':
      return {
        protocolVersion: '2025-06-18',
        capabilities: { tools: {} },
        serverInfo: { name: 'bench', version: '1' },
      };
    case 'tools/list':
      return { tools: [TOOL] };
    case 'tools/call':
      return { content: [{ type: 'text', text: textOf(params?.arguments?.size ?? 0) }] };
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
  const outcome = result ? { result } : { error: { code: -32601, message: 'Method not found' } };
  const text = JSON.stringify({ jsonrpc: '2.0', id: message.id, ...outcome });
  if (request.url === '/sse') {
    response.writeHead(200, { ...headers, 'content-type': 'text/event-stream', 'cache-control': 'no-cache' });
    response.end(`event: message\nid: 1\ndata: ${text}\n\n`);
  } else {
    headers['content-length'] = Buffer.byteLength(text);
    response.writeHead(200, { ...headers, 'content-type': 'application/json' });
    response.end(text);
  }
}

const server = createServer((request, response) => {
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
