import type { IncomingMessage, ServerResponse } from 'node:http';
import proxyaddr from 'proxy-addr';
import type { Config } from '../../config/index.ts';
import type { Principal } from '../../core/access/caller.ts';
import { SwitchboardError, type ErrorCode } from '../../errors.ts';
import { newId } from '../../platform/ids.ts';
import type { Clock } from '../../platform/time.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { HttpMetrics } from '../../platform/telemetry/metrics.ts';
import type { Span, Tracing } from '../../platform/telemetry/tracing.ts';
import type { QuotaState } from '../../core/access/quota.ts';
import type { RateLimitState } from '../../core/access/rate-limits.ts';

/** The facts about a request while it is served. They stand where Express has its `response.locals`. */
interface RequestLocals {
  readonly requestId: string;
  /** When it arrived, by the clock that also stamps the use of refresh tokens. */
  readonly arrivedMs: number;
  /** The client's address. */
  readonly ip: string | undefined;
  /** Names and values in turn of the headers that go out with the answer (`addHeaders`). */
  readonly headers: string[];
  principal?: Principal;
  /** The path of its endpoint as the code has it, with names for what differs. Absent: none was found or looked for. */
  route?: string;
  /** The code of the error that the request is answered with. */
  code?: ErrorCode;
  /** Absent: the request is not traced. */
  span?: Span;
}

export const localsOf = (response: ServerResponse): RequestLocals =>
  (response as ServerResponse & { locals: RequestLocals }).locals;

/** Gives a response its locals. */
export function attachLocals(response: ServerResponse, clock: Clock, ip?: string): RequestLocals {
  const locals = { requestId: newId('req'), arrivedMs: clock.now(), ip, headers: [] };
  Object.assign(response, { locals });
  return locals;
}

/** Returns a signal that aborts when the client has gone before the answer was written whole. */
export function clientSignal(response: ServerResponse): AbortSignal {
  const controller = new AbortController();
  // It may have gone while it was told who calls.
  if (response.destroyed) controller.abort();
  response.once('close', () => {
    if (!response.writableFinished) controller.abort();
  });
  return controller.signal;
}

/** Returns a header that came once. Node joins two of one name, and both together never equal a key. */
export function singleHeader(request: IncomingMessage, name: string): string | undefined {
  const value = request.headers[name];
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** Returns the token of an Authorization header. One that is no Bearer token is '', which is as invalid as any other. */
export function bearerOf({ headers: { authorization } }: IncomingMessage): string | undefined {
  if (authorization === undefined) return undefined;
  return /^Bearer +(\S+)$/i.exec(authorization)?.[1] ?? '';
}

/** The header that says how long a caller waits for a proxied call at most, and its bounds in milliseconds. */
export const TIMEOUT_HEADER = { name: 'Switchboard-Timeout-Ms', minMs: 1_000, maxMs: 300_000 } as const;

/** @throws SwitchboardError `invalid_request` for a header that is out of bounds or no whole number. */
export function requestedTimeoutMs(request: IncomingMessage): number | undefined {
  const { name, minMs, maxMs } = TIMEOUT_HEADER;
  const value = request.headers[name.toLowerCase()];
  if (value === undefined) return undefined;
  const timeoutMs = typeof value === 'string' && /^\d{1,6}$/.test(value) ? Number(value) : 0;
  if (timeoutMs >= minMs && timeoutMs <= maxMs) return timeoutMs;
  throw new SwitchboardError(
    'invalid_request',
    `${name}: must be a whole number of milliseconds from ${minMs} to ${maxMs}`,
  );
}

/** Returns whether answers at a path are pages for people, errors too. */
export const isPagePath = (path: string): boolean => /^\/(?:connect|manage|oauth)(?:\/|$)/.test(path);

/**
 * The forms an error can have over HTTP: problem details (`registry`: with that API's own member besides), JSON-RPC and problem
 * details at once (`rpc`), a JSON-RPC error alone (`mcp`, `pass-through`), a page for people, or problem details for the command line (`command`).
 */
export type Wire = 'problem' | 'registry' | 'rpc' | 'mcp' | 'pass-through' | 'page' | 'command';

/** Returns the form in which the errors of a path are sent, also to a caller without a key or with another method. */
export function wireOf(path: string): Wire {
  if (path === '/v1/mcp/call') return 'rpc';
  if (path.startsWith('/v1/')) return 'problem';
  if (path.startsWith('/v0.1/')) return 'registry';
  if (path === '/mcp' || path === '/mcp/') return 'mcp';
  if (path.startsWith('/mcp/')) return 'pass-through';
  return isPagePath(path) ? 'page' : 'problem';
}

const PROBES: ReadonlySet<string> = new Set(['/healthz', '/readyz', '/metrics']);

interface Options {
  readonly trustProxy: Config['http']['trustProxy'];
  readonly log: Log;
  readonly clock: Clock;
  readonly metrics: HttpMetrics;
  /** Absent: nothing is traced. */
  readonly tracing: Tracing | undefined;
}

/** Returns what begins a request: it gives it an id and address, counts it and logs one line at its end, without header, query or body. */
export function requestStarter({ trustProxy, log, clock, metrics, tracing }: Options) {
  const addressOf = addressReader(trustProxy);
  // These lines hold no secret, and looking for one costs more than writing them.
  const lines = log.child({}, { redact: [] });
  return (request: IncomingMessage, response: ServerResponse): RequestLocals => {
    const locals = attachLocals(response, clock, addressOf(request));
    const startedAt = performance.now();
    const path = pathOf(request);
    if (tracing && !PROBES.has(path)) locals.span = spanOf(tracing, request, locals);
    response.once('close', () => {
      const durationMs = performance.now() - startedAt;
      const status = response.writableFinished ? response.statusCode : undefined;
      const route = routeOf(request, locals);
      metrics.answered(route, request.method, status, durationMs / 1000);
      if (locals.span) endSpan(locals.span, { method: methodOf(request), route, status });
      logEnd(lines, request, response, { path, durationMs });
    });
    return locals;
  };
}

/** Express notes the route that it has found, with its path as the code has it. */
const routeOf = (request: IncomingMessage & { route?: { path?: string } }, { route }: RequestLocals) =>
  route ?? request.route?.path;

/** Returns the path of a request's target, without the query. */
export function pathOf({ url = '/' }: IncomingMessage): string {
  const end = url.indexOf('?');
  return end < 0 ? url : url.slice(0, end);
}

/** The methods that HTTP's own documents define. All others count as one (OpenTelemetry, "HTTP server"). */
const METHODS: ReadonlySet<string> = new Set([
  'GET',
  'HEAD',
  'POST',
  'PUT',
  'DELETE',
  'CONNECT',
  'OPTIONS',
  'TRACE',
  'PATCH',
  'QUERY',
]);
const methodOf = ({ method = '' }: IncomingMessage): string => (METHODS.has(method) ? method : '_OTHER');

function spanOf(tracing: Tracing, request: IncomingMessage, { requestId }: RequestLocals): Span {
  const method = methodOf(request);
  const span = tracing.serve(method === '_OTHER' ? 'HTTP' : method, request.headers);
  span.set({ 'http.request.method': method, 'url.scheme': 'http', 'switchboard.request_id': requestId });
  return span;
}

/** Names the route and not the path: paths hold secrets, and names of users. */
function endSpan(
  span: Span,
  { method, route, status }: { method: string; route: string | undefined; status: number | undefined },
): void {
  if (route !== undefined) {
    span.rename(`${method === '_OTHER' ? 'HTTP' : method} ${route}`);
    span.set({ 'http.route': route, 'url.path': route });
  }
  span.set({ 'http.response.status_code': status });
  if (status === undefined) span.failed('aborted');
  else if (status >= 500) span.failed(String(status));
  span.end();
}

/** Returns what reads a client's address: the peer's, or what the trusted proxies say of it. */
function addressReader(trustProxy: Options['trustProxy']): (request: IncomingMessage) => string | undefined {
  if (trustProxy === false) return request => request.socket.remoteAddress;
  const trust =
    typeof trustProxy === 'number'
      ? (_address: string, hop: number) => hop < trustProxy
      : proxyaddr.compile(trustProxy.split(',').map(part => part.trim()));
  return request => proxyaddr(request, trust);
}

function logEnd(
  lines: Log,
  { method }: IncomingMessage,
  response: ServerResponse,
  { path, durationMs }: { path: string; durationMs: number },
): void {
  const { requestId, principal, code, span } = localsOf(response);
  // Probes come every few seconds and tell nothing.
  const level = PROBES.has(path) ? 'debug' : 'info';
  if (!lines.isLevelEnabled(level)) return;
  lines[level](
    {
      requestId,
      method,
      path: withoutSecrets(path).slice(0, 200),
      status: response.statusCode,
      ...(code === undefined ? {} : { code }),
      durationMs: Math.round(durationMs * 10) / 10,
      ...(principal === undefined ? {} : { tenantId: principal.tenantId, keyId: principal.keyId }),
      ...(response.writableFinished ? {} : { aborted: true }),
      ...span?.logFields,
    },
    'request',
  );
}

/** Hides session ids and the links of the pages: they are secrets that stand in paths. */
const withoutSecrets = (path: string): string =>
  path
    .replace(
      /^(\/+(?:connect|manage|oauth\/done|v1\/identity\/sessions)\/+)[^/]+/i,
      (whole, before: string) => (OPEN_PATHS.has(whole) ? whole : `${before}:secret`),
    )
    // One may stand elsewhere by mistake.
    .replaceAll(/(?:ses|sbr|link|done|page|web|sbk_live)_[\w-]{20,}|eyJ[\w.-]{20,}/g, ':secret');

const OPEN_PATHS = new Set(['/manage/disconnect', '/manage/revoke-all']);

/** Adds headers to the answer to come. They are kept until it is written: `setHeader` costs each about as much as writing it. */
export function addHeaders(response: ServerResponse, headers: Readonly<Record<string, string>>): void {
  const { headers: kept } = localsOf(response);
  // Not Object.entries, which takes five times as long.
  for (const name in headers) kept.push(name, headers[name] ?? '');
}

/** Writes the head of an answer, with the headers added before. */
export function writeHead(
  response: ServerResponse,
  status: number,
  headers: Readonly<Record<string, string>>,
): void {
  addHeaders(response, headers);
  response.writeHead(status, localsOf(response).headers);
}

/** Ends a response with a whole body, and the headers added before. */
export function sendText(response: ServerResponse, status: number, type: string, text: string): void {
  writeHead(response, status, {
    'Content-Type': `${type}; charset=utf-8`,
    'Content-Length': String(Buffer.byteLength(text)),
  });
  response.end(text);
}

export const sendJson = (response: ServerResponse, status: number, value: unknown): void =>
  sendText(response, status, 'application/json', JSON.stringify(value));

/**
 * Returns `RateLimit` and `RateLimit-Policy` in the list form of draft-ietf-httpapi-ratelimit-headers (since -08). A monthly quota has
 * a field line of its own beside the rate limit's; both make one list (RFC 9110 §5.3).
 */
export function limitHeaders(state: RateLimitState | QuotaState): Record<string, string> {
  const { name, limit, windowSec } =
    'class' in state
      ? { name: state.class, limit: state.calls, windowSec: state.windowSec }
      : { name: `${state.use}-per-month`, limit: state.limit, windowSec: state.monthSec };
  return {
    'RateLimit-Policy': `"${name}";q=${limit};w=${windowSec}`,
    RateLimit: `"${name}";r=${state.remaining};t=${state.resetSec}`,
  };
}
