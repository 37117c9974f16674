import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { closeNow } from './close-now.ts';

const OFFICIAL = 'io.modelcontextprotocol.registry/official';

export interface Listed {
  readonly name: string;
  readonly version?: string;
  readonly description?: string;
  readonly title?: string;
  readonly remotes?: readonly object[];
  readonly status?: 'active' | 'deprecated' | 'deleted';
  readonly statusMessage?: string;
  readonly updatedAt?: string;
  readonly isLatest?: boolean;
  readonly [more: string]: unknown;
}

/** Takes over a request: answers it, or leaves it open for ever. */
export type RegistryFault = (response: ServerResponse, good: () => void, url: URL) => void;

export interface RegistryServer extends AsyncDisposable {
  readonly url: string;
  /** What it lists, in this order; tests change it. Anything that is no `Listed` is served as it is. */
  entries: unknown[];
  fault: RegistryFault | undefined;
  readonly requests: { readonly url: URL; readonly authorization: string | undefined }[];
}

const remoteOf = (name: string) => ({
  type: 'streamable-http',
  url: `https://${name.split('/')[1]?.toLowerCase()}.example/mcp`,
});

export const listed = (name: string, more: Partial<Listed> = {}): Listed => ({
  name,
  remotes: [remoteOf(name)],
  ...more,
});

/** A registry on loopback that speaks the read part of the API v0.1, two entries a page. */
export async function startRegistry(entries: unknown[] = []): Promise<RegistryServer> {
  const answer = (request: IncomingMessage, response: ServerResponse) => {
    const url = new URL(request.url ?? '/', 'http://registry');
    registry.requests.push({ url, authorization: request.headers.authorization });
    const good = () => sendJson(response, 200, pageOf(registry.entries, url.searchParams));
    if (registry.fault) registry.fault(response, good, url);
    else if (url.pathname === '/v0.1/servers') good();
    else sendJson(response, 404, { error: 'not found' });
  };
  const http = createServer(answer);
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
  const registry: RegistryServer = {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}`,
    entries,
    fault: undefined,
    requests: [],
    [Symbol.asyncDispose]: () => closeNow(http),
  };
  return registry;
}

const PAGE_SIZE = 2;

function pageOf(entries: readonly unknown[], query: URLSearchParams) {
  const since = query.get('updated_since');
  const all = entries.map(responseOf).filter((one: any) => {
    const { status, updatedAt } = one?._meta?.[OFFICIAL] ?? {};
    if (since !== null && Date.parse(updatedAt ?? '') < Date.parse(since)) return false;
    return status !== 'deleted' || since !== null || query.get('include_deleted') === 'true';
  });
  const from = Number(query.get('cursor') ?? 0);
  const servers = all.slice(from, from + PAGE_SIZE);
  const next = from + PAGE_SIZE < all.length ? { nextCursor: String(from + PAGE_SIZE) } : {};
  return { servers, metadata: { count: servers.length, ...next } };
}

function responseOf(entry: unknown): unknown {
  if (typeof entry !== 'object' || entry === null || !('name' in entry)) return entry;
  const { status, statusMessage, updatedAt, isLatest, ...server } = entry as Listed;
  return {
    server: { version: '1.0.0', description: `The server ${server.name}.`, ...server },
    _meta: {
      [OFFICIAL]: {
        status: status ?? 'active',
        ...(statusMessage === undefined ? {} : { statusMessage }),
        publishedAt: '2026-01-01T00:00:00Z',
        updatedAt: updatedAt ?? '2026-01-01T00:00:00Z',
        isLatest: isLatest ?? true,
      },
    },
  };
}

export function sendJson(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Record<string, string> = {},
): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers });
  response.end(typeof body === 'string' ? body : JSON.stringify(body));
}
