import { and, eq, lte, sql } from 'drizzle-orm';
import { LRUCache } from 'lru-cache';
import { askOperator, SwitchboardError } from '../../../errors.ts';
import type { LastUsed } from '../../../platform/database/write-behind.ts';
import type { Caller } from '../../access/caller.ts';
import { fillIn } from '../../catalogue/credential-schema.ts';
import { accessOf, needsNothing, type ServerHead } from '../../catalogue/entry.ts';
import type { IdentityContext } from '../context.ts';
import type { Challenge } from '../oauth/challenge.ts';
import type { ServerAuthorization } from '../oauth/server-authorization.ts';
import { connections } from '../schema.ts';
import type { Sessions } from '../sign-in/sessions.ts';
import type { AccessTokens } from './access-tokens.ts';
import type { Connections } from './connections.ts';
import {
  connectionKey,
  kindAtServer,
  OPENED,
  type Credential,
  type HeldConnection,
  type Holdings,
} from './holdings.ts';
import type { IssuerOf } from './provider-refresh.ts';

/** A refused key or token is tried again after this long: a server may refuse a good one for a moment. */
const RETRY_REJECTED_SEC = 60;
/** A user is asked for the same scopes at most this often: a server may demand what nobody can grant. */
const MAX_STEP_UPS = 2;
/** And for this many different sets of scopes in an hour: a server may demand another one after each sign-in. */
const MAX_SCOPE_SETS = 5;
const STEP_UPS_MS = 3_600_000;

type Kind = ReturnType<typeof kindAtServer>;
type Reason = 'not_connected' | 'rejected' | 'missing_values' | 'needs_reauth' | 'missing_scopes';

/** A server's refusal of a call. */
export interface Refusal {
  /** The HTTP status: 401, or 403 for `insufficient_scope`. */
  readonly status: number;
  readonly challenge: Challenge;
}

interface Parts {
  readonly context: IdentityContext;
  readonly connections: Connections;
  readonly sessions: Sessions;
  readonly holdings: Holdings;
  readonly tokens: AccessTokens;
  readonly authorization: ServerAuthorization;
  readonly lastUsed: Pick<LastUsed, 'touch'>;
}

/** Makes the headers of calls to servers that take a key, other fixed values, or tokens of their own authorization server. */
export class ServerCredentials {
  readonly #parts: Parts;
  /** Credentials of values. */
  readonly #opened = new LRUCache<string, Ready>(OPENED);
  /** Credentials of shared connections that can be sent, while `Holdings` keeps the row. */
  readonly #ready = new WeakMap<HeldConnection, Ready>();
  /** Versions of a connection whose scopes did not suffice, by connection, then by missing scopes. */
  readonly #steppedUp = new LRUCache<string, Map<string, Set<number>>>({ max: 5_000, ttl: STEP_UPS_MS });
  readonly #issuerOf: IssuerOf;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#issuerOf = async ({ issuedTo }) => {
      if (!issuedTo) throw new Error('the tokens do not say who issued them');
      return parts.authorization.at(issuedTo);
    };
  }

  /**
   * Returns the credential of a call that acts for no user: the connection that the tenant shares. Returns undefined if there is
   * none and the server may work without. Both are usually immediate, because this is on the path of most calls.
   * @throws SwitchboardError `connection_required`
   */
  forKey(caller: Caller, server: ServerHead): Promise<Credential | undefined> | Credential | undefined {
    if (needsNothing(server)) return undefined;
    const held = this.#parts.holdings.peek(caller.tenantId);
    const row = held?.with(server);
    if (held && !row && !needsConnection(server)) return undefined;
    const ready = row && this.#ready.get(row);
    if (!row || !ready || !isFor(ready, server)) return this.#forKey(caller, server);
    this.#parts.lastUsed.touch(row.id);
    return ready.credential;
  }

  async #forKey(caller: Caller, server: ServerHead): Promise<Credential | undefined> {
    const shared = (await this.#parts.holdings.of(caller.tenantId)).with(server);
    const credential = await this.#useOrRequire(caller, server, shared);
    // A token that was refreshed belongs to a newer row.
    if (shared && credential?.version === shared.version && shared.status === 'active' && shared.fresh)
      this.#ready.set(shared, readyFor(server, credential));
    return credential;
  }

  /**
   * Returns the credential of a call for a user: the user's own connection or else, if the operator allows it, the shared one.
   * @param own the user's connection with this server
   * @throws SwitchboardError `connection_required`, with a link to a page where the user connects the server
   */
  async forUser(
    caller: Caller,
    server: ServerHead,
    own: HeldConnection | undefined,
  ): Promise<Credential | undefined> {
    if (needsNothing(server)) return undefined;
    return this.#useOrRequire(caller, server, own ?? (await this.#shared(caller, server)));
  }

  async #useOrRequire(
    caller: Caller,
    server: ServerHead,
    row: HeldConnection | undefined,
  ): Promise<Credential | undefined> {
    if (row) return this.#use(caller, server, row);
    if (needsConnection(server)) throw await this.#required(caller, server, 'not_connected');
    return undefined;
  }

  /**
   * Handles the refusal of a credential. Returns a newer one, if there is one or a refresh gets one; undefined if the refusal
   * stands.
   * @param own the user's connection as it is now
   * @throws SwitchboardError `connection_required`
   */
  async handleRefusal(
    caller: Caller,
    server: ServerHead,
    refused: Credential,
    { own, refusal }: { own: HeldConnection | undefined; refusal: Refusal },
  ): Promise<Credential | undefined> {
    const { holdings } = this.#parts;
    // Another process may have stored something newer.
    holdings.forget(caller.tenantId, caller.subject?.userId);
    const current = own ?? (await this.#shared(caller, server));
    if (!current) return undefined;
    if (connectionKey(current) !== refused.connectionKey || current.version > refused.version)
      return this.#use(caller, server, current);
    if (refusal.status !== 401) return this.#stepUp(caller, server, current, refusal.challenge);
    // One user's calls must not take the shared connection away from the others.
    const isOthers = caller.subject !== undefined && !own;
    const newer =
      current.issuer === null ? undefined : await this.#renew(caller, server, current, refusal, isOthers);
    if (newer || isOthers) return newer;
    await this.#reject(caller, server, current);
    throw await this.#required(caller, server, 'rejected', current);
  }

  /**
   * Learns from a refusal of a call that carried nothing. Returns the credential to try; undefined if there is none and nobody
   * can make one.
   * @param own the user's connection as it is now
   * @throws SwitchboardError `connection_required`
   */
  async learnFromRefusal(
    caller: Caller,
    server: ServerHead,
    { own, refusal }: { own: HeldConnection | undefined; refusal: Refusal },
  ): Promise<Credential | undefined> {
    const { challenge } = refusal;
    const kind = await this.#parts.authorization.learn(server, challenge);
    if (kind === undefined) return undefined;
    const row = own ?? (await this.#shared(caller, server));
    if (row) return this.#use(caller, server, row);
    throw await this.#required(caller, server, 'not_connected', undefined, { kind, challenge });
  }

  /** Returns the tenant's shared connection, if this caller's calls may use it. */
  async #shared({ tenantId, subject }: Caller, server: ServerHead): Promise<HeldConnection | undefined> {
    const row = (await this.#parts.holdings.of(tenantId)).with(server);
    return subject && !row?.forUsers ? undefined : row;
  }

  async #use(caller: Caller, server: ServerHead, row: HeldConnection): Promise<Credential> {
    if (row.status === 'rejected' && !(await this.#reactivateIfDue(row)))
      throw await this.#required(caller, server, 'rejected', row);
    this.#parts.lastUsed.touch(row.id);
    if (row.issuer === null) return this.#values(caller, server, row);
    const credential = await this.#parts.tokens.of(row, this.#issuerOf);
    if (!credential) throw await this.#required(caller, server, 'needs_reauth', row);
    return credential;
  }

  async #values(caller: Caller, server: ServerHead, row: HeldConnection): Promise<Credential> {
    // The whole row, because a sealed text is valid only in its own row.
    const key = JSON.stringify(row);
    const known = this.#opened.get(key);
    if (known && isFor(known, server)) return known.credential;
    const stored = await this.#parts.connections.valuesOf(row);
    if (!stored) throw await this.#required(caller, server, 'not_connected', row);
    const filled = fillIn(server, stored);
    if ('missing' in filled)
      throw await this.#required(caller, server, 'missing_values', row, { missing: filled.missing });
    const credential: Credential = {
      connectionKey: connectionKey(row),
      version: row.version,
      ...filled,
    };
    this.#opened.set(key, readyFor(server, credential));
    return credential;
  }

  /**
   * Returns a refreshed token after a refusal; undefined if there is none.
   * @throws SwitchboardError `connection_required` if the server no longer trusts the token's issuer, which then gets nothing
   */
  async #renew(
    caller: Caller,
    server: ServerHead,
    row: HeldConnection,
    { challenge }: Refusal,
    isOthers: boolean,
  ): Promise<Credential | undefined> {
    const { authorization, connections: all, tokens, holdings } = this.#parts;
    if (!(await authorization.stillNames(server, row.issuer ?? '', challenge))) {
      if (isOthers) return undefined;
      await all.end(row, { reason: 'issuer_changed', revokes: true });
      holdings.forget(caller.tenantId, row.userId);
      throw await this.#required(caller, server, 'needs_reauth', undefined, { challenge });
    }
    if (!tokens.tryReserveRefresh(row)) return undefined;
    const credential = await tokens.of(row, this.#issuerOf, { refused: true });
    holdings.forget(caller.tenantId, row.userId);
    if (!credential) throw await this.#required(caller, server, 'needs_reauth', row, { challenge });
    if (credential.version <= row.version) throw issuerAway();
    return credential;
  }

  /**
   * Asks the user for the scopes that a call lacks (MCP, Step-Up Authorization Flow).
   * @returns undefined if the server refuses although it was granted all that it demands, or if asking has not helped
   * @throws SwitchboardError `connection_required`
   */
  async #stepUp(
    caller: Caller,
    server: ServerHead,
    row: HeldConnection,
    challenge: Challenge,
  ): Promise<undefined> {
    const missing = (challenge.scopes ?? []).filter(scope => !row.scopes.includes(scope));
    if (row.issuer === null || missing.length === 0) return undefined;
    const key = JSON.stringify([row.userId, row.provider, row.resource]);
    const asked = this.#steppedUp.get(key) ?? new Map<string, Set<number>>();
    if (asked.size === 0) this.#steppedUp.set(key, asked);
    const names = missing.toSorted().join(' ');
    const versions = asked.get(names) ?? new Set();
    // Nothing is kept of further ones: a server could name a new one at each call.
    if (versions.size === 0 && asked.size >= MAX_SCOPE_SETS) return undefined;
    asked.set(names, versions.add(row.version));
    if (versions.size > MAX_STEP_UPS) return undefined;
    throw await this.#required(caller, server, 'missing_scopes', row, { missing, challenge });
  }

  /** Marks a connection as rejected, unless it has changed. One that stays rejected causes one event a day. */
  async #reject(caller: Caller, { id: serverId }: ServerHead, row: HeldConnection): Promise<void> {
    const { context, holdings } = this.#parts;
    const { db, audit, events } = context;
    const { id, version, tenantId, userId } = row;
    await db.transaction(async tx => {
      const [current] = await tx
        .select({
          isNews: sql<boolean>`coalesce(${connections.rejectedAt} < now() - make_interval(days => 1), true)`,
        })
        .from(connections)
        .where(
          and(eq(connections.id, id), eq(connections.version, version), eq(connections.status, 'active')),
        )
        .for('update');
      if (!current) return;
      await tx
        .update(connections)
        .set({ status: 'rejected', failedAt: sql`now()`, rejectedAt: sql`now()`, updatedAt: sql`now()` })
        .where(eq(connections.id, id));
      const meta = { serverId };
      await audit.record(caller, { event: 'connection_rejected', outcome: 'refused', userId, meta }, tx);
      if (current.isNews) await events.connection(tx, row, { event: 'rejected' });
    });
    holdings.forget(tenantId, userId);
    events.kick();
  }

  /** Makes a rejected connection active if its last refusal is a while ago. Resolves to whether it did. */
  async #reactivateIfDue({ id, tenantId, userId }: HeldConnection): Promise<boolean> {
    const { context, holdings } = this.#parts;
    const [taken] = await context.db
      .update(connections)
      .set({ status: 'active', updatedAt: sql`now()` })
      .where(
        and(
          eq(connections.id, id),
          eq(connections.status, 'rejected'),
          lte(connections.failedAt, sql`now() - make_interval(secs => ${RETRY_REJECTED_SEC})`),
        ),
      )
      .returning({ id: connections.id });
    if (taken) holdings.forget(tenantId, userId);
    return taken !== undefined;
  }

  /** @param row the connection that does not suffice */
  async #required(
    caller: Caller,
    server: ServerHead,
    reason: Reason,
    row?: HeldConnection,
    { missing = [], challenge, kind: learned }: Lacking = {},
  ): Promise<SwitchboardError> {
    const { subject } = caller;
    if (!subject) {
      const kind = row ? kindAtServer(row) : (learned ?? kindOfServer(server));
      const { caller: ask, operator } = askOperator(
        `run npx switchboard connect ${server.id}${scopeOptions(reason, missing)}.`,
      );
      return new SwitchboardError('connection_required', REASONS[kind][reason](server), {
        advice: { caller: `${ask} ${FOR_A_USER}`, operator },
        members: { kind, server_id: server.id, reason, missing },
      });
    }
    const held = row?.scopes ?? [];
    const asked = { held, challenge };
    const { kind, ...session } = await this.#parts.sessions.justInTimeFor(caller, server, asked);
    const step =
      kind === 'oauth' ? 'sign in' : reason === 'missing_values' ? 'enter the missing values' : 'enter it';
    return new SwitchboardError(
      'connection_required',
      `${REASONS[kind][reason](server)} Ask the user to open auth_url and ${step}, then repeat the call.`,
      { members: { kind, server_id: server.id, reason, missing, ...session } },
    );
  }
}

const FOR_A_USER = "To call for an end user, send the user's identity token; the user then gets a link.";

/** Scopes that no shell treats specially. Servers choose the names, and people and agents paste the command. */
const TYPABLE_SCOPE = /^\w[\w.:/-]*$/;

const scopeOptions = (reason: Reason, missing: readonly string[]): string =>
  reason === 'missing_scopes'
    ? missing
        .filter(scope => TYPABLE_SCOPE.test(scope))
        .map(scope => ` --scope ${scope}`)
        .join('')
    : '';

interface Lacking {
  /** Names of values, or scopes. */
  readonly missing?: readonly string[];
  readonly challenge?: Challenge | undefined;
  /** The kind of connection that the server's refusal asked for. */
  readonly kind?: Kind;
}

/** The token was refused, and cannot be refreshed at the moment. */
const issuerAway = () =>
  new SwitchboardError(
    'provider_unavailable',
    'The server refused the token, and its authorization server cannot be reached to refresh it. Try again later.',
    { retryAfterSec: 30 },
  );

type Texts = Readonly<Record<Reason, (server: ServerHead) => string>>;

const KEY: Texts = {
  not_connected: ({ id }) => `The server ${id} requires a key, and none has been entered yet.`,
  rejected: ({ id }) => `The server ${id} no longer accepts the key that was entered for it.`,
  missing_values: ({ id }) => `The server ${id} now requires more values than were entered for it.`,
  needs_reauth: ({ id }) => `The server ${id} requires a key, and none has been entered yet.`,
  missing_scopes: ({ id }) => `The key that was entered for the server ${id} lacks permissions.`,
};

const REASONS: Readonly<Record<Kind, Texts>> = {
  credentials: KEY,
  oauth: {
    ...KEY,
    not_connected: ({ id }) => `The server ${id} requires a sign-in, and no account is connected yet.`,
    rejected: ({ id }) => `The server ${id} no longer accepts the sign-in.`,
    needs_reauth: ({ id }) => `The connection with the server ${id} has ended and must be renewed.`,
    missing_scopes: ({ id }) => `The connection with the server ${id} lacks scopes that this call needs.`,
  },
};

const kindOfServer = (server: ServerHead): Kind =>
  accessOf(server).kind === 'oauth' ? 'oauth' : 'credentials';

/**
 * Returns whether a server is never called without a connection. What a server has shown is no reason, because it may have
 * changed, and many list their tools to everybody.
 */
const needsConnection = ({ auth }: ServerHead): boolean =>
  auth.kind === 'static_header' || auth.kind === 'own_oauth';

interface Ready {
  readonly remoteUrl: string;
  readonly auth: ServerHead['auth'];
  readonly credential: Credential;
}

const readyFor = ({ remoteUrl, auth }: ServerHead, credential: Credential): Ready => ({
  remoteUrl,
  auth,
  credential,
});

/** Returns whether a server still asks for the same as when its credential was made. */
const isFor = (ready: Ready, { remoteUrl, auth }: ServerHead): boolean =>
  ready.auth === auth && ready.remoteUrl === remoteUrl;
