/**
 * `npm run upstream [-- PORT --require-token | --require-sign-in | --asking]`: a real MCP server on loopback (port 3001 unless given) to try the
 * proxy with, offline. It is server-everything and one more tool, `whoami`, which tells bearer tokens apart without showing
 * them. With --require-token, a request that brings none is answered 401. With
 * --require-sign-in, it takes only tokens of an authorization server of its own, which lets everybody in. With --asking, it is a server of revision
 * 2026-07-28 instead, whose tools ask for input.
 */
import { createHash, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import type { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { startProtectedServer } from '../test/support/authorization/protected.ts';
import { startAuthorizationServer } from '../test/support/authorization/server.ts';
import { startAskingServer } from '../test/support/upstreams/asking.ts';

interface Everything {
  readonly server: McpServer;
  cleanup(sessionId?: string): void;
}

// Its own program would listen on every address and offers no place to add a tool; the package has no types.
const entry = createRequire(import.meta.url).resolve(
  '@modelcontextprotocol/server-everything/dist/server/index.js',
);
const everything = (await import(pathToFileURL(entry).href)) as { createServer(): Everything };

const { values, positionals } = parseArgs({
  options: {
    'require-token': { type: 'boolean', default: false },
    'require-sign-in': { type: 'boolean', default: false },
    asking: { type: 'boolean', default: false },
  },
  allowPositionals: true,
});
const port = positionals[0] ?? '3001';
const sessions = new Map<string, { readonly transport: StreamableHTTPServerTransport; end(): void }>();

const bearerToken = (authorization: string | string[] | undefined) =>
  /^Bearer +(\S+)$/i.exec(String(authorization))?.[1];

async function openSession(): Promise<StreamableHTTPServerTransport> {
  const { server, cleanup } = everything.createServer();
  server.registerTool(
    'whoami',
    { description: 'Says which bearer token came with this call: the start of its SHA-256, or "no token".' },
    ({ requestInfo }) => {
      const token = bearerToken(requestInfo?.headers['authorization']);
      const text =
        token === undefined ? 'no token' : createHash('sha256').update(token).digest('hex').slice(0, 12);
      return { content: [{ type: 'text', text }] };
    },
  );
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: id => void sessions.set(id, { transport, end: () => cleanup(id) }),
    onsessionclosed: id => {
      sessions.get(id)?.end();
      sessions.delete(id);
    },
  });
  await server.connect(transport);
  return transport;
}

async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
  if (request.url !== '/mcp') return refuse(response, 404, 'The MCP endpoint is /mcp');
  if (values['require-token'] && bearerToken(request.headers.authorization) === undefined) {
    response.setHeader('www-authenticate', 'Bearer');
    return refuse(response, 401, 'A bearer token is required');
  }
  const id = request.headers['mcp-session-id'];
  const transport = id === undefined ? await openSession() : sessions.get(String(id))?.transport;
  if (!transport) return refuse(response, 404, 'Session not found');
  return transport.handleRequest(request, response);
}

function refuse(response: ServerResponse, status: number, message: string): void {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify({ jsonrpc: '2.0', error: { code: -32000, message }, id: null }));
}

const untilStopped = () => Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')]);

async function runEverything(): Promise<void> {
  const server = createServer((request, response) => {
    serve(request, response).catch((error: unknown) => {
      console.error('upstream:', error);
      response.destroy();
    });
  });
  await once(server.listen(Number(port), '127.0.0.1'), 'listening');
  const demand = values['require-token'] ? ', refuses requests without a bearer token' : '';
  console.log(`server-everything on http://127.0.0.1:${port}/mcp${demand} (stop with Ctrl-C)`);
  await untilStopped();
  for (const { end } of sessions.values()) end();
  server.close();
  server.closeAllConnections();
}

async function runAsking(): Promise<void> {
  await using asking = await startAskingServer('reject', Number(port));
  console.log(`a server whose tools ask for input on ${asking.url} (stop with Ctrl-C)`);
  await untilStopped();
}

async function runWithSignIn(): Promise<void> {
  await using authorizationServer = await startAuthorizationServer({ asks: true });
  await using server = await startProtectedServer({ authorizationServer, port: Number(port) });
  const { issuer } = authorizationServer;
  console.log(`a server that signs its users in at ${issuer} on ${server.url} (stop with Ctrl-C)`);
  await untilStopped();
}

try {
  if (values.asking) await runAsking();
  else await (values['require-sign-in'] ? runWithSignIn() : runEverything());
} catch (error) {
  console.error(`upstream: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
}
