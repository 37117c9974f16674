import { getDomain } from 'tldts';
import type { IssuerMetadata } from './metadata.ts';

/** The placeholder for the domain that the callback of a sign-in names. */
const PLACE = '{domain}';

/** Returns whether a token host still has the placeholder. */
export const isOpen = (tokenHost: string | undefined): tokenHost is string =>
  tokenHost?.includes(PLACE) === true;

/**
 * Returns the host of the token endpoint, with what a callback names in it. The host gets the code and the secret of a
 * registered client, and a browser brought its name, so that it must be of the issuer's own registrable domain.
 * @throws Error if it is not, or is no plain host name
 */
export function tokenHostOf(tokenHost: string, named: string | null, issuer: string): string {
  const host = tokenHost.replace(PLACE, () => named ?? '').toLowerCase();
  const own = domainOf(new URL(issuer).hostname);
  if (!HOST_NAME.test(host) || own === null || domainOf(host) !== own)
    throw new Error("the callback's domain names no host of the issuer's own domain");
  return host;
}

/** Returns metadata whose token and revocation endpoints are at this host. */
export function atTokenHost<M extends IssuerMetadata>(metadata: M, host: string): M {
  const moved = (endpoint: string) => Object.assign(new URL(endpoint), { hostname: host }).href;
  const { token_endpoint: token, revocation_endpoint: revocation } = metadata;
  return {
    ...metadata,
    token_endpoint: moved(token),
    ...(revocation === undefined ? {} : { revocation_endpoint: moved(revocation) }),
  };
}

/** Without user, port and path, and with no part that is empty. */
const HOST_NAME = /^(?=.{1,253}$)[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})+$/;

/** Returns null for an IP address, a public suffix, and a name without a domain. */
const domainOf = (host: string) => getDomain(host, { allowPrivateDomains: true });
