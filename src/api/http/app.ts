import {
  type IncomingMessage,
  type RequestListener,
  type ServerResponse,
  createServer,
  type Server,
} from 'node:http';
import express, { type ErrorRequestHandler, type Express } from 'express';
import helmet from 'helmet';
import type { AddressInfo, Socket } from 'node:net';
import type { Config } from '../../config/index.ts';
import type { Scope } from '../../core/access/caller.ts';
import { networkOf } from '../../core/access/rate-limits.ts';
import type { Core } from '../../core/core.ts';
import { JWKS_MAX_AGE_SEC } from '../../core/identity/tokens/identity-token.ts';
import type { Clock } from '../../platform/time.ts';
import { sanitise } from '../../platform/sanitize.ts';
import { SwitchboardError } from '../../errors.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { within, type Tracing } from '../../platform/telemetry/tracing.ts';
import type { WorkerSeat } from '../../platform/workers/seat.ts';
import { authorizationRouter } from '../authorization/router.ts';
import { adminEndpoints } from '../admin/table.ts';
import { consoleRouter } from '../console/router.ts';
import { byKeyOrSession } from '../console/session.ts';
import { mcpHandler } from '../mcp/endpoint.ts';
import { passThroughHandler } from '../mcp/pass-through.ts';
import { Cookies } from '../pages/cookies.ts';
import { route } from '../pages/page-router.ts';
import { openPages, pagesRouter } from '../pages/router.ts';
import { restEndpoints } from '../rest/endpoints.ts';
import { openApiDocument } from '../rest/openapi.ts';
import { defaultMemoryLimits, MemoryBudget, type MemoryLimits } from './body.ts';
import { byKey, serveEndpoints, type Authenticator, type PipelineOptions } from './pipeline.ts';
import { renderError } from './render-error.ts';
import {
  addHeaders,
  isOpenToOrigins,
  isPagePath,
  localsOf,
  pathOf,
  requestStarter,
  singleHeader,
  wireOf,
  type Wire,
} from './request.ts';
import { routerOf } from './endpoint.ts';

export type FaceLimits = MemoryLimits & ConnectionLimits;

interface AppOptions {
  readonly core: Core;
  readonly config: Config['http'];
  readonly log: Log;
  readonly clock: Clock;
  readonly version: string;
  /** true: `/mcp` offers `read_remote_tool`. */
  readonly readTool?: boolean;
  readonly tracing?: Tracing | undefined;
  /** This process is one of several workers on one port. */
  readonly worker?: WorkerSeat | undefined;
  /** true: the registry API is served without a key. */
  readonly isRegistryPublic?: boolean;
  /** Limits for tests. */
  readonly limits?: Partial<FaceLimits> | undefined;
}

/**
 * Serves all public requests. `/v1`, `/v0.1`, `/mcp` and `/mcp/{server_id}` are dispatched on node:http directly, because Express
 * and its middleware were among the largest costs of a proxied call. Everything else goes through Express. Both share one pipeline.
 */
export function createApp(options: AppOptions): RequestListener {
  const { core, config, log, clock } = options;
  const start = requestStarter({
    trustProxy: config.trustProxy,
    log,
    clock,
    metrics: core.metrics.http,
    tracing: options.tracing,
  });
  const refusalOf = hostGuard(config.allowedHosts, isPagePath);
  const limits = { ...defaultMemoryLimits(), ...CONNECTION_LIMITS, ...options.limits };
  const shared: PipelineOptions = { core, log, budget: new MemoryBudget(limits) };
  const cookies = new Cookies(config.publicUrl?.startsWith('https:') ?? false);
  const lanes = {
    rest: serveEndpoints({
      ...shared,
      find: routerOf(restEndpoints),
      principalOf: options.isRegistryPublic === true ? orAnyone(core) : byKey(core),
    }),
    admin: serveEndpoints({
      ...shared,
      find: routerOf(adminEndpoints),
      principalOf: byKeyOrSession(core, cookies),
    }),
    mcp: mcpHandler({ ...options, ...shared }),
    passThrough: passThroughHandler(shared),
  };
  const endpoints = [...restEndpoints, ...adminEndpoints];
  const web = createWebApp({ ...options, ...shared, refusalOf, endpoints, cookies });
  const serve = (request: IncomingMessage, response: ServerResponse, requestId: string) => {
    const path = pathOf(request);
    const wire = wireOf(path);
    const lane = laneOf(wire, path);
    if (lane === 'web') {
      response.setHeader('X-Request-Id', requestId);
      web(request, response);
      return;
    }
    addHeaders(response, { 'X-Request-Id': requestId, ...PROTECTION });
    const refusal = refusalOf(request, path);
    if (refusal) renderError(response, refusal, { wire, log });
    else void lanes[lane](request, response, path);
  };
  return serializePipelined((request, response) => {
    request.url = originForm(request.url ?? '/');
    const { requestId, span } = start(request, response);
    within(span, () => serve(request, response, requestId));
  }, limits);
}

function laneOf(wire: Wire, path: string): 'rest' | 'admin' | 'mcp' | 'passThrough' | 'web' {
  if (wire === 'mcp') return 'mcp';
  if (wire === 'pass-through') return 'passThrough';
  if (path.startsWith('/v1/admin/')) return 'admin';
  return path.startsWith('/v1/') || path.startsWith('/v0.1/') ? 'rest' : 'web';
}

/** Lets callers without a key read a public registry; they are limited by address. */
function orAnyone(core: Core): Authenticator {
  const authenticated = byKey(core);
  return async (request, response, path) => {
    const hasKey =
      singleHeader(request, 'x-api-key') !== undefined || request.headers.authorization !== undefined;
    if (hasKey || wireOf(path) !== 'registry') return authenticated(request, response, path);
    const { ip = 'unknown' } = localsOf(response);
    return { tenantId: '', keyId: `ip ${networkOf(ip)}`, scopes: new Set<Scope>(['search']) };
  };
}

/** Accepts a request target with a host, as sent to proxies (RFC 9112 §3.2.2). */
function originForm(target: string): string {
  if (target.startsWith('/')) return target;
  const url = URL.parse(target);
  return url ? `${url.pathname}${url.search}` : target;
}

/** Keeps browsers from rendering an API response as a page. */
const PROTECTION = {
  'X-Content-Type-Options': 'nosniff',
  'Content-Security-Policy': "default-src 'none'; frame-ancestors 'none'",
  'Strict-Transport-Security': 'max-age=31536000; includeSubDomains',
};

interface WebAppOptions extends AppOptions, PipelineOptions {
  readonly refusalOf: HostGuard;
  readonly endpoints: Parameters<typeof openApiDocument>[0]['endpoints'];
  readonly cookies: Cookies;
}

/**
 * Serves everything off the hot path: the pages, the documents, the probes. Only the pages, their errors and `/docs`
 * are HTML. No response contains a stack trace.
 */
function createWebApp({ refusalOf, endpoints, cookies, ...options }: WebAppOptions): Express {
  const { core, config, version } = options;
  const app = express();
  app.disable('x-powered-by');
  app.set('etag', false);
  app.set('case sensitive routing', true);
  app.set('trust proxy', config.trustProxy);
  route(app, '/healthz', { get: ({ response }) => void response.json({ status: 'ok' }) });
  route(app, '/readyz', {
    get({ response }) {
      const { status, degraded } = core.readiness();
      response.status(status === 'ready' ? 200 : 503).json({ status, degraded });
    },
  });
  route(app, '/metrics', {
    async get({ response }) {
      const text = await core.metrics.text();
      // `send` would reorder the parameters of the content type.
      response.setHeader('Content-Type', core.metrics.contentType);
      response.end(text);
    },
  });
  app.use(
    helmet({
      contentSecurityPolicy: { directives: NOTHING, useDefaults: false },
    }),
  );
  app.use((request, _response, next) => next(refusalOf(request, request.path)));
  const document = openApiDocument({ version, publicUrl: config.publicUrl, endpoints });
  // All responses share one buffer, so that clients that do not read it cost nothing.
  const json = Buffer.from(JSON.stringify(document));
  route(app, '/openapi.json', { get: ({ response }) => void response.type('json').send(json) });
  route(app, '/.well-known/jwks.json', {
    async get({ response }) {
      const keys = await core.identity.signingKeys.jwks();
      response.set('Cache-Control', `public, max-age=${JWKS_MAX_AGE_SEC}`).type('application/jwk-set+json');
      response.send(JSON.stringify(keys));
    },
  });
  openPages(app, { core, version, publicUrl: config.publicUrl });
  const { grants } = core.identity;
  if (grants) app.use(authorizationRouter({ core, grants, cookies, publicUrl: grants.publicUrl }));
  app.use(pagesRouter(core, cookies, config.publicUrl));
  app.use(consoleRouter(core, cookies, options.budget));
  app.use(request => {
    throw new SwitchboardError(
      'route_not_found',
      `${sanitise(request.path)} does not exist. /docs lists all endpoints.`,
    );
  });
  const onError: ErrorRequestHandler = (thrown: unknown, request, response, _next) =>
    renderError(response, thrown, { wire: wireOf(request.path), log: options.log });
  app.use(onError);
  return app;
}

const NOTHING = {
  defaultSrc: ["'none'"],
  frameAncestors: ["'none'"],
  baseUri: ["'none'"],
  formAction: ["'none'"],
};

/** Returns why a request is refused. Undefined: it is allowed. */
type HostGuard = (request: IncomingMessage, path: string) => SwitchboardError | undefined;

/**
 * Refuses requests whose Host or Origin is not a known name of this server. Otherwise a web page could reach a server on
 * loopback by DNS rebinding (MCP transports, "Security Warning").
 * @param takesNullOrigin for paths whose forms browsers send with `Origin: null`, because their pages set a no-referrer
 * policy (Fetch, "append a request `Origin` header"); they must identify the sender by other means
 */
function hostGuard(allowedHosts: readonly string[], takesNullOrigin: (path: string) => boolean): HostGuard {
  const allowed = new Set(allowedHosts);
  if (allowed.has('*')) return () => undefined;
  const hosts = new Allowed(host => allowed.has(hostnameOf(`http://${host}`) ?? ''));
  const origins = new Allowed(origin => allowed.has(hostnameOf(origin) ?? ''));
  return ({ headers: { host = '', origin } }, path) => {
    if (!hosts.has(host)) return refusal('Host');
    if (origin === undefined || isOpenToOrigins(path)) return undefined;
    if (origin === 'null' && takesNullOrigin(path)) return undefined;
    return origins.has(origin) ? undefined : refusal('Origin');
  };
}

/** Caches allowed header values, so that repeated ones are parsed once. */
class Allowed {
  readonly #seen = new Set<string>();
  readonly #isAllowed: (value: string) => boolean;

  constructor(isAllowed: (value: string) => boolean) {
    this.#isAllowed = isAllowed;
  }

  has(value: string): boolean {
    if (this.#seen.has(value)) return true;
    if (!this.#isAllowed(value)) return false;
    // A host may be followed by any port.
    if (this.#seen.size < 100) this.#seen.add(value);
    return true;
  }
}

const hostnameOf = (url: string): string | undefined =>
  URL.canParse(url) ? new URL(url).hostname : undefined;

const refusal = (header: 'Host' | 'Origin') =>
  new SwitchboardError(
    'host_not_allowed',
    `The ${header} header names a host that is not allowed. Ask the operator to add it to SWITCHBOARD_ALLOWED_HOSTS.`,
  );

const HTTP_LIMITS = {
  /** Leaves room for an overlong token, so that it is refused with a proper error. */
  maxHeaderSize: 128 * 1024,
  /** How long a client may take to send its headers, and its whole request, in milliseconds. */
  headersTimeout: 10_000,
  requestTimeout: 60_000,
  connectionsCheckingInterval: 2_000,
};

/** @param stallMs as for `serializePipelined`: set here, it costs each connection a timer, and not each request */
export function createPublicServer(
  listener: RequestListener,
  { stallMs = CONNECTION_LIMITS.stallMs }: Partial<ConnectionLimits> = {},
): Server {
  const server = createServer({ ...HTTP_LIMITS }, listener);
  server.timeout = stallMs;
  return server;
}

/** Listening on the configured address failed. The message names the setting to change. */
export class CannotListen extends Error {
  override readonly name = 'CannotListen';
}

/**
 * Starts listening and returns the address of the server.
 * @throws CannotListen
 */
export async function listen(server: Server, { host, port }: Config['http']): Promise<string> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      const { code } = error;
      if (code === 'EADDRINUSE')
        reject(new CannotListen(`PORT: ${port} is already in use on ${host}; set another port`));
      else reject(new CannotListen(`HOST: cannot listen on ${host}, port ${port}: ${code ?? error.message}`));
    });
    server.listen(port, host, resolve);
  });
  const { port: bound } = server.address() as AddressInfo;
  return `http://${host.includes(':') ? `[${host}]` : host}:${bound}`;
}

interface ConnectionLimits {
  /** How long a client may leave pending data unread, in milliseconds. */
  readonly stallMs: number;
  /** The maximum number of waiting requests per connection. */
  readonly maxWaiting: number;
}

export const CONNECTION_LIMITS: ConnectionLimits = { stallMs: 30_000, maxWaiting: 20 };

/**
 * Processes a connection's requests one after another. Node emits all pipelined requests at once (RFC 9112 §9.3.2) and would
 * buffer the responses until they can be sent in order. Closes a connection with too many waiting requests, or whose client
 * reads nothing. Connections with nothing to read, such as silent event streams, are kept.
 */
export function serializePipelined(
  serve: RequestListener,
  { stallMs, maxWaiting }: ConnectionLimits,
): RequestListener {
  const waiting = new WeakMap<Socket, number>();
  const start: RequestListener = (request, response) => {
    const { socket } = request;
    if (socket.timeout !== stallMs) socket.setTimeout(stallMs);
    response.on('timeout', cutIfUnread);
    serve(request, response);
  };
  return (request, response) => {
    // A connection has one response at a time.
    if (response.socket !== null) return start(request, response);
    const { socket } = request;
    const ahead = waiting.get(socket) ?? 0;
    if (socket.destroyed || ahead >= maxWaiting) {
      socket.destroy();
      return;
    }
    waiting.set(socket, ahead + 1);
    response.once('socket', () => {
      waiting.set(socket, (waiting.get(socket) ?? 1) - 1);
      start(request, response);
    });
  };
}

/** Handles a timeout of a connection while a response is open. The timer restarts whenever data moves. */
function cutIfUnread(socket: Socket): void {
  if (socket.writableLength > 0) socket.destroy();
}
