import { once } from 'node:events';
import { createServer } from 'node:http';
import { closeNow } from '../../test/support/close-now.ts';
import { sendJson } from '../../test/support/registry.ts';
import type { RecombinedCatalogue } from './catalogue.ts';

/** A registry is known by its address: another run on the same database must find the same one. */
const PORT = 18_099;
const OFFICIAL = { status: 'active', isLatest: true, updatedAt: '2026-01-01T00:00:00Z' };

interface Registry extends AsyncDisposable {
  readonly url: string;
}

/** Starts a registry on loopback that lists servers of the catalogue, without their tools. It always lists all of them. */
export async function startRegistry(
  catalogue: RecombinedCatalogue,
  from: number,
  count: number,
): Promise<Registry> {
  const http = createServer((request, response) => {
    const { searchParams } = new URL(request.url ?? '/', 'http://registry');
    const start = Number(searchParams.get('cursor') ?? 0);
    const end = Math.min(count, start + Number(searchParams.get('limit') ?? 100));
    const servers = catalogue.servers(from + start, from + end).map(itemOf);
    const next = end < count ? { nextCursor: String(end) } : {};
    sendJson(response, 200, { servers, metadata: { count: servers.length, ...next } });
  });
  http.listen(PORT, '127.0.0.1');
  await once(http, 'listening');
  return { url: `http://127.0.0.1:${PORT}`, [Symbol.asyncDispose]: () => closeNow(http) };
}

function itemOf({ id, name, description, remote_url }: ReturnType<RecombinedCatalogue['server']>) {
  const remotes = [{ type: 'streamable-http', url: remote_url }];
  return {
    server: { name: `com.example/${id}`, title: name, description, version: '1.0.0', remotes },
    _meta: { 'io.modelcontextprotocol.registry/official': OFFICIAL },
  };
}
