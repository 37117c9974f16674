/** The `WWW-Authenticate` challenge of a 401 or 403 response (RFC 6750 §3, RFC 9728 §5.1). */
export interface Challenge {
  /** The scopes that the request needs; undefined if the server names none. */
  readonly scopes?: readonly string[];
  /** The URL of the server's protected resource metadata, unchecked. */
  readonly resourceMetadata?: string;
  /** Such as `invalid_token` or `insufficient_scope`. */
  readonly error?: string;
}

const MAX_CHARS = 8 * 1024;
const MAX_SCOPES = 100;
/** The characters of a URI (RFC 3986 §2). */
const IS_URI = /^[\w\-.~:/?#[\]@!$&'()*+,;=%]+$/;
/** RFC 9110 §11.2: the name of a scheme, then either one token68 or parameters. */
const SCHEME = /[\s,]*([A-Za-z][\w!#$%&'*+.^`|~-]*)(?=[\s,]|$)(?!\s*=)/y;
const PARAMETER = /[\s,]*([\w!#$%&'*+.^`|~-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"=]+)(?![\w=]))/y;
const OTHER = /[\s,]*[^\s,]+/y;

/**
 * Returns the challenge of the Bearer scheme in a `WWW-Authenticate` header, which may have several schemes in several lines.
 * Returns an empty one if there is none.
 */
export function readChallenge(header: string | readonly string[] | undefined): Challenge {
  const text = (typeof header === 'string' ? header : (header?.join(', ') ?? '')).slice(0, MAX_CHARS);
  const parameters = bearerParameters(text);
  const scopes = scopeNames((parameters.get('scope') ?? '').split(/\s+/));
  const resourceMetadata = parameters.get('resource_metadata') ?? '';
  const error = parameters.get('error');
  return {
    ...(scopes.length === 0 ? {} : { scopes }),
    ...(IS_URI.test(resourceMetadata) ? { resourceMetadata } : {}),
    ...(error === undefined ? {} : { error }),
  };
}

/** Returns a challenge without the names and addresses that repeat a secret of the refused request. */
export function withoutSecrets(challenge: Challenge, secrets: readonly string[]): Challenge {
  const { scopes, resourceMetadata, ...rest } = challenge;
  const isClean = (text: string) =>
    !secrets.some(secret => text.includes(secret) || text.includes(encodeURIComponent(secret)));
  const names = scopes?.filter(isClean) ?? [];
  return {
    ...rest,
    ...(names.length === 0 ? {} : { scopes: names }),
    ...(resourceMetadata !== undefined && isClean(resourceMetadata) ? { resourceMetadata } : {}),
  };
}

/** Returns the scope names among words (RFC 6749 §3.3), at most 100. */
export function scopeNames(words: readonly unknown[]): string[] {
  const isName = (word: unknown) =>
    typeof word === 'string' && /^[\x21\x23-\x5b\x5d-\x7e]{1,256}$/.test(word);
  return [...new Set(words.filter((word): word is string => isName(word)))].slice(0, MAX_SCOPES);
}

function bearerParameters(text: string): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  let isBearer = false;
  for (let at = 0; at < text.length;) {
    const take = (pattern: RegExp) => {
      pattern.lastIndex = at;
      const match = pattern.exec(text);
      if (match) at = pattern.lastIndex;
      return match;
    };
    const parameter = take(PARAMETER);
    if (parameter) {
      const [, name = '', quoted, plain = ''] = parameter;
      const key = name.toLowerCase();
      if (isBearer && !found.has(key)) found.set(key, quoted?.replaceAll(/\\(.)/g, '$1') ?? plain);
      continue;
    }
    const scheme = take(SCHEME);
    if (scheme) isBearer = scheme[1]?.toLowerCase() === 'bearer';
    else if (!take(OTHER)) break;
  }
  return found;
}
