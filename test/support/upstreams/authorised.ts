import { request, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http';
import { pipeline } from 'node:stream';
import { Inbox, listen, readBody, type Message } from './http.ts';
import { startV1Server } from './v1.ts';
import { startV2Server } from './v2.ts';

export interface AuthorisedServer extends AsyncDisposable {
  readonly url: string;
  readonly origin: string;
  /** Every request, also those that were refused. */
  readonly inbox: Inbox;
  /** What came as Authorization, each value once, in the order of their first coming. */
  seen(): (string | undefined)[];
  /** Answers 401 to whatever carries this token, from now on. */
  refuse(authorization: string | undefined): void;
}

/**
 * A real MCP server of either era (SDK v1 with sessions, SDK v2), with a resource server's check in front: it remembers every
 * Authorization it gets, and refuses those it is told to, and whatever `admits` does not let in.
 */
export async function startAuthorised(
  era: Era,
  admits: (headers: IncomingHttpHeaders) => boolean = () => true,
): Promise<AuthorisedServer> {
  const refused = new Set<string | undefined>();
  const guarded = await startGuarded(era, ({ headers }, _message, outgoing) => {
    const isRefused = refused.has(headers.authorization) || !admits(headers);
    if (isRefused) outgoing.writeHead(401, { 'www-authenticate': 'Bearer error="invalid_token"' }).end();
    return isRefused;
  });
  return { ...guarded, refuse: authorization => void refused.add(authorization) };
}

export type Era = 'legacy' | 'modern';

export type GuardedServer = Omit<AuthorisedServer, 'refuse'>;

/** Answers a request itself, or returns false to leave it to the server. */
export type Guard = (
  incoming: IncomingMessage,
  message: Message,
  outgoing: ServerResponse,
) => boolean | Promise<boolean>;

/** A real MCP server of either era with `guard` in front of it. */
export async function startGuarded(era: Era, guard: Guard, port?: number): Promise<GuardedServer> {
  const server = era === 'legacy' ? await startV1Server() : await startV2Server();
  const inbox = new Inbox();
  const serve = async (incoming: IncomingMessage, outgoing: ServerResponse) => {
    const { text, message } = await readBody(incoming);
    const { method = '', url = '/', headers } = incoming;
    inbox.add(incoming, message);
    if (await guard(incoming, message, outgoing)) return;
    const target = new URL(url, server.url);
    const onward = request(target, { method, headers, agent: false }, answer => {
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
      pipeline(answer, outgoing, () => {});
    });
    onward.once('error', () => outgoing.destroy());
    outgoing.once('close', () => onward.destroy());
    onward.end(text);
  };
  const listening = await listen((incoming, outgoing) => {
    // A client may hang up at any point.
    serve(incoming, outgoing).catch(() => outgoing.destroy());
  }, port);
  return {
    url: `${listening.origin}/mcp`,
    origin: listening.origin,
    inbox,
    seen: () => [...new Set(inbox.all.map(({ headers }) => headers.authorization))],
    async [Symbol.asyncDispose]() {
      await listening[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
    },
  };
}

/** A catalogue line for a server that acts for users of the provider `local`. */
export const actingForUsers = (id: string, url: string, auth: object = {}) => ({
  id,
  remote_url: url,
  auth: { kind: 'user_oauth', provider: 'local', ...auth },
});
