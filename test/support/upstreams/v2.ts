import type { IncomingMessage, ServerResponse } from 'node:http';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import { z } from 'zod';
import { Inbox, listen, readBody } from './http.ts';

export interface V2Options {
  /** Default `reject`: only revision 2026-07-28. `stateless` also answers 2025-xx on the same URL. */
  readonly legacy?: 'stateless' | 'reject';
  readonly responseMode?: 'auto' | 'json' | 'sse';
}

export interface V2Server extends AsyncDisposable {
  readonly url: string;
  readonly inbox: Inbox;
  /** Resolves once the server side of a `wait` call has been cancelled. */
  readonly cancelled: Promise<void>;
}

/** A stateless server built with SDK v2 (2026-07-28). Tools: echo, region (mirrors an argument in a header), fail, wait; a prompt grüße. */
export async function startV2Server(options: V2Options = {}): Promise<V2Server> {
  const inbox = new Inbox();
  const { promise: cancelled, resolve: onCancelled } = Promise.withResolvers<void>();
  const { legacy = 'reject', responseMode = 'auto' } = options;
  const handler = createMcpHandler(() => buildServer(onCancelled), { legacy, responseMode });
  const answer = toNodeHandler(handler);
  const serve = async (request: IncomingMessage, response: ServerResponse) => {
    const { text, message } = await readBody(request);
    inbox.add(request, message);
    const parsed = text === '' ? { json: undefined } : parse(text);
    if (!parsed) {
      response.writeHead(400, { 'content-type': 'application/json' });
      response.end('{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error"},"id":null}');
      return;
    }
    // @ts-expect-error the SDK's types do not allow for exactOptionalPropertyTypes
    await answer(request, response, parsed.json);
  };
  const listening = await listen((request, response) => void serve(request, response));
  return {
    url: `${listening.origin}/mcp`,
    inbox,
    cancelled,
    async [Symbol.asyncDispose]() {
      await handler.close();
      await listening[Symbol.asyncDispose]();
    },
  };
}

function parse(text: string): { json: unknown } | undefined {
  try {
    return { json: JSON.parse(text) };
  } catch {
    return undefined;
  }
}

function buildServer(onCancelled: () => void): McpServer {
  const server = new McpServer({ name: 'v2', version: '1.0.0' });
  const text = (value: string) => ({ content: [{ type: 'text' as const, text: value }] });
  server.registerTool(
    'echo',
    { description: 'Echoes', inputSchema: z.object({ message: z.string() }) },
    ({ message }) => text(`Echo: ${message}`),
  );
  server.registerTool(
    'region',
    { inputSchema: z.object({ region: z.string().meta({ 'x-mcp-header': 'Region' }) }) },
    ({ region }) => text(`In ${region}`),
  );
  server.registerPrompt('grüße', {}, () => ({
    messages: [{ role: 'user', content: { type: 'text', text: 'Hallo' } }],
  }));
  server.registerTool('fail', { inputSchema: z.object({}) }, () => {
    throw new Error('on purpose');
  });
  server.registerTool(
    'wait',
    { inputSchema: z.object({}) },
    (_args, context) =>
      new Promise((_resolve, reject) => {
        context.mcpReq.signal.addEventListener('abort', () => {
          onCancelled();
          reject(new Error('cancelled'));
        });
      }),
  );
  return server;
}
