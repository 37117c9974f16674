import { randomUUID } from 'node:crypto';
import {
  localhostHostValidation,
  localhostOriginValidation,
  toNodeHandler,
} from '@modelcontextprotocol/node';
import {
  createMcpHandler,
  isLegacyRequest,
  WebStandardStreamableHTTPServerTransport,
  type EventStore,
  type JSONRPCMessage,
} from '@modelcontextprotocol/server';
import { listen } from '../support/upstreams/http.ts';
import { buildServer } from './fixture-server.ts';

export interface Fixture extends AsyncDisposable {
  readonly url: string;
  /** The same server as one that knows no revision after 2025-11-25. */
  readonly olderUrl: string;
}

/** What a client is asked to wait before it comes back for a stream that was closed on it. */
const RETRY_MS = 50;

const OLDER_PATH = '/mcp-2025-11-25';

/**
 * The server the conformance suite's server scenarios are written for, with revision 2026-07-28 and sessions of
 * 2025-11-25 on one URL of 127.0.0.1. Run directly it listens until it is ended, and prints its URL.
 */
export async function startFixture(): Promise<Fixture> {
  const modern = createMcpHandler(
    () =>
      buildServer({
        onToolsChanged: () => modern.notify.toolsChanged(),
        onPromptsChanged: () => modern.notify.promptsChanged(),
      }),
    { legacy: 'reject' },
  );
  const sessions = new Sessions();
  const fetch = async (request: Request) =>
    request.url.endsWith(OLDER_PATH) || (await isLegacyRequest(request))
      ? sessions.fetch(request)
      : modern.fetch(request);
  const answer = toNodeHandler({ fetch });
  const [isOurHost, isOurOrigin] = [localhostHostValidation(), localhostOriginValidation()];
  const listening = await listen((request, response) => {
    // @ts-expect-error the SDK's types do not allow for exactOptionalPropertyTypes
    if (isOurHost(request, response) && isOurOrigin(request, response)) void answer(request, response);
  });
  return {
    url: `${listening.origin}/mcp`,
    olderUrl: `${listening.origin}${OLDER_PATH}`,
    async [Symbol.asyncDispose]() {
      await modern.close();
      await sessions.close();
      await listening[Symbol.asyncDispose]();
    },
  };
}

/** The sessions of clients of revision 2025-11-25. */
class Sessions {
  readonly #transports = new Map<string, WebStandardStreamableHTTPServerTransport>();

  async fetch(request: Request): Promise<Response> {
    const id = request.headers.get('mcp-session-id');
    const transport = id === null ? await this.#open() : this.#transports.get(id);
    if (transport) return transport.handleRequest(request);
    const error = { code: -32_001, message: 'Session not found' };
    return Response.json({ jsonrpc: '2.0', id: null, error }, { status: 404 });
  }

  async close(): Promise<void> {
    await Promise.all(Array.from(this.#transports.values(), transport => transport.close()));
  }

  async #open(): Promise<WebStandardStreamableHTTPServerTransport> {
    const transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      onsessioninitialized: id => void this.#transports.set(id, transport),
      onsessionclosed: id => void this.#transports.delete(id),
      eventStore: new Events(),
      retryInterval: RETRY_MS,
    });
    const server = buildServer({
      onToolsChanged: () => server.sendToolListChanged(),
      onPromptsChanged: () => server.sendPromptListChanged(),
    });
    await server.connect(transport);
    return transport;
  }
}

/** The events of one session, for clients that come back with a `Last-Event-ID`. */
class Events implements EventStore {
  readonly #events: { readonly streamId: string; readonly message: JSONRPCMessage }[] = [];

  async storeEvent(streamId: string, message: JSONRPCMessage): Promise<string> {
    return String(this.#events.push({ streamId, message }) - 1);
  }

  async replayEventsAfter(
    lastEventId: string,
    { send }: { send: (eventId: string, message: JSONRPCMessage) => Promise<void> },
  ): Promise<string> {
    const streamId = this.#events[Number(lastEventId)]?.streamId ?? '';
    for (const [index, event] of this.#events.entries()) {
      const isLater = index > Number(lastEventId) && event.streamId === streamId;
      // A stream's first event holds no message: it only tells the client where the stream begins.
      if (isLater && 'jsonrpc' in event.message) await send(String(index), event.message);
    }
    return streamId;
  }
}

if (import.meta.main) console.log((await startFixture()).url);
