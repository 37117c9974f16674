import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { hostileModes } from './hostile-modes.ts';
import { Inbox, listen, readBody, type Message } from './http.ts';

/** One call to a hostile server, and the means to answer it badly. */
export interface HostileCall {
  readonly message: Message;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** Answers with JSON. */
  readonly json: (body: unknown, status?: number, headers?: Record<string, string>) => void;
  /** Answers the call properly. */
  readonly result: (result?: unknown) => void;
  /** Writes SSE events and leaves the stream open. */
  readonly sse: (...data: unknown[]) => void;
  readonly server: Hostile;
}

export type HostileMode = (call: HostileCall) => void;

export interface HostileOptions {
  /** What `server/discover` and `initialize` are answered as. Default legacy. */
  readonly era?: 'legacy' | 'modern';
  /** Whether a legacy server gives out session ids. Default true. */
  readonly sessions?: boolean;
  /** Further modes, or others of the same names. A mode named like a method (`initialize`) takes that method over. */
  readonly modes?: Readonly<Record<string, HostileMode>>;
}

export interface Hostile extends AsyncDisposable {
  /** The URL at which every call is treated in this mode. */
  url(mode: string): string;
  readonly origin: string;
  readonly port: number;
  readonly server: Server;
  readonly inbox: Inbox;
  /** Sessions the server knows; clearing it is what a restart does. */
  readonly sessionIds: Set<string>;
  /** May be changed on the way: the server is replaced by one of another revision. */
  era: 'legacy' | 'modern';
  cutConnections(): Promise<void>;
  /** Cuts every connection and refuses new ones, until `resume`. */
  pause(): Promise<void>;
  resume(): Promise<void>;
}

/** A server that speaks the handshake properly and misbehaves in what comes after it, in the way its URL's path names. */
export async function startHostile(options: HostileOptions = {}): Promise<Hostile> {
  const inbox = new Inbox();
  const modes: Readonly<Record<string, HostileMode>> = { ...hostileModes, ...options.modes };
  const serve = async (request: IncomingMessage, response: ServerResponse) => {
    const { message } = await readBody(request);
    const path = new URL(request.url ?? '/', 'http://x').pathname.slice(1);
    inbox.add(request, message, path);
    const call = makeCall(hostile, message, request, response);
    if (!response.destroyed) answer(call, path);
  };
  const answer = (call: HostileCall, path: string) => {
    const { method = '' } = call.message;
    const special = options.modes?.[method] ?? options.modes?.[call.request.method ?? ''];
    if (special) special(call);
    else if (
      !(hostile.era === 'modern' ? modernHandshake : legacyHandshake)(call, options.sessions ?? true)
    ) {
      (modes[path] ?? fallback)(call);
    }
  };
  const listening = await listen((request, response) => void serve(request, response));
  const hostile: Hostile = {
    url: mode => `${listening.origin}/${mode}`,
    origin: listening.origin,
    port: listening.port,
    server: listening.server,
    inbox,
    sessionIds: new Set(),
    era: options.era ?? 'legacy',
    cutConnections: () => listening.cutConnections(),
    pause: () => listening.pause(),
    resume: () => listening.resume(),
    [Symbol.asyncDispose]: () => listening[Symbol.asyncDispose](),
  };
  return hostile;
}

const fallback: HostileMode = call => call.result({ content: [{ type: 'text', text: 'ok' }] });

function makeCall(
  server: Hostile,
  message: Message,
  request: IncomingMessage,
  response: ServerResponse,
): HostileCall {
  const json: HostileCall['json'] = (body, status = 200, headers = {}) => {
    response.writeHead(status, { 'content-type': 'application/json', ...headers });
    response.end(JSON.stringify(body));
  };
  const result = (value: unknown = {}) => {
    const stamped =
      server.era === 'modern' && typeof value === 'object' ? { resultType: 'complete', ...value } : value;
    json({ jsonrpc: '2.0', id: message.id, result: stamped });
  };
  const sse = (...data: unknown[]) => {
    if (!response.headersSent) response.writeHead(200, { 'content-type': 'text/event-stream' });
    for (const each of data) response.write(`data: ${JSON.stringify(each)}\n\n`);
  };
  return { message, request, response, json, result, sse, server };
}

const noMethod = ({ message, json }: HostileCall, status: number) =>
  json({ jsonrpc: '2.0', id: message.id, error: { code: -32_601, message: 'Method not found' } }, status);

/** Answers what belongs to the handshake of revision 2026-07-28; says whether it did. */
function modernHandshake(call: HostileCall): boolean {
  const { message } = call;
  const version = call.request.headers['mcp-protocol-version'];
  if (version !== '2026-07-28' && message.method !== undefined) {
    const error = {
      code: -32_022,
      message: 'Unsupported protocol version',
      data: { supported: ['2026-07-28'] },
    };
    call.json({ jsonrpc: '2.0', id: message.id, error }, 400);
  } else if (message.method === 'server/discover') {
    call.result({
      supportedVersions: ['2026-07-28'],
      capabilities: { tools: {} },
      ttlMs: 0,
      cacheScope: 'public',
    });
  } else if (message.method === undefined) noMethod(call, 404);
  else return false;
  return true;
}

/** The same for revisions 2025-xx. */
function legacyHandshake(call: HostileCall, sessions: boolean): boolean {
  const { message, request, response, server } = call;
  if (message.method === 'server/discover') noMethod(call, 200);
  else if (message.method === 'initialize') initialize(call, sessions);
  else if (sessions && !server.sessionIds.has(String(request.headers['mcp-session-id']))) {
    call.json({ jsonrpc: '2.0', id: null, error: { code: -32_001, message: 'Session not found' } }, 404);
  } else if (request.method === 'DELETE') {
    server.sessionIds.delete(String(request.headers['mcp-session-id']));
    response.writeHead(200).end();
  } else if (message.id === undefined || message.method === undefined) response.writeHead(202).end();
  else return false;
  return true;
}

let sessionCount = 0;

function initialize({ message, json, server }: HostileCall, sessions: boolean): void {
  const sessionId = `session-${++sessionCount}`;
  if (sessions) server.sessionIds.add(sessionId);
  const serverInfo = { name: 'hostile', version: '1' };
  json(
    {
      jsonrpc: '2.0',
      id: message.id,
      result: { protocolVersion: '2025-06-18', capabilities: {}, serverInfo },
    },
    200,
    sessions ? { 'mcp-session-id': sessionId } : {},
  );
}
