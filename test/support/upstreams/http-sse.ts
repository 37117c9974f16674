import type { IncomingMessage, ServerResponse } from 'node:http';
import { Inbox, listen, readBody, type Message } from './http.ts';

/** One message to a server of revision 2024-11-05, and the means to answer it, well or badly. */
interface HttpSseCall {
  readonly message: Message;
  readonly request: IncomingMessage;
  /** Of the POST. */
  readonly response: ServerResponse;
  readonly session: HttpSseSession;
  /** Takes the message: HTTP 202. */
  readonly accept: () => void;
  /** Takes the message and answers it in the stream. */
  readonly result: (result?: unknown) => void;
}

export interface HttpSseSession {
  readonly id: string;
  /** Of the GET. */
  readonly response: ServerResponse;
  /** Writes a message into the stream. */
  readonly send: (message: unknown) => void;
  /** Writes whatever it is given into the stream. */
  readonly raw: (text: string) => void;
}

export type HttpSseMode = (call: HttpSseCall) => void;

export interface HttpSseOptions {
  /** What becomes of a method (`tools/call`, `initialize`, …); the rest is answered properly. */
  readonly modes?: Readonly<Record<string, HttpSseMode>>;
  /** What a GET is answered with instead of a stream with an endpoint event. */
  readonly onGet?: (session: HttpSseSession, request: IncomingMessage) => void;
  /** What a POST to the URL of the stream is answered with. Default 405. */
  readonly onPost?: (call: HttpSseCall) => void;
}

export interface HttpSse extends AsyncDisposable {
  /** The URL of the stream. */
  readonly url: string;
  readonly port: number;
  readonly inbox: Inbox;
  /** Sessions with an open stream, in the order in which they were opened. */
  readonly sessions: readonly HttpSseSession[];
  /** As a restart behind a load balancer does: messages to the sessions there are get 404, their streams stay. */
  forgetSessions(): void;
  /** Cuts every connection and refuses new ones, until `resume`. */
  pause(): Promise<void>;
  resume(): Promise<void>;
  /** Resolves once no stream is open. */
  allClosed(): Promise<void>;
}

const OK = { content: [{ type: 'text', text: 'ok' }] };

/** A server of revision 2024-11-05 (HTTP+SSE) that misbehaves where it is told to. */
export async function startHttpSse(options: HttpSseOptions = {}): Promise<HttpSse> {
  const inbox = new Inbox();
  const sessions = new Map<string, HttpSseSession>();
  const forgotten = new Set<string>();
  const waiting = new Set<() => void>();
  let opened = 0;

  const openStream = (request: IncomingMessage, response: ServerResponse) => {
    const id = String(++opened);
    const raw = (text: string) => {
      if (!response.headersSent) response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(text);
    };
    const send = (message: unknown) => raw(`event: message\ndata: ${JSON.stringify(message)}\n\n`);
    const session = { id, response, send, raw };
    sessions.set(id, session);
    response.once('close', () => {
      sessions.delete(id);
      for (const check of waiting) check();
    });
    if (options.onGet) options.onGet(session, request);
    else raw(`event: endpoint\ndata: /messages?session=${id}\n\n`);
  };

  const handshake = (call: HttpSseCall) => {
    if (call.message.method === 'initialize')
      call.result({
        protocolVersion: '2024-11-05',
        capabilities: {},
        serverInfo: { name: 's', version: '1' },
      });
    else if (call.message.id === undefined || call.message.method === undefined) call.accept();
    else call.result(OK);
  };

  const refusePost = options.onPost ?? (({ response }: HttpSseCall) => void response.writeHead(405).end());

  const serve = async (request: IncomingMessage, response: ServerResponse) => {
    const url = new URL(request.url ?? '/', 'http://x');
    const { message } = await readBody(request);
    const { method = '' } = request;
    inbox.add(request, message, url.pathname);
    const session = sessions.get(url.searchParams.get('session') ?? '');
    if (method === 'GET') openStream(request, response);
    else if (url.pathname === '/sse') refusePost(makeCall(message, request, response));
    else if (!session || forgotten.has(session.id)) response.writeHead(404).end('Session not found');
    else {
      const call = makeCall(message, request, response, session);
      (options.modes?.[message.method ?? 'reply'] ?? handshake)(call);
    }
  };
  const listening = await listen((request, response) => void serve(request, response));
  return {
    url: `${listening.origin}/sse`,
    port: listening.port,
    inbox,
    get sessions() {
      return [...sessions.values()];
    },
    forgetSessions: () => {
      for (const id of sessions.keys()) forgotten.add(id);
    },
    pause: () => listening.pause(),
    resume: () => listening.resume(),
    async allClosed() {
      while (sessions.size > 0) {
        const { promise, resolve } = Promise.withResolvers<void>();
        waiting.add(resolve);
        await promise;
        waiting.delete(resolve);
      }
    },
    [Symbol.asyncDispose]: () => listening[Symbol.asyncDispose](),
  };
}

const NO_SESSION: HttpSseSession = {
  id: '',
  get response(): never {
    throw new Error('there is no stream');
  },
  send: () => {
    throw new Error('there is no stream');
  },
  raw: () => {
    throw new Error('there is no stream');
  },
};

function makeCall(
  message: Message,
  request: IncomingMessage,
  response: ServerResponse,
  session = NO_SESSION,
): HttpSseCall {
  const accept = () => void response.writeHead(202).end('Accepted');
  const result = (value: unknown = OK) => {
    accept();
    session.send({ jsonrpc: '2.0', id: message.id, result: value });
  };
  return { message, request, response, session, accept, result };
}
