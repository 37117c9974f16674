import { and, eq, gt, isNull, sql } from 'drizzle-orm';
import { askOperator, SwitchboardError } from '../../../errors.ts';
import type { Database } from '../../../platform/database/database.ts';
import { LastUsed } from '../../../platform/database/write-behind.ts';
import type { Caller, Subject } from '../../access/caller.ts';
import { users } from '../../access/schema.ts';
import type { ServerHead } from '../../catalogue/entry.ts';
import type { IdentityContext } from '../context.ts';
import { withoutSecrets } from '../oauth/challenge.ts';
import type { ServerAuthorization } from '../oauth/server-authorization.ts';
import { connections, tokenFamilies } from '../schema.ts';
import type { Sessions } from '../sign-in/sessions.ts';
import { invalidToken } from '../tokens/identity-token.ts';
import { AccessTokens } from './access-tokens.ts';
import { isConnectionOf, type Connections } from './connections.ts';
import {
  connectionKey,
  heldColumns,
  isFresh,
  targetOf,
  type Credential,
  type HeldConnection,
  type Holdings,
  type Target,
} from './holdings.ts';
import type { Provider } from './provider.ts';
import { ServerCredentials, type Refusal } from './server-credentials.ts';

/** The sign-in required by a server's entry, if the provider's settings allow it. */
interface Demand {
  readonly serverId: string;
  readonly provider: Provider;
  readonly scopes: readonly string[];
  readonly resource: string;
}

/**
 * Decides which provider token goes to which server. A token is released only if the server's entry names a provider, that
 * provider's settings name the server's origin, and the user has connected an account with the required scopes.
 */
export class Credentials {
  readonly #context: IdentityContext;
  readonly #sessions: Sessions;
  readonly #find: ReturnType<typeof prepareFind>;
  readonly #tokens: AccessTokens;
  readonly #servers: ServerCredentials;
  readonly #lastUsed: LastUsed;
  /** Parsing an address takes longer than the rest of finding a connection. A changed server is another object. */
  readonly #demands = new WeakMap<ServerHead, Demand>();

  constructor(options: {
    context: IdentityContext;
    connections: Connections;
    sessions: Sessions;
    holdings: Holdings;
    authorization: ServerAuthorization;
  }) {
    this.#context = options.context;
    this.#sessions = options.sessions;
    const { db, clock, log } = options.context;
    this.#find = prepareFind(db);
    this.#tokens = new AccessTokens(options.context, options.connections);
    this.#lastUsed = new LastUsed({
      clock,
      log,
      what: 'connection',
      write: id =>
        db
          .update(connections)
          .set({ lastUsedAt: sql`now()` })
          .where(eq(connections.id, id)),
    });
    this.#servers = new ServerCredentials({ ...options, tokens: this.#tokens, lastUsed: this.#lastUsed });
  }

  /**
   * Returns the credential of a call; undefined if the server takes none, usually immediately if there is no identity token
   * either. For a user, one query checks whether the identity token is still valid and loads the connection.
   * @throws SwitchboardError `identity_token_required`, `identity_token_invalid`, `connection_required` (with a sign-in
   * link), `provider_not_configured`, `provider_unavailable`
   */
  forCall(caller: Caller, server: ServerHead): Promise<Credential | undefined> | Credential | undefined {
    const demand = this.#demandOf(server);
    if (demand) return this.#ofProvider(caller, demand);
    return caller.subject ? this.#ofServer(caller, server) : this.#servers.forKey(caller, server);
  }

  async #ofProvider(caller: Caller, demand: Demand): Promise<Credential> {
    return this.#use(caller, demand, await this.#load(caller, targetAt(demand)));
  }

  async #ofServer(caller: Caller, server: ServerHead): Promise<Credential | undefined> {
    return this.#servers.forUser(caller, server, await this.#load(caller, targetOf(server)));
  }

  /**
   * Returns the credential with which a refused call is repeated; undefined if the refusal stands.
   * @param refused the credential of the call, if it carried one
   * @throws SwitchboardError `connection_required` if somebody must connect the server, enter another key or grant more scopes
   */
  async renewAfterRefusal(
    caller: Caller,
    server: ServerHead,
    refused: Credential | undefined,
    refusal: Refusal,
  ): Promise<Credential | undefined> {
    const demand = this.#demandOf(server);
    if (demand) return refusal.status === 401 ? this.#renewAtProvider(caller, demand, refused) : undefined;
    const own = caller.subject && (await this.#load(caller, targetOf(server)));
    if (!refused) return this.#servers.learnFromRefusal(caller, server, { own, refusal });
    const challenge = withoutSecrets(refusal.challenge, refused.secrets);
    return this.#servers.handleRefusal(caller, server, refused, { own, refusal: { ...refusal, challenge } });
  }

  async #renewAtProvider(
    caller: Caller,
    demand: Demand,
    refused: Credential | undefined,
  ): Promise<Credential | undefined> {
    if (!refused) return undefined;
    const connection = await this.#load(caller, targetAt(demand));
    if (!connection || connectionKey(connection) !== refused.connectionKey) return undefined;
    const isNewer = connection.version > refused.version;
    if (!isNewer && !this.#tokens.tryReserveRefresh(connection)) return undefined;
    const offered = await this.#use(caller, demand, connection, { refused: !isNewer });
    // If the provider is unavailable, this is the token that was refused.
    return offered.version > refused.version ? offered : undefined;
  }

  /**
   * Checks an identity token that the call does not need: a token is never silently ignored.
   * @throws SwitchboardError `identity_token_invalid`
   */
  async requireLive(caller: Caller): Promise<void> {
    if (caller.subject) await this.#load(caller, undefined);
  }

  /** Waits for pending writes. */
  async close(): Promise<void> {
    await this.#lastUsed.close();
  }

  /** @throws SwitchboardError `provider_not_configured` */
  #demandOf(server: ServerHead): Demand | undefined {
    const { auth, remoteUrl, id } = server;
    if (auth.kind !== 'user_oauth' || auth.provider === undefined) return undefined;
    const known = this.#demands.get(server);
    if (known) return known;
    const provider = this.#context.providers.get(auth.provider);
    const origin = new URL(remoteUrl).origin;
    if (!provider?.settings.allowedOrigins.includes(origin)) {
      throw new SwitchboardError(
        'provider_not_configured',
        provider
          ? `The server ${id} requires a sign-in with ${auth.provider}, whose allowed_origins does not include ${origin}.`
          : `The server ${id} requires a sign-in with ${auth.provider}, which is not configured.`,
        { advice: askOperator('add it to SWITCHBOARD_PROVIDERS.') },
      );
    }
    const demand = { serverId: id, provider, scopes: auth.scopes ?? [], resource: auth.resource ?? '' };
    this.#demands.set(server, demand);
    return demand;
  }

  /** Returns the user's connection with a target. @throws SwitchboardError `identity_token_required`, `identity_token_invalid` */
  async #load(caller: Caller, target: Target | undefined): Promise<HeldConnection | undefined> {
    const { subject } = caller;
    if (!subject) throw tokenRequired();
    const [row] = await this.#find.execute({
      userId: subject.userId,
      tenantId: caller.tenantId,
      familyId: subject.familyId ?? '',
      provider: target?.provider ?? '',
      resource: target?.resource ?? '',
    });
    if (!row || !isLive(subject, row)) throw invalidToken();
    return row.connection === null ? undefined : { ...row.connection, fresh: row.fresh };
  }

  async #use(
    caller: Caller,
    demand: Demand,
    connection: HeldConnection | undefined,
    options?: { readonly refused: boolean },
  ): Promise<Credential> {
    if (!connection) throw await this.#required(caller, demand, 'not_connected', { missing: demand.scopes });
    if (connection.status === 'needs_reauth') throw await this.#required(caller, demand, 'needs_reauth');
    const held = connection.scopes;
    const missing = demand.scopes.filter(scope => !held.includes(scope));
    if (missing.length > 0) throw await this.#required(caller, demand, 'missing_scopes', { missing, held });
    const credential = await this.#tokens.of(connection, () => demand.provider.ready(), options);
    if (!credential) throw await this.#required(caller, demand, 'needs_reauth');
    this.#lastUsed.touch(connection.id);
    return credential;
  }

  async #required(
    caller: Caller,
    demand: Demand,
    reason: 'not_connected' | 'needs_reauth' | 'missing_scopes',
    { missing = [], held = [] }: { missing?: readonly string[]; held?: readonly string[] } = {},
  ): Promise<SwitchboardError> {
    const { provider, resource } = demand;
    const { name, title } = provider.settings;
    const scopes = [...new Set([...held, ...demand.scopes])];
    const session = await this.#sessions.justInTime(caller, { provider, scopes, resource });
    return new SwitchboardError(
      'connection_required',
      `${REASONS[reason](title)} Ask the user to open auth_url and sign in, then repeat the call.`,
      {
        members: {
          kind: 'provider',
          server_id: demand.serverId,
          provider: name,
          reason,
          missing,
          missing_scopes: missing,
          ...session,
        },
      },
    );
  }
}

const targetAt = ({ provider, resource }: Demand): Target => ({ provider: provider.settings.name, resource });

const REASONS = {
  not_connected: (title: string) => `The user has not connected a ${title} account yet.`,
  needs_reauth: (title: string) => `The user's connection to ${title} has ended and must be renewed.`,
  missing_scopes: (title: string) => `The user's connection to ${title} lacks scopes that this server needs.`,
};

const tokenRequired = () =>
  new SwitchboardError(
    'identity_token_required',
    'This server acts for an end user, but the request names none.',
    {
      advice: {
        caller:
          "Send the user's identity token as Authorization: Bearer together with X-API-Key. For a client that cannot do that, such as an IDE, the operator can create a key for the user with switchboard keys create --user USER_ID.",
        operator:
          "The command line cannot name one. Call the server over the REST API or /mcp, with the user's identity token or a key from keys create --user.",
      },
    },
  );

/** Prepares the single query of a call: whether user and family are still valid, and the connection. */
function prepareFind(db: Database) {
  return db
    .select({
      epoch: users.tokenEpoch,
      familyId: tokenFamilies.id,
      connection: heldColumns,
      fresh: isFresh(),
    })
    .from(users)
    .leftJoin(
      tokenFamilies,
      and(
        eq(tokenFamilies.id, sql.placeholder('familyId')),
        eq(tokenFamilies.userId, users.id),
        isNull(tokenFamilies.revokedAt),
        gt(tokenFamilies.expiresAt, sql`now()`),
      ),
    )
    .leftJoin(
      connections,
      isConnectionOf({
        userId: users.id,
        provider: sql.placeholder('provider'),
        resource: sql.placeholder('resource'),
      }),
    )
    .where(and(eq(users.id, sql.placeholder('userId')), eq(users.tenantId, sql.placeholder('tenantId'))))
    .prepare('find_credential');
}

/** Returns whether the claims of the identity token or the key are still valid. */
const isLive = (subject: Subject, row: { epoch: number; familyId: string | null }): boolean =>
  row.epoch === subject.epoch && (subject.familyId === undefined || row.familyId === subject.familyId);
