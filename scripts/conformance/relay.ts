import { once } from 'node:events';
import {
  createServer,
  request,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';

export interface Relay extends AsyncDisposable {
  /** Without a trailing slash. */
  readonly origin: string;
}

interface Sent {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}
/** Turns what the suite sent into what Switchboard is to get. */
type Change = (sent: Sent) => Sent;

/** Stands on loopback in front of Switchboard and adds a header that the suite cannot send: an API key, or a token. */
export async function startRelay(
  target: string,
  credentials: Readonly<Record<string, string>>,
  change: Change = sent => sent,
): Promise<Relay> {
  const { hostname, port } = new URL(target);
  const relay = async (incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> => {
    const { method, url = '/', headers: sent } = incoming;
    const { path, headers, body } = change({ path: url, headers: sent, body: await buffer(incoming) });
    const onward = request(
      { hostname, port, method, path, headers: { ...headers, ...credentials } },
      answer => {
        outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
        outgoing.flushHeaders();
        answer.pipe(outgoing);
      },
    );
    onward.once('error', () => outgoing.destroy());
    outgoing.once('close', () => onward.destroy());
    onward.end(body);
  };
  const server = createServer((incoming, outgoing) => {
    relay(incoming, outgoing).catch(() => outgoing.destroy());
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      const closed = once(server.close(), 'close');
      server.closeAllConnections();
      await closed;
    },
  };
}

const TOOL = 'call_remote_tool';

/**
 * Turns a call of a server's tool into one of `call_remote_tool`, in the body and in headers that repeat the tool's name.
 * `tools/list` goes to `/mcp/{server_id}`, as the suite looks tools up there; everything else stays as it is.
 */
export const callingRemoteTools =
  (serverId: string): Change =>
  sent => {
    const message = parsed(sent.body);
    if (message?.method === 'tools/list') return { ...sent, path: `/mcp/${serverId}` };
    if (message?.method !== 'tools/call' || !message.params) return sent;
    const { name, arguments: args, ...params } = message.params;
    const call = { server_id: serverId, tool_name: name, ...(args === undefined ? {} : { arguments: args }) };
    const body = Buffer.from(
      JSON.stringify({ ...message, params: { ...params, name: TOOL, arguments: call } }),
    );
    const headers = Object.entries({ ...sent.headers, 'content-length': String(body.length) });
    return {
      ...sent,
      headers: Object.fromEntries(headers.map(([header, value]) => [header, value === name ? TOOL : value])),
      body,
    };
  };

function parsed(body: Buffer): any {
  try {
    return JSON.parse(body.toString());
  } catch {
    return undefined;
  }
}
