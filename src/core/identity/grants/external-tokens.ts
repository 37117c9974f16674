import { createRemoteJWKSet, customFetch, decodeJwt, errors, jwtVerify, type JWTPayload } from 'jose';
import type { ExternalIssuer } from '../../../config/index.ts';
import { SwitchboardError } from '../../../errors.ts';
import type { GuardedFetch } from '../../../platform/outbound/fetch.ts';
import type { Guard } from '../../../platform/outbound/guard.ts';
import { sanitise } from '../../../platform/sanitize.ts';
import { SingleFlight } from '../../../platform/queues.ts';
import { ThrottledLog } from '../../../platform/telemetry/throttled-log.ts';
import { invalidAccessToken, type ClientKeys } from '../../access/client-keys.ts';
import { isUserId } from '../../access/tenants.ts';
import type { IdentityContext } from '../context.ts';
import { MetadataError, MetadataReader } from '../oauth/metadata.ts';
import { CLOCK_TOLERANCE_SEC } from '../tokens/identity-token.ts';
import type { TokenVerifier, VerifiedToken } from './access-tokens.ts';
import { keyScopesOf } from './scopes.ts';

/** Tokens of Entra with many groups have several thousand characters. */
const MAX_TOKEN_CHARS = 16 * 1024;
const ALGORITHMS = ['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512', 'ES256', 'ES384', 'EdDSA'];
/** The address of its keys is read again after this time. */
const METADATA_MS = 60 * 60_000;
/** After a failure, nobody asks for it for so long. */
const FAILED_MS = 2_000;

interface Parts {
  readonly context: IdentityContext;
  readonly clients: Pick<ClientKeys, 'ensure'>;
  readonly fetch: GuardedFetch;
  readonly guard: Pick<Guard, 'check'>;
  readonly settings: ExternalIssuer;
}

/**
 * Verifies the access tokens of an authorization server of the operator's, such as Keycloak or Entra. A key stands for each pair of
 * user and client; it is created with the first token.
 */
export class ExternalTokens implements TokenVerifier {
  readonly #parts: Parts;
  readonly #reader: MetadataReader;
  readonly #reading = new SingleFlight<ReturnType<typeof createRemoteJWKSet>>();
  readonly #warnings: ThrottledLog;
  #failedAtMs = -Infinity;
  #keys: { readonly atMs: number; readonly set: ReturnType<typeof createRemoteJWKSet> } | undefined;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#reader = new MetadataReader(parts);
    this.#warnings = new ThrottledLog(parts.context.log, parts.context.clock);
  }

  /** @throws SwitchboardError `unauthorized`, which says which setting to look at: the operator has to make both ends meet */
  requireAudience(audiences: readonly string[], resource: string): void {
    const { settings } = this.#parts;
    const wanted = settings.audiences ?? [resource];
    if (audiences.some(one => wanted.includes(one))) return;
    const text = `The access token is for ${audiences.join(', ') || 'no audience'}, not for ${wanted.join(' or ')}. Configure ${settings.issuer} to issue tokens for it, or set "audience" in SWITCHBOARD_MCP_SIGN_IN.`;
    this.#warnings.warn({ issuer: settings.issuer, audiences, wanted }, text);
    throw new SwitchboardError('unauthorized', text);
  }

  /** @throws SwitchboardError also `insufficient_scope`, and `unavailable` if the keys of the issuer cannot be read */
  async verify(token: string, resource: string): Promise<VerifiedToken> {
    const { settings } = this.#parts;
    if (token.length > MAX_TOKEN_CHARS || !isOf(settings.issuer, token)) throw invalidAccessToken();
    const payload = await this.#payloadOf(token, await this.#keySet());
    const { aud = [], iat = 0, exp = 0 } = payload;
    const audiences = [aud].flat();
    this.requireAudience(audiences, resource);
    const names = claimedScopes(payload);
    const scopes = keyScopesOf(
      Object.entries(settings.scopes).flatMap(([ours, theirs]) => (isAmong(theirs, names) ? ours : [])),
    );
    if (scopes.length === 0) throw this.#withoutScopes();
    const clientId = sanitise(textIn(payload, 'azp', 'client_id', 'appid') ?? 'unknown');
    const keyId = await this.#parts.clients.ensure({
      tenantId: settings.tenant,
      userId: this.#userOf(payload),
      clientId,
      name: clientId,
      resource: settings.issuer,
      signedInAt: new Date(iat * 1000),
    });
    // A user who was revoked must sign in again.
    if (keyId === undefined) throw invalidAccessToken();
    return { keyId, audiences, scopes: new Set(scopes), exp };
  }

  async #payloadOf(token: string, keys: ReturnType<typeof createRemoteJWKSet>): Promise<JWTPayload> {
    const { context, settings } = this.#parts;
    try {
      const { payload, protectedHeader } = await jwtVerify(token, keys, {
        algorithms: ALGORITHMS,
        issuer: settings.issuer,
        currentDate: new Date(context.clock.now()),
        clockTolerance: CLOCK_TOLERANCE_SEC,
        requiredClaims: ['exp', 'iat', 'sub'],
      });
      const isEarly = (payload.iat ?? 0) > context.clock.now() / 1000 + CLOCK_TOLERANCE_SEC;
      if (isEarly || !isAccessToken(protectedHeader.typ, payload)) throw invalidAccessToken();
      return payload;
    } catch (cause) {
      if (cause instanceof errors.JWKSTimeout) throw this.#unavailable(cause);
      if (cause instanceof errors.JOSEError && !isFetchFailure(cause)) throw invalidAccessToken(cause);
      if (cause instanceof SwitchboardError) throw cause;
      throw this.#unavailable(cause);
    }
  }

  #userOf(payload: JWTPayload): string {
    const { userClaim } = this.#parts.settings;
    const value = payload[userClaim];
    const isVerified = userClaim !== 'email' || payload['email_verified'] === true;
    if (typeof value === 'string' && isUserId(value) && isVerified) return value;
    const text = `The access token has no usable claim ${userClaim}${userClaim === 'email' ? ' with email_verified' : ''}, which "user_claim" in SWITCHBOARD_MCP_SIGN_IN names.`;
    this.#warnings.warn({ issuer: this.#parts.settings.issuer }, text);
    throw new SwitchboardError('unauthorized', text);
  }

  #withoutScopes(): SwitchboardError {
    const { issuer, scopes } = this.#parts.settings;
    const names = Object.values(scopes).join(' or ');
    const text = `The access token has neither of the scopes ${names}. Configure ${issuer} to give them to the client, or set "scopes" in SWITCHBOARD_MCP_SIGN_IN.`;
    this.#warnings.warn({ issuer }, text);
    return new SwitchboardError('insufficient_scope', text);
  }

  async #keySet(): Promise<ReturnType<typeof createRemoteJWKSet>> {
    const { context } = this.#parts;
    if (context.clock.now() - this.#failedAtMs < FAILED_MS) throw this.#unavailable(undefined);
    if (this.#keys && context.clock.now() - this.#keys.atMs < METADATA_MS) return this.#keys.set;
    return this.#reading.run('keys', async () => {
      try {
        const { jwks_uri: address } = await this.#reader.issuer(this.#parts.settings.issuer);
        if (address === undefined) throw new MetadataError('invalid', 'it names no jwks_uri');
        const set = createRemoteJWKSet(new URL(address), {
          [customFetch]: (url, { headers, method, signal }) =>
            this.#parts.fetch(url, { method, headers: Object.fromEntries(headers), signal }),
        });
        this.#keys = { atMs: context.clock.now(), set };
        return set;
      } catch (cause) {
        if (this.#keys) return this.#keys.set;
        this.#failedAtMs = context.clock.now();
        throw this.#unavailable(cause);
      }
    });
  }

  #unavailable(cause: unknown): SwitchboardError {
    const { issuer } = this.#parts.settings;
    this.#warnings.warn({ err: cause, issuer }, 'cannot read the keys of the authorization server');
    const text = `The keys of the authorization server ${issuer} cannot be read. Try again soon.`;
    return new SwitchboardError('unavailable', text, { retryAfterSec: 5, cause });
  }
}

/** A response of the key set's server that is no key set. */
const isFetchFailure = (error: errors.JOSEError): boolean => error.code === 'ERR_JOSE_GENERIC';

/** Names are in `scope` (RFC 9068), `scp` (Entra, Okta), `roles` (Entra, for apps) or `permissions` (Auth0). */
function claimedScopes(payload: JWTPayload): readonly string[] {
  return ['scope', 'scp', 'roles', 'permissions'].flatMap(claim => {
    const value = payload[claim];
    if (typeof value === 'string') return value.split(' ');
    return Array.isArray(value) ? value.filter(one => typeof one === 'string') : [];
  });
}

/** Entra is asked for `api://…/mcp.call`, and says `mcp.call`. */
const isAmong = (name: string, names: readonly string[]): boolean =>
  names.includes(name) || (name.includes('://') && names.includes(name.slice(name.lastIndexOf('/') + 1)));

/** Returns whether a token says that it is of an issuer. Any other needs no keys. */
function isOf(issuer: string, token: string): boolean {
  try {
    return decodeJwt(token).iss === issuer;
  } catch {
    return false;
  }
}

/** Tells access tokens from those that say who somebody is. Keycloak has the claim `typ`, and older ones of it a nonce in both. */
const isAccessToken = (type: string | undefined, payload: JWTPayload): boolean =>
  [undefined, 'jwt', 'at+jwt', 'application/at+jwt'].includes(type?.toLowerCase()) &&
  payload['typ'] !== 'ID' &&
  payload['typ'] !== 'Refresh' &&
  (payload['nonce'] === undefined || payload['typ'] === 'Bearer') &&
  ['at_hash', 'events'].every(claim => payload[claim] === undefined);

const textIn = (payload: JWTPayload, ...claims: readonly string[]): string | undefined =>
  claims.map(claim => payload[claim]).find(value => typeof value === 'string');
