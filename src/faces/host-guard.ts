import type { RequestHandler } from 'express';
import { SwitchboardError } from '../errors.ts';

/**
 * Refuses requests whose Host, or Origin where there is one, is not a name this server is called by: without it a web
 * page could reach a server on loopback by DNS rebinding (MCP transports, "Security Warning").
 * @param takesNullOrigin for paths whose forms browsers send with `Origin: null`, because their pages ask for no referrer
 * (Fetch, "append a request `Origin` header"); they must tell by other means who sends them.
 */
export function hostGuard(
  allowedHosts: readonly string[],
  takesNullOrigin: (path: string) => boolean,
): RequestHandler {
  const allowed = new Set(allowedHosts);
  return (request, _response, next) => {
    if (allowed.has('*')) return next();
    const host = hostnameOf(`http://${request.headers.host ?? ''}`);
    const { origin } = request.headers;
    if (host === undefined || !allowed.has(host)) return next(refusal('Host'));
    if (origin === 'null' && takesNullOrigin(request.path)) return next();
    if (origin !== undefined && !allowed.has(hostnameOf(origin) ?? '')) return next(refusal('Origin'));
    return next();
  };
}

const hostnameOf = (url: string): string | undefined =>
  URL.canParse(url) ? new URL(url).hostname : undefined;

const refusal = (header: 'Host' | 'Origin') =>
  new SwitchboardError(
    'host_not_allowed',
    `The ${header} header names a host this server is not called by. Its operator can add it to SWITCHBOARD_ALLOWED_HOSTS.`,
  );
