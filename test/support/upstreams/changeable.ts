import type { RequestListener } from 'node:http';
import { Inbox, listen, readBody } from './http.ts';

/** What it does with a request: speaks MCP, or something else in its place. */
export type Conduct = 'mcp' | 'html' | 'silent' | number;

export interface Changeable extends AsyncDisposable {
  readonly url: string;
  readonly inbox: Inbox;
  /** From now on. A number: that HTTP status and nothing else. */
  conduct: Conduct;
  /** What it lists. */
  tools: readonly object[];
  /** Cuts every connection and refuses new ones, until `resume`. */
  pause(): Promise<void>;
  resume(): Promise<void>;
}

const RESULTS = {
  initialize: {
    protocolVersion: '2025-06-18',
    capabilities: { tools: {} },
    serverInfo: { name: 'changeable', version: '1' },
  },
} as const;

/** A small server of revision 2025-06-18 without sessions, that can be made to fail. */
export async function startChangeable(conduct: Conduct = 'mcp'): Promise<Changeable> {
  const inbox = new Inbox();
  const serve: RequestListener = (request, response) => {
    void readBody(request).then(({ message }) => {
      inbox.add(request, message);
      const { conduct: how } = changeable;
      if (how === 'silent') return;
      if (typeof how === 'number') {
        const challenge = how === 401 ? { 'www-authenticate': 'Bearer' } : {};
        response.writeHead(how, challenge).end();
      } else if (how === 'html') {
        response.writeHead(200, { 'content-type': 'text/html' }).end('<!doctype html><p>Welcome</p>');
      } else if (request.method !== 'POST') response.writeHead(405).end();
      else if (message.id === undefined) response.writeHead(202).end();
      else {
        const results: Record<string, unknown> = { ...RESULTS, 'tools/list': { tools: changeable.tools } };
        const result = results[message.method ?? ''];
        const error = { code: -32601, message: 'Method not found' };
        const answer = { jsonrpc: '2.0', id: message.id, ...(result ? { result } : { error }) };
        response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(answer));
      }
    });
  };
  const listening = await listen(serve);
  const changeable: Changeable = {
    url: `${listening.origin}/mcp`,
    inbox,
    conduct,
    tools: [],
    pause: () => listening.pause(),
    resume: () => listening.resume(),
    [Symbol.asyncDispose]: () => listening[Symbol.asyncDispose](),
  };
  return changeable;
}
