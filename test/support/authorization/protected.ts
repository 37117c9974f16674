import type { IncomingMessage, ServerResponse } from 'node:http';
import { startGuarded, type Era, type GuardedServer } from '../upstreams/authorised.ts';
import type { Message } from '../upstreams/http.ts';
import type { Allowed } from './grants.ts';
import type { AuthorizationServer } from './server.ts';
import { exchangeOf, json, Wire, type Answer, type Exchange, type Fault } from './wire.ts';

/** How the server differs from one that does everything right. Each can be assigned while it runs. */
interface ProtectedSwitches {
  /** Whose tokens it takes, and which it names unless `metadata` says otherwise. */
  authorizationServer: AuthorizationServer;
  /** Where its metadata are; `hidden`: only the challenge says where. Default `path`. */
  metadataAt: 'path' | 'root' | 'hidden' | 'none';
  /** Members of its metadata in place of the usual ones; undefined leaves one out. */
  metadata: Readonly<Record<string, unknown>>;
  /** `bare`: a 401 without WWW-Authenticate; `several`: among other schemes in one header. Default `full`. */
  challenge: 'full' | 'bare' | 'several';
  /** Which requests need a token. `posts`: GET is answered 405 without one. Default `everything`. */
  guards: 'everything' | 'posts' | 'tools/call';
  /** Scopes that a JSON-RPC method needs, and that its challenge names. */
  scopes: Readonly<Record<string, readonly string[]>>;
  /** Default true: tokens that were issued for another resource are refused. */
  checksResource: boolean;
  /** Answers this to each request with a token, which it is given. */
  refusesTokens: ((token: string) => Answer) | undefined;
  /** Repeats the Authorization header in its refusals. */
  echo: boolean;
  /** Also serves its authorization server's metadata document, as servers did before they had metadata of their own. */
  servesIssuer: boolean;
}

const DEFAULTS: Omit<ProtectedSwitches, 'authorizationServer'> = {
  metadataAt: 'path',
  metadata: {},
  challenge: 'full',
  guards: 'everything',
  scopes: {},
  checksResource: true,
  refusesTokens: undefined,
  echo: false,
  servesIssuer: false,
};

export type ProtectedServerOptions = Pick<ProtectedSwitches, 'authorizationServer'> &
  Partial<ProtectedSwitches> & {
    /** Default `modern`. */
    readonly era?: Era;
    /** Default: any. */
    readonly port?: number;
  };

export interface ProtectedServer extends GuardedServer {
  readonly switches: ProtectedSwitches;
  /** What its metadata document does instead of what it should. */
  readonly faults: { metadata?: Fault };
  /** Bytes of endless documents that were sent. */
  readonly bytesSent: () => number;
  /** The requests for its metadata document. */
  metadataRequests(): Exchange[];
  /** The bearer tokens that came, each once, in the order of their first coming. */
  tokens(): string[];
}

const PRM = '/.well-known/oauth-protected-resource';
const HIDDEN = '/about/this-resource.json';

/** A real MCP server of either era that takes the tokens of an authorization server, and says where to get them. */
export async function startProtectedServer({
  era = 'modern',
  port,
  ...switches
}: ProtectedServerOptions): Promise<ProtectedServer> {
  const guard = new ResourceGuard({ ...DEFAULTS, ...switches });
  const server = await startGuarded(
    era,
    (incoming, message, outgoing) => guard.check(server.origin, incoming, message, outgoing),
    port,
  );
  return {
    ...server,
    switches: guard.switches,
    faults: guard.wire.faults,
    bytesSent: () => guard.wire.bytesSent,
    metadataRequests: () => guard.wire.sent('metadata'),
    tokens: () => server.seen().flatMap(value => tokenIn(value) ?? []),
  };
}

class ResourceGuard {
  readonly switches: ProtectedSwitches;
  readonly wire = new Wire<'metadata'>();

  constructor(switches: ProtectedSwitches) {
    this.switches = switches;
  }

  /** Answers what is not for the MCP server. */
  async check(
    origin: string,
    incoming: IncomingMessage,
    message: Message,
    outgoing: ServerResponse,
  ): Promise<boolean> {
    const { authorizationServer, servesIssuer } = this.switches;
    const path = incoming.url ?? '';
    if (path === this.#metadataPath()) {
      await this.wire.serve('metadata', exchangeOf(incoming, ''), outgoing, () => this.#metadata(origin));
      return true;
    }
    if (servesIssuer && path === '/.well-known/oauth-authorization-server') {
      const at = new URL(path, authorizationServer.issuer);
      const document = await (await fetch(at)).text();
      outgoing.writeHead(200, { 'content-type': 'application/json' }).end(document);
      return true;
    }
    const refusal = path.startsWith('/mcp') ? this.#refusal(origin, incoming, message) : notFound;
    if (refusal) outgoing.writeHead(refusal.status, refusal.headers).end(refusal.body);
    return refusal !== undefined;
  }

  #metadataPath(): string | undefined {
    return { path: `${PRM}/mcp`, root: PRM, hidden: HIDDEN, none: undefined }[this.switches.metadataAt];
  }

  /** What it calls itself, which is what tokens are for. */
  #resource(origin: string): unknown {
    return this.switches.metadata['resource'] ?? `${origin}/mcp`;
  }

  #metadata(origin: string): Answer {
    const { authorizationServer, metadata } = this.switches;
    return json(200, {
      resource: this.#resource(origin),
      authorization_servers: [authorizationServer.issuer],
      bearer_methods_supported: ['header'],
      ...metadata,
    });
  }

  #refusal(origin: string, incoming: IncomingMessage, { method = '' }: Message): Answer | undefined {
    const { guards, refusesTokens, scopes } = this.switches;
    const { authorization } = incoming.headers;
    if (guards === 'posts' && incoming.method === 'GET') return { status: 405 };
    if (guards === 'tools/call' && method !== 'tools/call') return undefined;
    const needed = scopes[method] ?? [];
    const token = tokenIn(authorization);
    if (token === undefined) return this.#challenge(origin, 401, needed);
    if (refusesTokens) return refusesTokens(token);
    const allowed = this.#allowed(origin, token);
    if (!allowed) return this.#challenge(origin, 401, needed, 'invalid_token', authorization);
    if (needed.every(scope => allowed.scopes.includes(scope))) return undefined;
    return this.#challenge(origin, 403, needed, 'insufficient_scope', authorization);
  }

  #allowed(origin: string, token: string): Allowed | undefined {
    const { authorizationServer, checksResource } = this.switches;
    const allowed = authorizationServer.introspect(token);
    return checksResource && allowed?.resource !== this.#resource(origin) ? undefined : allowed;
  }

  #challenge(
    origin: string,
    status: number,
    scopes: readonly string[],
    error?: string,
    authorization?: string,
  ): Answer {
    const { challenge, echo } = this.switches;
    const at = this.#metadataPath();
    const parameters = [
      ...(error === undefined ? [] : [`error="${error}"`]),
      ...(scopes.length === 0 ? [] : [`scope="${scopes.join(' ')}"`]),
      ...(at === undefined ? [] : [`resource_metadata="${origin}${at}"`]),
    ];
    const bearer = `Bearer ${parameters.join(', ')}`.trim();
    const header = challenge === 'several' ? `Negotiate, Basic realm="a, \\"b\\"", ${bearer}` : bearer;
    const body = { error: error ?? 'unauthorized', ...(echo ? { heard: authorization } : {}) };
    return json(status, body, challenge === 'bare' ? {} : { 'www-authenticate': header });
  }
}

const notFound: Answer = { status: 404, headers: { 'content-type': 'text/plain' }, body: 'Not found' };

const tokenIn = (authorization = ''): string | undefined => /^Bearer (.+)$/.exec(authorization)?.[1];
