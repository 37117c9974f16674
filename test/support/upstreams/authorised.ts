import { request, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http';
import { pipeline } from 'node:stream';
import { Inbox, listen, readBody } from './http.ts';
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
  era: 'legacy' | 'modern',
  admits: (headers: IncomingHttpHeaders) => boolean = () => true,
): Promise<AuthorisedServer> {
  const server = era === 'legacy' ? await startV1Server() : await startV2Server();
  const inbox = new Inbox();
  const refused = new Set<string | undefined>();
  const serve = async (incoming: IncomingMessage, outgoing: ServerResponse) => {
    const { text, message } = await readBody(incoming);
    const { method = '', url = '/', headers } = incoming;
    inbox.add(incoming, message);
    if (refused.has(headers.authorization) || !admits(headers)) {
      outgoing.writeHead(401, { 'www-authenticate': 'Bearer error="invalid_token"' }).end();
      return;
    }
    const target = new URL(url, server.url);
    const onward = request(target, { method, headers, agent: false }, answer => {
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
      pipeline(answer, outgoing, () => {});
    });
    onward.once('error', () => outgoing.destroy());
    outgoing.once('close', () => onward.destroy());
    onward.end(text);
  };
  const listening = await listen((incoming, outgoing) => void serve(incoming, outgoing));
  return {
    url: `${listening.origin}/mcp`,
    origin: listening.origin,
    inbox,
    seen: () => [...new Set(inbox.all.map(({ headers }) => headers.authorization))],
    refuse: authorization => void refused.add(authorization),
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
