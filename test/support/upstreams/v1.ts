import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { z } from 'zod';
import { Inbox, listen, readBody } from './http.ts';

export interface V1Options {
  /** Default true: the server gives out session ids and wants them back. */
  readonly sessions?: boolean;
  /** Default false: SSE answers. */
  readonly json?: boolean;
}

export interface V1Server extends AsyncDisposable {
  readonly url: string;
  readonly inbox: Inbox;
  readonly sessionIds: readonly string[];
  /** As a restart does: every session is unknown from now on. */
  forgetSessions(): void;
  /** Resolves once the server side of a `wait` call has been cancelled. */
  readonly cancelled: Promise<void>;
}

/** A server built with SDK v1, which speaks revisions 2024-11-05 to 2025-11-25. Tools: echo, ask (samples), fail, wait. */
export async function startV1Server(options: V1Options = {}): Promise<V1Server> {
  const { sessions = true, json = false } = options;
  const inbox = new Inbox();
  const transports = new Map<string, StreamableHTTPServerTransport>();
  const { promise: cancelled, resolve: onCancelled } = Promise.withResolvers<void>();

  const open = async () => {
    const transport = new StreamableHTTPServerTransport({
      ...(sessions ? { sessionIdGenerator: () => randomUUID() } : {}),
      enableJsonResponse: json,
      onsessioninitialized: id => void transports.set(id, transport),
      onsessionclosed: id => void transports.delete(id),
    });
    await buildServer(onCancelled).connect(transport);
    return transport;
  };

  const serve = async (request: IncomingMessage, response: ServerResponse) => {
    const { text, message } = await readBody(request);
    inbox.add(request, message);
    const id = request.headers['mcp-session-id'];
    const known = typeof id === 'string' ? transports.get(id) : undefined;
    if (typeof id === 'string' && !known) {
      response.writeHead(404, { 'content-type': 'application/json' });
      response.end('{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}');
      return;
    }
    const transport = known ?? (await open());
    await transport.handleRequest(request, response, text === '' ? undefined : JSON.parse(text));
  };

  return startListening({ path: '/mcp', inbox, transports, cancelled, serve });
}

/** The same server over HTTP+SSE (2024-11-05), as SDK v1's own examples wire it: a session it does not know is 400. */
export async function startV1SseServer(): Promise<V1Server> {
  const inbox = new Inbox();
  const transports = new Map<string, SSEServerTransport>();
  const { promise: cancelled, resolve: onCancelled } = Promise.withResolvers<void>();
  const serve = async (request: IncomingMessage, response: ServerResponse) => {
    const url = new URL(request.url ?? '/', 'http://x');
    const { message } = await readBody(request);
    inbox.add(request, message, url.pathname);
    if (request.method === 'GET') {
      const transport = new SSEServerTransport('/messages', response);
      transports.set(transport.sessionId, transport);
      response.once('close', () => transports.delete(transport.sessionId));
      await buildServer(onCancelled).connect(transport);
      return;
    }
    const transport = transports.get(url.searchParams.get('sessionId') ?? '');
    if (url.pathname !== '/messages') response.writeHead(404).end();
    else if (!transport) response.writeHead(400).end('No transport found for sessionId');
    else await transport.handlePostMessage(request, response, message);
  };
  return startListening({ path: '/sse', inbox, transports, cancelled, serve });
}

interface Parts extends Pick<V1Server, 'inbox' | 'cancelled'> {
  readonly path: string;
  readonly transports: Map<string, unknown>;
  readonly serve: (request: IncomingMessage, response: ServerResponse) => Promise<void>;
}

async function startListening({ path, inbox, transports, cancelled, serve }: Parts): Promise<V1Server> {
  const listening = await listen((request, response) => void serve(request, response));
  return {
    url: `${listening.origin}${path}`,
    inbox,
    get sessionIds() {
      return [...transports.keys()];
    },
    forgetSessions: () => transports.clear(),
    cancelled,
    [Symbol.asyncDispose]: () => listening[Symbol.asyncDispose](),
  };
}

function buildServer(onCancelled: () => void): McpServer {
  const server = new McpServer({ name: 'v1', version: '1.0.0' });
  const text = (value: string) => ({ content: [{ type: 'text' as const, text: value }] });
  server.registerTool(
    'echo',
    { description: 'Echoes', inputSchema: { message: z.string() } },
    ({ message }) => text(`Echo: ${message}`),
  );
  server.registerTool('ask', { description: 'Asks the client for a sample' }, async extra => {
    const params = { messages: [], maxTokens: 5 };
    const answer = await extra.sendRequest({ method: 'sampling/createMessage', params }, z.any()).then(
      () => 'sampled',
      (error: { code: number }) => `refused ${error.code}`,
    );
    return text(answer);
  });
  server.registerTool('fail', {}, () => {
    throw new Error('on purpose');
  });
  server.registerTool(
    'wait',
    {},
    extra =>
      new Promise((_resolve, reject) => {
        extra.signal.addEventListener('abort', () => {
          onCancelled();
          reject(new Error('cancelled'));
        });
      }),
  );
  return server;
}
