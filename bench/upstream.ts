/**
 * A small MCP server as a process of its own, for the measuring scripts: node bench/upstream.ts [PORT]. Prints its origin, then
 * serves one server a path: `/json` and `/sse` (revision 2026-07-28), `/legacy` (2025-11-25 with sessions, SSE answers),
 * `/oldest` (HTTP+SSE, 2024-11-05), `/hang` (never answers a call), `/failing` (answers HTTP 500). The tool `wait` takes `ms`. `GET /state` tells what is open.
 */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';

interface Message {
  readonly id?: number | string;
  readonly method?: string;
  readonly params?: { readonly name?: string; readonly arguments?: { readonly ms?: number } };
}

const RESULTS: Readonly<Record<string, object>> = {
  'server/discover': { supportedVersions: ['2026-07-28'], capabilities: { tools: {} } },
  'tools/call': { content: [{ type: 'text', text: 'ok '.repeat(300) }] },
  'tools/list': {
    tools: ['echo', 'wait'].map(name => ({ name, description: name, inputSchema: { type: 'object' } })),
    ttlMs: 0,
    cacheScope: 'private',
  },
};

const sockets = new Set<Socket>();
const sessions = new Set<string>();
/** Of HTTP+SSE, by session. */
const streams = new Map<string, ServerResponse>();
const seen = { calls: 0, abandoned: 0, sessions: 0 };

async function read(request: IncomingMessage): Promise<Message> {
  let text = '';
  for await (const chunk of request) text += String(chunk);
  return text === '' ? {} : (JSON.parse(text) as Message);
}

function send(response: ServerResponse, message: object, as: 'json' | 'sse', headers = {}, status = 200) {
  const body = JSON.stringify({ jsonrpc: '2.0', ...message });
  response.writeHead(status, {
    'content-type': as === 'json' ? 'application/json' : 'text/event-stream',
    ...headers,
  });
  response.end(as === 'json' ? body : `event: message\ndata: ${body}\n\n`);
}

/** What belongs to the handshake of revision 2025-11-25; says whether it was that. */
function handshake({ id, method }: Message, request: IncomingMessage, response: ServerResponse): boolean {
  const session = String(request.headers['mcp-session-id']);
  if (method === 'server/discover') {
    send(response, { id, error: { code: -32_601, message: 'Method not found' } }, 'json');
  } else if (method === 'initialize') {
    const sessionId = randomUUID();
    sessions.add(sessionId);
    seen.sessions++;
    const serverInfo = { name: 'bench', version: '1' };
    const result = { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo };
    send(response, { id, result }, 'json', { 'mcp-session-id': sessionId });
  } else if (!sessions.has(session)) {
    const error = { code: -32_001, message: 'Session not found' };
    send(response, { id: id ?? null, error }, 'json', {}, 404);
  } else if (request.method === 'DELETE') {
    sessions.delete(session);
    response.writeHead(200).end();
  } else if (id === undefined) response.writeHead(202).end();
  else return false;
  return true;
}

function answer(message: Message, path: string, response: ServerResponse): void {
  const { id, method = '' } = message;
  const isCall = method === 'tools/call';
  if (isCall && path === '/hang') return;
  if (isCall && path === '/failing') {
    response.writeHead(500).end();
    return;
  }
  const result = { resultType: 'complete', ...RESULTS[method] };
  reply(message, () => send(response, { id, result }, path === '/json' ? 'json' : 'sse'));
}

/** Answers at once, or when a call of `wait` says. */
function reply({ method, params }: Message, answerNow: () => void): void {
  if (method === 'tools/call') seen.calls++;
  if (params?.name === 'wait') setTimeout(answerNow, params.arguments?.ms ?? 0);
  else answerNow();
}

/** Revision 2024-11-05: one stream for all answers, messages go to the address it names. */
function openStream(response: ServerResponse): void {
  const session = randomUUID();
  streams.set(session, response);
  seen.sessions++;
  response.once('close', () => streams.delete(session));
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.write(`event: endpoint\ndata: /messages/${session}\n\n`);
}

function answerInStream(message: Message, session: string, response: ServerResponse): void {
  const stream = streams.get(session);
  response.writeHead(stream ? 202 : 404).end();
  const { id, method = '' } = message;
  if (!stream || id === undefined) return;
  const serverInfo = { name: 'bench', version: '1' };
  const result =
    method === 'initialize'
      ? { protocolVersion: '2024-11-05', capabilities: { tools: {} }, serverInfo }
      : RESULTS[method];
  reply(message, () => stream.write(`data: ${JSON.stringify({ jsonrpc: '2.0', id, result })}\n\n`));
}

async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const path = request.url ?? '/';
  if (path === '/state') {
    // Without the connection that asks.
    const state = { ...seen, openSockets: sockets.size - 1, openSessions: sessions.size + streams.size };
    response.writeHead(200, { connection: 'close' }).end(JSON.stringify(state));
    return;
  }
  if (path !== '/oldest') response.once('close', () => void (response.writableFinished || seen.abandoned++));
  if (path === '/oldest') {
    if (request.method === 'GET') openStream(response);
    else response.writeHead(405).end();
    return;
  }
  const message = await read(request);
  if (path.startsWith('/messages/')) answerInStream(message, path.slice('/messages/'.length), response);
  else if (path !== '/legacy' || !handshake(message, request, response)) answer(message, path, response);
}

const server = createServer((request, response) => void serve(request, response).catch(() => {}));
server.on('connection', socket => {
  sockets.add(socket);
  socket.once('close', () => sockets.delete(socket));
});
server.listen(Number(process.argv[2] ?? 0), '127.0.0.1');
await once(server, 'listening');
console.log(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
// Ends with its parent.
process.stdin.resume().once('end', () => {
  server.close();
  server.closeAllConnections();
});
