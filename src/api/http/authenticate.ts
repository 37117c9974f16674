import type { IncomingMessage } from 'node:http';
import type { Principal } from '../../core/access/caller.ts';
import type { Core } from '../../core/core.ts';
import { invalidToken } from '../../core/identity/tokens/identity-token.ts';
import { SwitchboardError } from '../../errors.ts';
import { singleHeader } from './http.ts';

interface Credentials {
  readonly key: string | undefined;
  /** An identity token. */
  readonly token: string | undefined;
  /** Whether the key may come as a Bearer, too: the refusal says so. */
  readonly keyMayBeBearer?: boolean;
  /** Where the request came from: wrong keys are counted there. */
  readonly ip?: string | undefined;
}

/**
 * Who calls, and for which end user. An identity token is checked as far as it goes by itself; whether its user has been
 * revoked is asked where it is used, in the query that is made there anyway.
 * @throws SwitchboardError `unauthorized`, `identity_token_invalid`, `rate_limited` (failed attempts from one address).
 */
export async function authenticate(core: Core, credentials: Credentials): Promise<Principal> {
  const { token } = credentials;
  const principal = await principalOf(core, credentials);
  if (token === undefined) return principal;
  const subject = await core.identity.tokens.verify(token, principal.tenantId);
  // A key bound to one user cannot act for another.
  if (principal.subject && principal.subject.userId !== subject.userId) throw invalidToken();
  return { ...principal, subject };
}

/** Only failures are counted, so that a good key works from an address that somebody else spoils with wrong ones. */
async function principalOf(core: Core, { key, ip, keyMayBeBearer = false }: Credentials): Promise<Principal> {
  try {
    const isGuarded = ip === undefined ? undefined : () => core.rateLimits.isSpent('failedAuth', ip);
    return await core.apiKeys.authenticate(key, isGuarded);
  } catch (error) {
    if (!(error instanceof SwitchboardError) || error.code !== 'unauthorized') throw error;
    if (ip !== undefined) await core.rateLimits.take('failedAuth', ip);
    const ways = keyMayBeBearer
      ? 'X-API-Key, or as Authorization: Bearer'
      : "X-API-Key (a Bearer token is taken for a user's identity here)";
    const detail = `Send a valid API key in the header ${ways}. \`switchboard keys create\` makes one.`;
    throw new SwitchboardError('unauthorized', detail);
  }
}

/** The token of an Authorization header; '' for one that is no Bearer token, which is then as invalid as any other. */
export function bearerOf(request: IncomingMessage): string | undefined {
  const { authorization } = request.headers;
  if (authorization === undefined) return undefined;
  return /^Bearer +(\S+)$/i.exec(authorization)?.[1] ?? '';
}

/**
 * What an MCP client sends: `X-API-Key`, with the user's identity token as a Bearer beside it; for clients that can send
 * nothing but a Bearer, that is the key.
 */
export function presented(request: IncomingMessage): Credentials {
  const key = singleHeader(request, 'x-api-key');
  const bearer = bearerOf(request);
  return { key: key ?? bearer, token: key === undefined ? undefined : bearer, keyMayBeBearer: true };
}
