import type { IncomingMessage } from 'node:http';
import { SwitchboardError } from '../../errors.ts';

/** Returns why a request is refused. Undefined: it is not. */
export type HostGuard = (request: IncomingMessage, path: string) => SwitchboardError | undefined;

/**
 * Refuses requests whose Host, or Origin where there is one, is not a name this server is called by: without it a web
 * page could reach a server on loopback by DNS rebinding (MCP transports, "Security Warning").
 * @param takesNullOrigin for paths whose forms browsers send with `Origin: null`, because their pages ask for no referrer
 * (Fetch, "append a request `Origin` header"); they must tell by other means who sends them.
 */
export function hostGuard(
  allowedHosts: readonly string[],
  takesNullOrigin: (path: string) => boolean,
): HostGuard {
  const allowed = new Set(allowedHosts);
  if (allowed.has('*')) return () => undefined;
  const hosts = new Allowed(host => allowed.has(hostnameOf(`http://${host}`) ?? ''));
  const origins = new Allowed(origin => allowed.has(hostnameOf(origin) ?? ''));
  return ({ headers: { host = '', origin } }, path) => {
    if (!hosts.has(host)) return refusal('Host');
    if (origin === undefined || (origin === 'null' && takesNullOrigin(path))) return undefined;
    return origins.has(origin) ? undefined : refusal('Origin');
  };
}

/** Remembers header values that were found to be allowed, so that those which every request sends are parsed once. */
class Allowed {
  readonly #seen = new Set<string>();
  readonly #isAllowed: (value: string) => boolean;

  constructor(isAllowed: (value: string) => boolean) {
    this.#isAllowed = isAllowed;
  }

  has(value: string): boolean {
    if (this.#seen.has(value)) return true;
    if (!this.#isAllowed(value)) return false;
    // A host can be written with any port.
    if (this.#seen.size < 100) this.#seen.add(value);
    return true;
  }
}

const hostnameOf = (url: string): string | undefined =>
  URL.canParse(url) ? new URL(url).hostname : undefined;

const refusal = (header: 'Host' | 'Origin') =>
  new SwitchboardError(
    'host_not_allowed',
    `The ${header} header names a host that is not allowed here. The operator can add it to SWITCHBOARD_ALLOWED_HOSTS.`,
  );
