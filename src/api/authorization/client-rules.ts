import { errors } from 'oidc-provider';
import { isOnLoopback } from '../../config/setting.ts';
import { sanitise } from '../../platform/sanitize.ts';

/** The member that makes `oidc-provider` ask for our rules. It has no meaning of its own here. */
export const RULED_MEMBER = 'software_id';

const GRANT_TYPES = ['authorization_code', 'refresh_token'];
/** Schemes of others, besides those that `oidc-provider` refuses: what opens them is no app that has just asked. */
const FOREIGN_SCHEMES: ReadonlySet<string> = new Set(
  'ftp: ws: wss: mailto: tel: sms: urn: view-source: filesystem: jar: intent: ldap: ldaps: smb: ssh: ms-msdt: search-ms:'.split(
    ' ',
  ),
);
const MAX_NAME_CHARS = 100;
const MAX_REDIRECTS = 20;

/** Returns whether an address is one of an app on the user's own machine. */
export const isLoopback = (url: URL): boolean => url.protocol === 'http:' && isOnLoopback(url);

type Metadata = Record<string, unknown>;

/**
 * Adjusts what a client says of itself, at its registration (RFC 7591) or in its document (OAuth Client ID Metadata Document),
 * before it is checked. Real clients say more than we serve, and do not say that they are native apps.
 * @throws errors.InvalidClientMetadata
 */
export function applyClientRules(metadata: Metadata): void {
  const redirects = urlsOf(metadata['redirect_uris']);
  // Codes for a native app go to an address of its machine, with any port (RFC 8252 §7.3), or to a scheme of its own.
  metadata['application_type'] = redirects.every(({ protocol }) => protocol === 'https:') ? 'web' : 'native';
  metadata['grant_types'] = GRANT_TYPES;
  metadata['response_types'] = ['code'];
  // A client may ask for any of our scopes.
  delete metadata['scope'];
  const name = metadata['client_name'];
  if (typeof name === 'string') metadata['client_name'] = sanitise(name, MAX_NAME_CHARS);
}

function urlsOf(value: unknown): readonly URL[] {
  const texts = Array.isArray(value) ? (value as unknown[]) : [];
  if (texts.length > MAX_REDIRECTS)
    throw new errors.InvalidClientMetadata(`redirect_uris must have at most ${MAX_REDIRECTS} members`);
  return texts.flatMap(text => {
    const url = typeof text === 'string' ? URL.parse(text) : null;
    // `oidc-provider` says what is wrong with the others.
    if (!url) return [];
    if (url.protocol === 'http:' && !isLoopback(url))
      throw new errors.InvalidClientMetadata(
        'redirect_uris must be https, or http on loopback, or have a scheme of the app itself',
      );
    if (FOREIGN_SCHEMES.has(url.protocol))
      throw new errors.InvalidClientMetadata(`redirect_uris must not have the scheme ${url.protocol}`);
    return [url];
  });
}
