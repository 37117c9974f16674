import { and, eq, gt, isNull, sql } from 'drizzle-orm';
import { SwitchboardError } from '../../errors.ts';
import type { Cancellation } from '../../platform/time.ts';
import type { SignedInClient } from '../access/client-keys.ts';
import type { ApiKeys } from '../access/api-keys.ts';
import type { Actor } from '../access/audit.ts';
import { PAGE_KEY_ID, type Caller } from '../access/caller.ts';
import { tenants, users } from '../access/schema.ts';
import type { Access, ServerHead } from '../catalogue/entry.ts';
import type { CallsShown, UserCalls } from './calls.ts';
import type { Connections, ShownConnection } from './connections/connections.ts';
import type { AccessOf } from './connections/holdings.ts';
import type { IdentityContext } from './context.ts';
import type { Revocations } from './connections/revocations.ts';
import { manageLinks } from './schema.ts';
import { MANAGE_PATH, type Sessions, type WantedOnPage } from './sign-in/sessions.ts';
import { isSecret, newSecret, sha256 } from '../../platform/ids.ts';
import { sanitise } from '../../platform/sanitize.ts';
import { ensureUser, requireUserId, type User } from '../access/tenants.ts';

const LINK_MINUTES = 5;
const PAGE_MINUTES = 15;

export interface ManageLink {
  readonly url: string;
  readonly expires_at: string;
}

/** A server or an account that the user can connect on the page. */
export interface Offer {
  readonly serverId: string;
  readonly name: string;
  /** The host of its address: names are not unique. */
  readonly host: string;
  /** A line about it; undefined for a server that was not searched for. */
  readonly about: string | undefined;
  /** True if calls carry what it requires already. */
  readonly isConnected: boolean;
}

/** A connection with what its page says of it. */
export interface ManagedConnection extends ShownConnection {
  /** False if what it is for has gone from the catalogue or the settings, so that it cannot be made again. */
  readonly canRenew: boolean;
}

/** Equal calls of one minute, with the name of their server. */
export interface NamedCalls extends CallsShown {
  readonly serverName: string;
}

export interface ManageView {
  readonly app: string | undefined;
  readonly user: string;
  /** When the page expires. */
  readonly until: Date;
  /** Those that need the user come first. */
  readonly connections: readonly ManagedConnection[];
  /** Servers to which calls were refused for lack of a connection, the latest first. */
  readonly wanted: readonly Offer[];
  /** The latest calls, newest first. */
  readonly calls: readonly NamedCalls[];
  /** MCP clients that the user has signed in, the latest first. */
  readonly clients: readonly SignedInClient[];
}

/** The user for whom a browser has the page open. */
export interface PageHolder {
  readonly tenantId: string;
  readonly userId: string;
  readonly epoch: number;
  /** The name of the tenant. */
  readonly app: string | undefined;
  /** The caller's own id for the user. */
  readonly user: string;
  readonly until: Date;
}

interface Parts {
  readonly context: IdentityContext;
  readonly connections: Connections;
  readonly revocations: Revocations;
  readonly sessions: Pick<Sessions, 'createOnPage'>;
  readonly calls: Pick<UserCalls, 'list'>;
  readonly apiKeys: Pick<ApiKeys, 'clients' | 'revoke'>;
  readonly accessFor: (caller: Caller) => Promise<AccessOf>;
}

interface KnownServers {
  get(id: string): ServerHead | undefined;
}

interface ServerSearch {
  search(
    caller: Caller,
    input: { query: string; limit: number; maxTools: number },
  ): Promise<{ readonly servers: readonly { id: string; access: Access; description: string }[] }>;
}

/** A server to connect, or a connection to make again. */
type ToConnect = { readonly serverId: string } | { readonly connectionId: string };

/** A request of the page's browser. */
export interface PageActor extends Actor {
  readonly signal: Cancellation;
}

/**
 * The page on which a user sees, makes and ends connections, and sees what was called. The caller, which knows its user, requests a
 * link. The link works once, within five minutes, and opens the page for 15 minutes in one browser. See also `PageSignIns`.
 */
export class Manage {
  readonly #parts: Parts;
  readonly #context: IdentityContext;
  #servers: KnownServers = { get: () => undefined };
  #search: ServerSearch = { search: () => Promise.resolve({ servers: [] }) };

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#context = parts.context;
  }

  /** Sets how servers are found in the catalogue. */
  findServers(servers: KnownServers, search: ServerSearch): void {
    this.#servers = servers;
    this.#search = search;
  }

  /** Creates a link to the page. @throws SwitchboardError `invalid_request` */
  async createLink(actor: Actor & { tenantId: string }, externalId: string): Promise<ManageLink> {
    const userId = requireUserId(externalId);
    const link = newSecret('page');
    const { db, audit, publicUrl } = this.#context;
    const expiresAt = await db.transaction(async tx => {
      const user = await ensureUser(tx, actor.tenantId, userId);
      const [row] = await tx
        .insert(manageLinks)
        .values({
          hash: sha256(link),
          tenantId: actor.tenantId,
          userId: user.id,
          epoch: user.tokenEpoch,
          expiresAt: sql`now() + make_interval(mins => ${LINK_MINUTES})`,
        })
        .returning({ expiresAt: manageLinks.expiresAt });
      if (!row) throw new Error('INSERT … RETURNING gave no row');
      await audit.record(actor, { event: 'manage_link_created', outcome: 'ok', userId: user.id }, tx);
      return row.expiresAt;
    });
    return { url: `${publicUrl()}${MANAGE_PATH}/${link}`, expires_at: expiresAt.toISOString() };
  }

  /** Returns the app that made a link; undefined if the link has expired. Seeing it, as link previews do, does not use it up. */
  async viewLink(link: string): Promise<{ readonly app: string | undefined } | undefined> {
    if (!isSecret(link, 'page')) return undefined;
    const [row] = await this.#context.db
      .select({ app: tenants.name })
      .from(manageLinks)
      .innerJoin(tenants, eq(tenants.id, manageLinks.tenantId))
      .where(this.#unused(link));
    return row && { app: row.app ?? undefined };
  }

  /** Uses the link. Returns the secret of the browser that may see the page; undefined if the link has expired. */
  async open(link: string, actor: Actor): Promise<string | undefined> {
    if (!isSecret(link, 'page')) return undefined;
    const browser = newSecret('web');
    const { db, audit } = this.#context;
    return db.transaction(async tx => {
      const [row] = await tx
        .update(manageLinks)
        .set({
          usedAt: sql`now()`,
          browserHash: sha256(browser),
          expiresAt: sql`now() + make_interval(mins => ${PAGE_MINUTES})`,
        })
        .where(this.#unused(link))
        .returning();
      if (!row) return undefined;
      const { tenantId, userId } = row;
      await audit.record(actor, { event: 'manage_link_opened', outcome: 'ok', tenantId, userId }, tx);
      return browser;
    });
  }

  /**
   * Opens the page for one browser of a user who has signed in. Returns the secret of that browser; undefined if the sign-in has
   * opened it before.
   */
  async admit(
    { tenantId, id: userId, tokenEpoch: epoch }: User & { readonly tenantId: string },
    actor: Actor,
    { provider, state }: { readonly provider: string; readonly state: string },
  ): Promise<string | undefined> {
    const browser = newSecret('web');
    const { db, audit } = this.#context;
    return db.transaction(async tx => {
      const [row] = await tx
        .insert(manageLinks)
        .values({
          // No link has it: theirs are of secrets of another form.
          hash: sha256(state),
          tenantId,
          userId,
          epoch,
          usedAt: sql`now()`,
          browserHash: sha256(browser),
          expiresAt: sql`now() + make_interval(mins => ${PAGE_MINUTES})`,
        })
        .onConflictDoNothing()
        .returning({ hash: manageLinks.hash });
      if (!row) return undefined;
      const meta = { provider };
      await audit.record(actor, { event: 'manage_signed_in', outcome: 'ok', tenantId, userId, meta }, tx);
      return browser;
    });
  }

  /** Returns the page's data; undefined if this browser may not see it, or no longer. */
  async view(browser: string | undefined, actor: PageActor): Promise<ManageView | undefined> {
    const holder = await this.holder(browser);
    if (!holder) return undefined;
    const { tenantId, userId, app, user, until } = holder;
    const { connections, calls, apiKeys, accessFor } = this.#parts;
    const [held, called, clients, accessOf] = await Promise.all([
      connections.listShown(tenantId, userId),
      calls.list(userId),
      apiKeys.clients.list(userId),
      accessFor(callerOf(holder, actor)),
    ]);
    return {
      app,
      user,
      until,
      connections: held.map(one => this.#managed(one)).toSorted(byNeed),
      wanted: this.#wanted(called, held, accessOf),
      clients,
      calls: called.map(one => Object.assign(one, { serverName: this.#nameOf(one.serverId) })),
    };
  }

  /**
   * Finds servers that the user can connect, or has connected; undefined if this browser may not see the page.
   * @throws SwitchboardError as a search does
   */
  async find(
    browser: string | undefined,
    query: string,
    actor: PageActor,
  ): Promise<readonly Offer[] | undefined> {
    const holder = await this.holder(browser);
    if (!holder) return undefined;
    const input = { query, limit: MAX_SEARCHED, maxTools: 0 };
    const { servers } = await this.#search.search(callerOf(holder, actor), input);
    return servers
      .flatMap(({ id, access, description }) =>
        offerOf(this.#servers.get(id), access, sanitise(description, MAX_ABOUT)),
      )
      .slice(0, MAX_FOUND);
  }

  /**
   * Begins to connect a server, or to make a connection again. Returns the address at which the user goes on, and what is connected
   * there; undefined if the page has expired.
   * @param signingIn the secret of the browser for sign-ins, unlike that for this page
   * @throws SwitchboardError `server_not_found`, `server_inactive`, or as `Sessions.createOnPage`
   */
  async connect(
    browser: string | undefined,
    what: ToConnect,
    actor: PageActor,
    signingIn: string,
  ): Promise<{ readonly url: string; readonly name: string } | undefined> {
    const holder = await this.holder(browser);
    if (!holder) return undefined;
    const { wanted, name } = await this.#goalOf(holder, what);
    const caller = callerOf(holder, actor);
    const { sessions } = this.#parts;
    const { auth_url: url } = await sessions.createOnPage(caller, holder.user, wanted, signingIn);
    return { url, name };
  }

  /** Ends one connection. Resolves to false if it no longer exists, and to undefined if the page has expired. */
  async disconnect(
    browser: string | undefined,
    connectionId: string,
    actor: Actor,
  ): Promise<boolean | undefined> {
    const holder = await this.holder(browser);
    if (!holder) return undefined;
    if (!/^con_[0-9A-Za-z]{22}$/.test(connectionId)) return false;
    const { tenantId, userId } = holder;
    return this.#parts.revocations.disconnect({ ...actor, tenantId }, userId, connectionId);
  }

  /** Ends the sign-in of an MCP client. Resolves to false if it has ended already, and to undefined if the page has expired. */
  async signOutClient(browser: string | undefined, id: string, actor: Actor): Promise<boolean | undefined> {
    const holder = await this.holder(browser);
    if (!holder) return undefined;
    const { apiKeys } = this.#parts;
    const { tenantId, userId } = holder;
    const isTheirs = (await apiKeys.clients.list(userId)).some(client => client.id === id);
    if (isTheirs) await apiKeys.revoke(id, { ...actor, tenantId, keyId: PAGE_KEY_ID });
    return isTheirs;
  }

  /** Revokes everything the app has of this user, including this page. Resolves to undefined if the page has expired. */
  async revokeAll(browser: string | undefined, actor: Actor): Promise<true | undefined> {
    const holder = await this.holder(browser);
    if (!holder) return undefined;
    const { tenantId, userId } = holder;
    await this.#parts.revocations.revokeUser({ ...actor, tenantId }, userId);
    return true;
  }

  /** @throws SwitchboardError `server_not_found`, also for an unknown connection, and `server_inactive` */
  async #goalOf(
    { tenantId, userId }: PageHolder,
    what: ToConnect,
  ): Promise<{ readonly wanted: WantedOnPage; readonly name: string }> {
    if ('serverId' in what) return this.#goalAt(what.serverId);
    const held = await this.#parts.connections.listShown(tenantId, userId);
    const connection = held.find(({ id }) => id === what.connectionId);
    if (!connection) throw goneServer('server_not_found');
    const { server_id: serverId, provider, resource, title: name } = connection;
    if (serverId !== null) return this.#goalAt(serverId);
    return { wanted: { provider: provider ?? '', resource: resource ?? '', scopes: [] }, name };
  }

  #goalAt(serverId: string): { readonly wanted: WantedOnPage; readonly name: string } {
    const server = this.#servers.get(serverId);
    if (!server?.active) throw goneServer(server ? 'server_inactive' : 'server_not_found');
    return { wanted: wantedAt(server), name: server.name };
  }

  #nameOf(serverId: string): string {
    return this.#servers.get(serverId)?.name ?? serverId;
  }

  #managed(connection: ShownConnection): ManagedConnection {
    const { server_id: serverId, provider } = connection;
    if (serverId === null)
      return { ...connection, canRenew: this.#context.providers.get(provider ?? '') !== undefined };
    const canRenew = this.#servers.get(serverId)?.active === true;
    return { ...connection, title: this.#nameOf(serverId), canRenew };
  }

  #wanted(calls: readonly CallsShown[], held: readonly ShownConnection[], accessOf: AccessOf): Offer[] {
    const refused = calls.filter(({ outcome }) => outcome === 'not_connected');
    const offers = [...new Set(refused.map(({ serverId }) => serverId))].flatMap(serverId => {
      const server = this.#servers.get(serverId);
      if (!server) return [];
      const isOf = ({ server_id, provider }: ShownConnection) =>
        server_id === serverId || (provider !== null && provider === server.auth.provider);
      // A connection that must be made again says so itself.
      const isHeld = held.some(isOf);
      return isHeld ? [] : offerOf(server, accessOf(server)).filter(({ isConnected }) => !isConnected);
    });
    return offers.slice(0, MAX_WANTED);
  }

  /** Returns the user for whom this browser has the page open. */
  async holder(browser: string | undefined): Promise<PageHolder | undefined> {
    if (browser === undefined || !isSecret(browser, 'web')) return undefined;
    const [row] = await this.#context.db
      .select({
        tenantId: manageLinks.tenantId,
        userId: manageLinks.userId,
        epoch: manageLinks.epoch,
        until: manageLinks.expiresAt,
        app: tenants.name,
        user: users.externalId,
      })
      .from(manageLinks)
      .innerJoin(users, and(eq(users.id, manageLinks.userId), eq(users.tokenEpoch, manageLinks.epoch)))
      .innerJoin(tenants, eq(tenants.id, users.tenantId))
      .where(and(eq(manageLinks.browserHash, sha256(browser)), gt(manageLinks.expiresAt, sql`now()`)));
    return row && { ...row, app: row.app ?? undefined };
  }

  #unused(link: string) {
    return and(
      eq(manageLinks.hash, sha256(link)),
      isNull(manageLinks.usedAt),
      gt(manageLinks.expiresAt, sql`now()`),
    );
  }
}

/** A search for the page ranks this many servers, of which it shows the best that can be connected. */
const MAX_SEARCHED = 50;
const MAX_FOUND = 5;
/** The characters that are shown of a server's description. */
const MAX_ABOUT = 120;
/** An agent that is led astray may call any number of servers. */
const MAX_WANTED = 10;

const callerOf = ({ tenantId, userId, epoch }: PageHolder, { requestId, ip, signal }: PageActor): Caller => ({
  tenantId,
  keyId: PAGE_KEY_ID,
  scopes: new Set(),
  subject: { userId, epoch },
  requestId,
  ip,
  signal,
});

/** Returns the offer to connect a server; none if that is not possible or not needed. */
const offerOf = (server: ServerHead | undefined, { status }: Access, about?: string): Offer[] =>
  server?.active && (status === 'connect' || status === 'connected')
    ? [
        {
          serverId: server.id,
          name: server.name,
          host: new URL(server.remoteUrl).host,
          about,
          isConnected: status === 'connected',
        },
      ]
    : [];

/** Returns what a user connects to use a server: an account at an identity provider if its entry says so. */
function wantedAt(server: ServerHead): WantedOnPage {
  const { kind, provider, scopes = [], resource = '' } = server.auth;
  return kind === 'user_oauth' && provider !== undefined ? { provider, scopes, resource } : { server };
}

/** Orders connections by need, then by title. */
const byNeed = (one: ShownConnection, other: ShownConnection): number =>
  Number(one.status === 'active') - Number(other.status === 'active') ||
  (one.title < other.title ? -1 : Number(one.title > other.title));

const goneServer = (code: 'server_not_found' | 'server_inactive') =>
  new SwitchboardError(code, 'The server is no longer in the catalogue.');
