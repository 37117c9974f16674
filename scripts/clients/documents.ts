import { listen } from '../../test/support/upstreams/http.ts';

const published = (
  id: string,
  client_name: string,
  more: Readonly<Record<string, unknown>> = {},
): [string, object] => [
  id,
  {
    client_id: id,
    client_name,
    redirect_uris: ['http://127.0.0.1/callback', 'http://localhost/callback'],
    grant_types: ['authorization_code', 'refresh_token'],
    response_types: ['code'],
    token_endpoint_auth_method: 'none',
    ...more,
  },
];

/** What clients publish of themselves (OAuth Client ID Metadata Document), by its address. */
const DOCUMENTS: ReadonlyMap<string, object> = new Map([
  published('https://claude.ai/oauth/claude-code-client-metadata', 'Claude Code', {
    client_uri: 'https://claude.ai',
  }),
  published('https://chatgpt.com/oauth/codex/client.json', 'Codex', { client_uri: 'https://chatgpt.com' }),
]);

export interface Documents extends AsyncDisposable {
  /** The environment of a process for which the documents are at their addresses. */
  readonly env: Readonly<Record<string, string>>;
}

/** Serves the documents on 127.0.0.1: this machine may reach no other, and nothing here may depend on one. */
export async function startDocuments(): Promise<Documents> {
  const { origin, ...listening } = await listen((request, response) => {
    const document = DOCUMENTS.get(`https://${request.headers.host}${request.url}`);
    response.writeHead(document ? 200 : 404, { 'content-type': 'application/json' });
    response.end(JSON.stringify(document ?? {}));
  });
  const hosts = [...DOCUMENTS.keys()].map(address => new URL(address).host);
  return {
    env: {
      NODE_OPTIONS: `--import ${new URL('document-hosts.js', import.meta.url).href}`,
      DOCUMENT_HOSTS: JSON.stringify({ hosts, port: Number(new URL(origin).port) }),
    },
    [Symbol.asyncDispose]: listening[Symbol.asyncDispose],
  };
}
