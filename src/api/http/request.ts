import type { IncomingMessage, ServerResponse } from 'node:http';
import proxyaddr from 'proxy-addr';
import type { Config } from '../../config/index.ts';
import type { Principal } from '../../core/access/caller.ts';
import { SwitchboardError, type ErrorCode } from '../../errors.ts';
import { newId } from '../../platform/ids.ts';
import type { JsonParts } from '../../platform/json/limits.ts';
import {
  CallerAbortError,
  Canceller,
  monotonicMs,
  ShortWorks,
  type Cancellation,
  type Clock,
} from '../../platform/time.ts';
import { plainLog, type Log } from '../../platform/telemetry/log.ts';
import type { HttpMetrics } from '../../platform/telemetry/metrics.ts';
import type { Span, Tracing } from '../../platform/telemetry/tracing.ts';
import type { QuotaState } from '../../core/access/quota.ts';
import type { RateLimitState } from '../../core/access/rate-limits.ts';

/** Data about a request while it is served, like `response.locals` in Express. */
interface RequestLocals {
  readonly requestId: string;
  /** When it arrived, by the monotonic clock. */
  readonly arrivedMs: number;
  /** The client's address. */
  readonly ip: string | undefined;
  /** Alternating names and values of the response headers (`addHeaders`). */
  readonly headers: string[];
  principal?: Principal;
  /** The format of its errors. Absent: that of its path. */
  wire?: Wire;
  /** The path pattern of its endpoint. Absent: there is none, or it was not looked up. */
  route?: string;
  /** The error code of the response. */
  code?: ErrorCode;
  /** The JSON-RPC method of the message with its tool and server, for the log. */
  rpc?: string | undefined;
  /** Absent: the request is not traced. */
  span?: Span;
  /** Aborts once the client has disconnected; only if something was asked to follow that (`clientSignal`). */
  gone?: Canceller;
}

export const localsOf = (response: ServerResponse): RequestLocals =>
  (response as ServerResponse & { locals: RequestLocals }).locals;

/**
 * Gives a response its locals.
 * @param onClose called when the response was sent, or (false) when the client disconnected before
 */
export function attachLocals(
  response: ServerResponse,
  clock: Clock,
  { ip, onClose }: { ip?: string | undefined; onClose?: (wasSent: boolean) => void } = {},
): RequestLocals {
  const locals: RequestLocals = {
    requestId: newId('req'),
    arrivedMs: monotonicMs(clock),
    ip,
    headers: [],
  };
  (response as ServerResponse & { locals: RequestLocals }).locals = locals;
  openResponses++;
  response.on('close', () => {
    openResponses--;
    const { gone } = locals;
    if (gone && !response.writableFinished) endings.run(() => gone.abort(DISCONNECTED));
    onClose?.(response.writableFinished);
  });
  return locals;
}

/** Returns a signal that aborts if the client disconnects before the response is complete. */
export function clientSignal(response: ServerResponse): Cancellation {
  const gone = (localsOf(response).gone ??= new Canceller());
  // The client may have disconnected during authentication.
  if (response.destroyed) gone.abort(DISCONNECTED);
  return gone;
}

/** Thousands of clients may disconnect at once, with a proxy between. What their requests hold is let go bit by bit. */
const endings = new ShortWorks();
/** All requests share it, because most of an error's cost is its stack. */
const DISCONNECTED = new CallerAbortError();

/** Returns a header that was sent once. Node joins repeated ones, and the result never equals a key. */
export function singleHeader(request: IncomingMessage, name: string): string | undefined {
  const value = request.headers[name];
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** Returns the token of an Authorization header. Other schemes give '', which is never valid. */
export function bearerOf({ headers: { authorization } }: IncomingMessage): string | undefined {
  if (authorization === undefined) return undefined;
  return /^Bearer +(\S+)$/i.exec(authorization)?.[1] ?? '';
}

/** The header for the timeout of a proxied call, and its limits in milliseconds. */
export const TIMEOUT_HEADER = { name: 'Switchboard-Timeout-Ms', minMs: 1_000, maxMs: 300_000 } as const;

/** @throws SwitchboardError `invalid_request` for a value that is out of range or not a whole number */
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

/** Returns whether responses at a path are pages for people, including errors. */
export const isPagePath = (path: string): boolean =>
  /^\/(?:connect|manage|oauth|auth\/(?:authorize|consent))(?:\/|$)/.test(path);

/** Returns whether scripts of any web page may use a path: no cookie counts there. */
export const isOpenToOrigins = (path: string): boolean =>
  /^\/(?:auth\/(?:token|register|revoke|jwks)|\.well-known\/(?:oauth-|openid-))/.test(path);

/**
 * The formats of an error over HTTP: problem details (`registry`: with that API's own member), JSON-RPC and problem details
 * combined (`rpc`), JSON-RPC only (`mcp`, `pass-through`), a page for people, or problem details for the command line (`command`).
 */
export type Wire = 'problem' | 'registry' | 'rpc' | 'mcp' | 'pass-through' | 'page' | 'command';

/** Returns the error format of a path, which applies even without a key or with a wrong method. */
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
  /** Absent: tracing is off. */
  readonly tracing: Tracing | undefined;
}

/**
 * Returns a function that starts a request: it assigns an id and an address, counts the request and logs one line at its end,
 * without headers, query or body.
 */
export function requestStarter({ trustProxy, log, clock, metrics, tracing }: Options) {
  const addressOf = addressReader(trustProxy);
  const lines = plainLog(log);
  return (request: IncomingMessage, response: ServerResponse): RequestLocals => {
    const path = pathOf(request);
    const onClose = (wasSent: boolean) => {
      const durationMs = monotonicMs(clock) - locals.arrivedMs;
      const status = wasSent ? response.statusCode : undefined;
      const route = routeOf(request, locals);
      metrics.answered(route, request.method, status, durationMs / 1000);
      if (locals.span) endSpan(locals.span, { method: methodOf(request), route, status });
      logEnd(lines, request, response, { path, durationMs });
    };
    const locals = attachLocals(response, clock, { ip: addressOf(request), onClose });
    if (tracing && !PROBES.has(path)) locals.span = spanOf(tracing, request, locals);
    return locals;
  };
}

/** Express records the matched route as a path pattern. */
const routeOf = (request: IncomingMessage & { route?: { path?: string } }, { route }: RequestLocals) =>
  route ?? request.route?.path;

/** Returns the path of a request's target, without the query. */
export function pathOf({ url = '/' }: IncomingMessage): string {
  const end = url.indexOf('?');
  return end < 0 ? url : url.slice(0, end);
}

/** The methods defined by HTTP standards. All others count as one (OpenTelemetry, "HTTP server"). */
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

/** Uses the route instead of the path, because paths contain secrets and user names. */
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

/** Returns a function that reads a client's address: the peer's, or the one reported by trusted proxies. */
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
  const { requestId, principal, code, rpc, span, route } = localsOf(response);
  // Probes come every few seconds, and MCP clients routinely try GET for an event stream.
  const isRoutine = PROBES.has(path) || (path === '/mcp' && code === 'method_not_allowed');
  const level = isRoutine ? 'debug' : 'info';
  if (!lines.isLevelEnabled(level)) return;
  // Undefined members are left out.
  const fields = {
    requestId,
    method,
    path: path === route ? path : withoutSecrets(path).slice(0, 200),
    rpc: rpc === undefined ? undefined : withoutSecrets(rpc),
    status: response.statusCode,
    code,
    durationMs: Math.round(durationMs * 10) / 10,
    tenantId: principal?.tenantId,
    keyId: principal?.keyId,
    aborted: response.writableFinished ? undefined : true,
  };
  lines[level](span ? { ...fields, ...span.logFields } : fields, 'request');
}

/** Hides session ids and page links, which are secrets in paths. */
const withoutSecrets = (path: string): string =>
  path
    .replace(
      /^(\/+(?:connect|manage|oauth\/done|auth\/(?:consent|authorize)|v1\/identity\/sessions)\/+)[^/]+/i,
      (whole, before: string) => (OPEN_PATHS.has(whole) ? whole : `${before}:secret`),
    )
    // Secrets may also be elsewhere by mistake.
    .replaceAll(/(?:ses|sbr|link|done|page|web|sbk_live)_[\w-]{20,}|eyJ[\w.-]{20,}/g, ':secret');

const OPEN_PATHS = new Set(
  ['calls', 'connect', 'disconnect', 'revoke-all', 'sign-in', 'signed-in'].map(name => `/manage/${name}`),
);

/**
 * Adds response headers. They are collected until the response is written, because each `setHeader` costs about as much as
 * writing the header.
 */
export function addHeaders(response: ServerResponse, headers: Readonly<Record<string, string>>): void {
  const { headers: kept } = localsOf(response);
  // Not Object.entries, which takes five times as long.
  for (const name in headers) kept.push(name, headers[name] ?? '');
}

/** Writes the status and headers of a response, including those added before. */
export function writeHead(
  response: ServerResponse,
  status: number,
  headers: Readonly<Record<string, string>>,
): void {
  addHeaders(response, headers);
  response.writeHead(status, localsOf(response).headers);
}

/** Ends a response with a complete body and the headers added before. */
export function sendText(response: ServerResponse, status: number, type: string, text: string): void {
  const bytes = Buffer.byteLength(text);
  const { headers } = localsOf(response);
  headers.push('Content-Type', `${type}; charset=utf-8`, 'Content-Length', String(bytes));
  response.writeHead(status, headers);
  endInBatch(response, text, bytes);
}

/**
 * Ends a response, whose head was written, together with others (`writeInBatch`).
 * @param bytes the length of the text in UTF-8
 */
export function endInBatch(response: ServerResponse, text: string, bytes: number): void {
  // ASCII is written faster as Latin-1, with the same bytes.
  const encoding = bytes === text.length ? 'latin1' : 'utf8';
  writeInBatch(() => response.end(text, encoding));
}

let openResponses = 0;
let batch: (() => void)[] = [];

/**
 * Writes once the event loop has read all that has arrived, if there are other responses to write. A write to an idle process on
 * the same machine, such as a TLS proxy, wakes it, which costs the writer more than the rest of the write; several writes in a
 * row wake it once. (One and a sixth of the calls per second at 16 connections.)
 */
export function writeInBatch(write: () => void): void {
  if (openResponses <= 1) return write();
  if (batch.length === 0) setImmediate(writeBatch);
  batch.push(write);
}

function writeBatch(): void {
  const writes = batch;
  batch = [];
  for (const write of writes) write();
}

/** Ends a response with JSON that exists already, and the headers added before. */
export function sendParts(response: ServerResponse, json: JsonParts): void {
  const { headers } = localsOf(response);
  headers.push('Content-Type', 'application/json; charset=utf-8', 'Content-Length', String(json.byteLength));
  response.writeHead(200, headers);
  response.cork();
  for (const part of json.parts) response.write(part);
  response.end();
}

export const sendJson = (response: ServerResponse, status: number, value: unknown): void =>
  sendText(response, status, 'application/json', JSON.stringify(value));

/**
 * Returns `RateLimit` and `RateLimit-Policy` in the list format of draft-ietf-httpapi-ratelimit-headers (since -08). A
 * monthly quota has its own field line in addition to the rate limit's; both form one list (RFC 9110 §5.3).
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
