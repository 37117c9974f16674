import { and, eq, lte, sql } from 'drizzle-orm';
import { LRUCache } from 'lru-cache';
import { SwitchboardError } from '../../../errors.ts';
import type { LastUsed } from '../../../platform/database/write-behind.ts';
import type { Caller } from '../../access/caller.ts';
import { fillHeaders } from '../../catalogue/credential-schema.ts';
import type { Server } from '../../catalogue/entry.ts';
import type { IdentityContext } from '../context.ts';
import { connections } from '../schema.ts';
import type { Sessions } from '../sign-in/sessions.ts';
import type { Connections } from './connections.ts';
import type { Credential, HeldConnection, Holdings } from './holdings.ts';

/** Values that a server refused are tried again after this long: a server may refuse a good key for a moment. */
const RETRY_REJECTED_SEC = 60;
/** Opened values are kept for this long. */
const OPENED_MS = 60_000;

export type ValuesRow = Omit<HeldConnection, 'forUsers'>;

type Reason = 'not_connected' | 'rejected' | 'missing_values';

interface Parts {
  readonly context: IdentityContext;
  readonly connections: Connections;
  readonly sessions: Sessions;
  readonly holdings: Holdings;
  readonly lastUsed: Pick<LastUsed, 'touch'>;
}

/** Makes the headers of calls to servers that take a key or other fixed values. */
export class ServerValues {
  readonly #context: IdentityContext;
  readonly #connections: Connections;
  readonly #sessions: Sessions;
  readonly #holdings: Holdings;
  readonly #lastUsed: Pick<LastUsed, 'touch'>;
  /** Credentials by the sealed text that they were opened from. */
  readonly #opened = new LRUCache<string, Opened>({ max: 5_000, ttl: OPENED_MS });

  constructor({ context, connections: all, sessions, holdings, lastUsed }: Parts) {
    this.#context = context;
    this.#connections = all;
    this.#sessions = sessions;
    this.#holdings = holdings;
    this.#lastUsed = lastUsed;
  }

  /**
   * Returns the credential of a call that acts for no user: the connection that the tenant shares. Returns undefined, usually
   * immediately, if there is none and the server may work without.
   * @throws SwitchboardError `connection_required`
   */
  forKey(caller: Caller, server: Server): Promise<Credential | undefined> | undefined {
    if (server.auth.kind === 'none') return undefined;
    const held = this.#holdings.peek(caller.tenantId);
    if (held && !held.with(server) && !needsValues(server)) return undefined;
    return this.#forKey(caller, server);
  }

  async #forKey(caller: Caller, server: Server): Promise<Credential | undefined> {
    const shared = (await this.#holdings.of(caller.tenantId)).with(server);
    if (shared) return this.#use(caller, server, shared);
    if (needsValues(server)) throw await this.#required(caller, server, 'not_connected');
    return undefined;
  }

  /**
   * Returns the credential of a call for a user: the user's own connection or else, if the operator allows it, the shared one.
   * @param own the user's connection with this server
   * @throws SwitchboardError `connection_required`, with a link to a page where the user enters the values
   */
  async forUser(caller: Caller, server: Server, own: ValuesRow | undefined): Promise<Credential | undefined> {
    if (server.auth.kind === 'none') return undefined;
    const row = own ?? (await this.#shared(caller, server));
    if (row) return this.#use(caller, server, row);
    if (needsValues(server)) throw await this.#required(caller, server, 'not_connected');
    return undefined;
  }

  /**
   * Notes that the server refused these values. Returns the credential of newer ones, if somebody has entered them meanwhile, and
   * undefined if they are the tenant's and the call is for a user.
   * @param own the user's connection as it is now
   * @throws SwitchboardError `connection_required`
   */
  async refused(
    caller: Caller,
    server: Server,
    refused: Credential,
    own: ValuesRow | undefined,
  ): Promise<Credential | undefined> {
    // Another process may have stored newer values.
    this.#holdings.forget(caller.tenantId);
    const current = own ?? (await this.#shared(caller, server));
    if (current && (current.id !== refused.connectionId || current.version > refused.version))
      return this.#use(caller, server, current);
    // One user's calls must not take the shared key away from the others.
    if (caller.subject && !own) return undefined;
    await this.#reject(caller, server, refused);
    this.#holdings.forget(caller.tenantId);
    this.#context.events.kick();
    throw await this.#required(caller, server, 'rejected');
  }

  /** Marks a connection as rejected, unless it has changed. Values that stay rejected cause one event a day. */
  async #reject(caller: Caller, server: Server, refused: Credential): Promise<void> {
    const { db, audit, events } = this.#context;
    await db.transaction(async tx => {
      const [row] = await tx
        .select({
          userId: connections.userId,
          provider: connections.provider,
          isNews: sql<boolean>`coalesce(${connections.failedAt} < now() - make_interval(days => 1), true)`,
        })
        .from(connections)
        .where(
          and(
            eq(connections.id, refused.connectionId),
            eq(connections.version, refused.version),
            eq(connections.status, 'active'),
          ),
        )
        .for('update');
      if (!row) return;
      const { tenantId } = caller;
      const { userId, provider, isNews } = row;
      const id = refused.connectionId;
      await tx
        .update(connections)
        .set({ status: 'rejected', failedAt: sql`now()`, updatedAt: sql`now()` })
        .where(eq(connections.id, id));
      const meta = { serverId: server.id };
      await audit.record(caller, { event: 'connection_rejected', outcome: 'refused', userId, meta }, tx);
      if (isNews) await events.connection(tx, { id, tenantId, userId, provider }, { event: 'rejected' });
    });
  }

  /**
   * Returns the credential for a server that answered 401 to a call without one; undefined if the call acts for no user.
   * @param own the user's connection as it is now
   * @throws SwitchboardError `connection_required`
   */
  async wanted(caller: Caller, server: Server, own: ValuesRow | undefined): Promise<Credential | undefined> {
    if (!caller.subject || server.auth.kind === 'none') return undefined;
    const row = own ?? (await this.#shared(caller, server));
    if (row) return this.#use(caller, server, row);
    throw await this.#required(caller, server, 'not_connected');
  }

  /** Returns the tenant's shared connection, if this caller's calls may use it. */
  async #shared({ tenantId, subject }: Caller, server: Server): Promise<ValuesRow | undefined> {
    const row = (await this.#holdings.of(tenantId)).with(server);
    return subject && !row?.forUsers ? undefined : row;
  }

  async #use(caller: Caller, server: Server, row: ValuesRow): Promise<Credential> {
    if (row.status === 'rejected' && !(await this.#mayRetry(row)))
      throw await this.#required(caller, server, 'rejected');
    this.#lastUsed.touch(row.id);
    const specs = server.auth.headers;
    const known = this.#opened.get(row.sealed ?? '');
    // A sealed text is valid only in its own row.
    if (known && known.specs === specs && isSameRow(known.row, row)) return known.credential;
    const stored = await this.#connections.valuesOf(row);
    if (!stored) throw await this.#required(caller, server, 'not_connected');
    const filled = fillHeaders(specs, stored);
    if ('missing' in filled) throw await this.#required(caller, server, 'missing_values', filled.missing);
    const credential: Credential = {
      connectionId: row.id,
      version: row.version,
      headers: filled.headers,
      secrets: filled.secrets,
    };
    this.#opened.set(row.sealed ?? '', { row, specs, credential });
    return credential;
  }

  /** Tries a rejected connection again, once in a while. */
  async #mayRetry({ id, tenantId }: ValuesRow): Promise<boolean> {
    const [taken] = await this.#context.db
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
    if (taken) this.#holdings.forget(tenantId);
    return taken !== undefined;
  }

  async #required(
    caller: Caller,
    server: Server,
    reason: Reason,
    missing: readonly string[] = [],
  ): Promise<SwitchboardError> {
    const { subject } = caller;
    const facts = { kind: 'credentials', server_id: server.id, reason, missing };
    const why = REASONS[reason](server);
    if (!subject) {
      return new SwitchboardError(
        'connection_required',
        `${why} Ask the operator to run npx switchboard connect ${server.id}. To call for an end user, send the user's identity token; the user then gets a page for entering the key.`,
        { members: facts },
      );
    }
    const session = await this.#sessions.justInTime(caller, subject.userId, { server });
    return new SwitchboardError(
      'connection_required',
      `${why} Ask the user to open auth_url and enter it, then repeat the call.`,
      { members: { ...facts, ...session } },
    );
  }
}

const REASONS: Readonly<Record<Reason, (server: Server) => string>> = {
  not_connected: ({ id, auth }) =>
    auth.kind === 'static_header'
      ? `The server ${id} requires a key, and none has been entered yet.`
      : `The server ${id} requires a sign-in. If it accepts a key or a personal token, enter that.`,
  rejected: ({ id }) => `The server ${id} no longer accepts the key that was entered for it.`,
  missing_values: ({ id }) => `The server ${id} now requires more values than were entered for it.`,
};

/** Returns whether a server cannot be called without a key. */
const needsValues = ({ auth }: Server): boolean => auth.kind === 'static_header';

interface Opened {
  readonly row: ValuesRow;
  readonly specs: Server['auth']['headers'];
  readonly credential: Credential;
}

const isSameRow = (one: ValuesRow, other: ValuesRow): boolean =>
  one === other ||
  (one.id === other.id &&
    one.version === other.version &&
    one.tenantId === other.tenantId &&
    one.userId === other.userId &&
    one.provider === other.provider &&
    one.resource === other.resource);
