import type { ExternalIssuer } from '../../../config/index.ts';
import type { GuardedFetch } from '../../../platform/outbound/fetch.ts';
import type { Guard } from '../../../platform/outbound/guard.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import type { Sealing } from '../../../platform/sealing.ts';
import type { ApiKeys } from '../../access/api-keys.ts';
import type { Actor } from '../../access/audit.ts';
import type { Principal } from '../../access/caller.ts';
import type { IdentityContext } from '../context.ts';
import type { PageHolder } from '../manage.ts';
import type { SigningKeys } from '../tokens/identity-token.ts';
import { AccessTokens } from './access-tokens.ts';
import { ExternalTokens } from './external-tokens.ts';
import { OwnTokens } from './own-tokens.ts';
import { AuthorizationRecords } from './records.ts';
import { keyScopesOf } from './scopes.ts';

/** A sign-in ends when it was not used for this long, in seconds. */
export const UNUSED_SEC = 30 * 86_400;
/** A registered client is kept for this time after a user met it, in seconds. */
const CLIENT_SEC = 60 * 86_400;
/** The time between a user's consent and the client's first tokens. */
const FIRST_TOKENS_SEC = 600;

/** The consent of a user that an MCP client may act for them. */
export interface Consent {
  readonly clientId: string;
  /** The client's name for itself. */
  readonly name: string;
  /** The address that its tokens will be for. */
  readonly resource: string;
  /** Such as `mcp:call`. */
  readonly scopes: readonly string[];
}

interface Parts {
  readonly context: IdentityContext;
  readonly apiKeys: ApiKeys;
  readonly keys: SigningKeys;
  readonly sealing: Pick<Sealing, 'secretsFor'>;
  /** Fetches what clients say of themselves, behind the outbound guard. */
  readonly fetch: GuardedFetch;
  readonly guard: Pick<Guard, 'check'>;
  /** An authorization server of the operator's; undefined: Switchboard's own. */
  readonly external: ExternalIssuer | undefined;
  /** How long a second use of a refresh token counts as a race instead of theft. */
  readonly refreshRaceMs: number;
}

/**
 * Sign-ins of MCP clients by their users (OAuth grants). An API key stands for each: it carries the user, the scopes and the quota,
 * is listed and revoked like any other, and is never sent. The client sends access tokens that name it.
 */
export class Grants {
  readonly records: AuthorizationRecords;
  readonly #parts: Parts;
  readonly #tokens: AccessTokens;

  constructor(parts: Parts) {
    const { context, apiKeys, keys } = parts;
    this.#parts = parts;
    this.records = new AuthorizationRecords(context.db, context.vault);
    const { clock } = context;
    const verifier = parts.external
      ? new ExternalTokens({ ...parts, clients: apiKeys.clients, settings: parts.external })
      : new OwnTokens({ keys, clock, issuer: () => this.issuer });
    this.#tokens = new AccessTokens({ verifier, apiKeys, clock });
  }

  /** The address below which clients connect, without a trailing slash. */
  get publicUrl(): string {
    return this.#parts.context.publicUrl();
  }

  /** The issuer identifier of the authorization server that clients are led to. */
  get issuer(): string {
    return this.external?.issuer ?? `${this.publicUrl}/auth`;
  }

  /** An authorization server of the operator's; undefined: Switchboard's own. */
  get external(): ExternalIssuer | undefined {
    return this.#parts.external;
  }

  /** Returns the holder of an access token for an address. @throws SwitchboardError `unauthorized` */
  authenticate(token: string, resource: string): Principal | Promise<Principal> {
    return this.#tokens.authenticate(token, resource);
  }

  get fetch(): GuardedFetch {
    return this.#parts.fetch;
  }

  get refreshRaceMs(): number {
    return this.#parts.refreshRaceMs;
  }

  get log(): Log {
    return this.#parts.context.log;
  }

  /** Secrets that sign the authorization server's cookies in all processes. */
  cookieKeys(): readonly string[] {
    return this.#parts.sealing.secretsFor('authorization-cookies');
  }

  /** The key that the authorization server signs access tokens with, as a private JWK. */
  signingKey() {
    return this.#parts.keys.privateJwk();
  }

  /** The id of that key. */
  async signingKeyId(): Promise<string> {
    return (await this.#parts.keys.active()).kid;
  }

  /** Records a consent. Resolves to the id of the key that stands for it; undefined if the user was revoked meanwhile. */
  create(holder: PageHolder, consent: Consent, actor: Actor): Promise<string | undefined> {
    const { tenantId, userId, epoch } = holder;
    const { clock } = this.#parts.context;
    const { clientId, resource, name, scopes } = consent;
    const key = { tenantId, name, clientId, resource, scopes: keyScopesOf(scopes) };
    const expiresAt = new Date(clock.now() + FIRST_TOKENS_SEC * 1000);
    const user = { id: userId, tokenEpoch: epoch };
    return this.#parts.apiKeys.clients.create({ ...key, user, expiresAt }, { ...actor, tenantId });
  }

  /** Lets a sign-in last for a time from now, in seconds. */
  prolong(keyId: string, seconds: number): Promise<void> {
    const { apiKeys, context } = this.#parts;
    return apiKeys.clients.prolong(keyId, new Date(context.clock.now() + seconds * 1000));
  }

  /** Keeps the registration of a client that a user has met. A client that is known by its document has none. */
  keepClient(clientId: string): Promise<void> {
    return this.records.prolong('Client', clientId, CLIENT_SEC);
  }

  /** Records that a code or refresh token of a sign-in was used again. */
  async noteReuse(keyId: string): Promise<void> {
    const { audit } = this.#parts.context;
    await audit.record({}, { event: 'client_token_reused', outcome: 'refused', meta: { key: keyId } });
  }

  /** Ends a sign-in whose code or refresh token was used twice, or that the client has ended. */
  async end(keyId: string): Promise<void> {
    await this.#parts.apiKeys.revoke(keyId);
  }
}
