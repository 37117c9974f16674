import type { IncomingMessage, ServerResponse } from 'node:http';
import proxyaddr from 'proxy-addr';
import type { Config } from '../../config/index.ts';
import { newId } from '../../platform/ids.ts';
import type { Clock } from '../../platform/clock.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { HttpMetrics } from '../../platform/telemetry/metrics.ts';
import type { Span, Tracing } from '../../platform/telemetry/tracing.ts';
import { localsOf, type RequestLocals } from './http.ts';

const PROBES: ReadonlySet<string> = new Set(['/healthz', '/readyz', '/metrics']);

interface Options {
  readonly trustProxy: Config['http']['trustProxy'];
  readonly log: Log;
  readonly clock: Clock;
  readonly metrics: HttpMetrics;
  /** Absent: nothing is traced. */
  readonly tracing: Tracing | undefined;
}

/** Gives a request its id and address, counts it and writes one line when it ends: no header, query or body. */
export function requestStarter({ trustProxy, log, clock, metrics, tracing }: Options) {
  const addressOf = addressReader(trustProxy);
  // Nothing in these lines is a secret; looking for some costs more than writing them.
  const lines = log.child({}, { redact: [] });
  return (request: IncomingMessage, response: ServerResponse): RequestLocals => {
    const locals: RequestLocals = {
      requestId: newId('req'),
      arrivedMs: clock.now(),
      ip: addressOf(request),
      headers: [],
    };
    Object.assign(response, { locals });
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

/** Express notes the route it has found, with its path as the code has it. */
const routeOf = (request: IncomingMessage & { route?: { path?: string } }, { route }: RequestLocals) =>
  route ?? request.route?.path;

/** The path of a request's target, without the query. */
export function pathOf({ url = '/' }: IncomingMessage): string {
  const end = url.indexOf('?');
  return end < 0 ? url : url.slice(0, end);
}

/** The methods that HTTP's own documents define; whatever else comes is one (OpenTelemetry, "HTTP server"). */
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

/** In place of the path stands the route's: paths hold secrets, and names of users. Without a route nothing is said of it. */
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

/** The peer's address, or what the proxies that are trusted say of it. */
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
  // Probes come every few seconds and say nothing.
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

/** Session ids and the links of the pages are secrets that stand in paths. */
const withoutSecrets = (path: string): string =>
  path
    .replace(
      /^(\/+(?:connect|manage|oauth\/done|v1\/identity\/sessions)\/+)[^/]+/i,
      (whole, before: string) => (OPEN_PATHS.has(whole) ? whole : `${before}:secret`),
    )
    // Wherever else one was put by mistake.
    .replaceAll(/(?:ses|sbr|link|done|page|web|sbk_live)_[\w-]{20,}|eyJ[\w.-]{20,}/g, ':secret');

const OPEN_PATHS = new Set(['/manage/disconnect', '/manage/revoke-all']);
