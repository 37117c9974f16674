import type { IncomingMessage, ServerResponse } from 'node:http';
import proxyaddr from 'proxy-addr';
import type { Config } from '../config.ts';
import { newId } from '../infra/ids.ts';
import type { Clock } from '../infra/clock.ts';
import type { Log } from '../infra/log.ts';
import type { HttpMetrics } from '../infra/metrics-http.ts';
import { localsOf, type RequestLocals } from './http.ts';

const PROBES: ReadonlySet<string> = new Set(['/healthz', '/readyz', '/metrics']);

interface Options {
  readonly trustProxy: Config['http']['trustProxy'];
  readonly log: Log;
  readonly clock: Clock;
  readonly metrics: HttpMetrics;
}

/** Gives a request its id and address, counts it and writes one line when it ends: no header, query or body. */
export function requestStarter({ trustProxy, log, clock, metrics }: Options) {
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
    response.once('close', () => {
      const durationMs = performance.now() - startedAt;
      const status = response.writableFinished ? response.statusCode : undefined;
      metrics.answered(routeOf(request, locals), request.method, status, durationMs / 1000);
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
  const { requestId, principal } = localsOf(response);
  // Probes come every few seconds and say nothing.
  const level = PROBES.has(path) ? 'debug' : 'info';
  if (!lines.isLevelEnabled(level)) return;
  lines[level](
    {
      requestId,
      method,
      path: withoutSecrets(path).slice(0, 200),
      status: response.statusCode,
      durationMs: Math.round(durationMs * 10) / 10,
      ...(principal === undefined ? {} : { tenantId: principal.tenantId, keyId: principal.keyId }),
      ...(response.writableFinished ? {} : { aborted: true }),
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
