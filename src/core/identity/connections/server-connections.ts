import { and, eq, sql } from 'drizzle-orm';
import { SwitchboardError } from '../../../errors.ts';
import type { Cancellation } from '../../../platform/time.ts';
import type { Database } from '../../../platform/database/database.ts';
import { Places } from '../../../platform/queues.ts';
import { asSentence } from '../../../platform/sanitize.ts';
import type { Actor } from '../../access/audit.ts';
import { ensureUser, findUser, lockUser, requireUserId, TENANT_HOLDER } from '../../access/tenants.ts';
import {
  checkValues,
  credentialFields,
  fillIn,
  takesHeader,
  type CredentialField,
  type CredentialValues,
} from '../../catalogue/credential-schema.ts';
import { needsNothing, type ServerHead } from '../../catalogue/entry.ts';
import type { IdentityContext } from '../context.ts';
import { authSessions } from '../schema.ts';
import { newSecret, sha256 } from '../../../platform/ids.ts';
import { pendingSecrets, sessionOfTicket } from '../sign-in/session-store.ts';
import { sendToApp } from '../sign-in/app-confirmation.ts';
import type { ConnectionInfo, Connections } from './connections.ts';
import type { Revocations } from './revocations.ts';
import { serverIdOf, targetOf, type Credential, type Holdings } from './holdings.ts';

/** Trials of one tenant at a time. */
const MAX_TRIALS = 4;
/** A page that was opened in time may still be sent this long after its session's end: the server is asked meanwhile. */
const GRACE_SEC = 60;

/** The credentials that a server takes, for a form or a prompt. */
export interface ServerForm {
  readonly server: ServerHead;
  readonly fields: readonly CredentialField[];
  /** True if the entry declares no header, so that a header other than `Authorization` can be named. */
  readonly takesHeader: boolean;
}

export interface MadeConnection extends ConnectionInfo {
  /** How many tools the server listed with the values; null if it could not be asked. */
  readonly tools: number | null;
  /** Why the server could not be asked; null if it could. */
  readonly problem: string | null;
}

interface Parts {
  readonly context: IdentityContext;
  readonly connections: Connections;
  readonly revocations: Revocations;
  readonly holdings: Holdings;
  /** Throws `server_not_found` or `server_inactive`. */
  readonly catalogue: { require(serverId: string): ServerHead };
  /** Asks a server for its tools with a credential. */
  readonly inspect: (server: ServerHead, signal: Cancellation, credential: Credential) => Promise<Trial>;
}

/** The answer of a server that was tried with values. */
interface Trial {
  readonly tools?: readonly unknown[];
  readonly error?: SwitchboardError;
  /** The HTTP status behind the error, if there is one. */
  readonly httpStatus?: number;
}

/** The connections of users and tenants with servers that take a key or other fixed values. */
export class ServerConnections {
  readonly #parts: Parts;
  /** Bounds the trials of a tenant: a server may take its time, and others wait for its connections. */
  readonly #trials = new Places(MAX_TRIALS);

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** Returns the form of a server's credentials. @throws SwitchboardError `server_not_found`, `server_inactive`, `invalid_request` */
  form(serverId: string): ServerForm {
    const server = this.#parts.catalogue.require(serverId);
    requireTaking(server);
    return { server, fields: credentialFields(server), takesHeader: takesHeader(server) };
  }

  /**
   * Stores the values with which calls for a user go to a server. The server is asked for its tools with them first.
   * @throws SwitchboardError `credentials_rejected` if it refuses them; then nothing is stored, and older values stay
   */
  async putForUser(
    actor: Actor & { readonly tenantId: string },
    externalId: string,
    given: CredentialValues & { readonly serverId: string },
    signal: Cancellation,
  ): Promise<MadeConnection> {
    return this.#put(actor, requireUserId(externalId), given, { forUsers: false, signal });
  }

  /**
   * Stores the values that calls without a user carry to a server, for a whole tenant.
   * @param forUsers true: calls for users carry them, too, if the user has none
   * @throws SwitchboardError as `putForUser`
   */
  async putShared(
    actor: Actor & { readonly tenantId: string },
    given: CredentialValues & { readonly serverId: string; readonly forUsers: boolean | undefined },
    signal: Cancellation,
  ): Promise<MadeConnection> {
    return this.#put(actor, TENANT_HOLDER, given, { forUsers: given.forUsers, signal });
  }

  /** Lists the connections that a tenant shares. */
  async listShared(tenantId: string): Promise<ConnectionInfo[]> {
    const { connections, context } = this.#parts;
    const holder = await findUser(context.db, tenantId, TENANT_HOLDER);
    return holder ? connections.listOf(tenantId, holder.id) : [];
  }

  /** Ends the shared connection with a server. Resolves to false if there is none. */
  async endShared(actor: Actor & { readonly tenantId: string }, serverId: string): Promise<boolean> {
    const { context, revocations } = this.#parts;
    const holder = await findUser(context.db, actor.tenantId, TENANT_HOLDER);
    if (!holder) return false;
    return revocations.disconnectServer(actor, holder.id, serverId);
  }

  /**
   * Stores what a user entered on the page behind a link, and completes its session. In mode `caller` it waits for the app.
   * @returns the next page of the browser; undefined if the link has expired, or is for another browser
   * @throws SwitchboardError `invalid_request`, `credentials_rejected`: the page may be sent again
   */
  async submit(
    { ticket, browser }: { readonly ticket: string; readonly browser: string },
    given: CredentialValues,
    actor: Actor,
    signal: Cancellation,
  ): Promise<SubmitOutcome | undefined> {
    const { context, connections, holdings } = this.#parts;
    const session = await sessionOfTicket(context, ticket, browser);
    const serverId = session && serverIdOf(session.provider);
    if (!session || serverId === undefined) return undefined;
    const { server } = this.form(serverId);
    const target = targetOf(server);
    if (target.resource !== session.resource) return undefined;
    const { values } = await this.#check(session.tenantId, server, given, signal);
    if (session.mode === 'caller') {
      const { sessionId } = await pendingSecrets(context, session);
      const url = await sendToApp(context, session, sessionId, { brought: { values }, from: 'pending' });
      return url === undefined ? undefined : { kind: 'app', url };
    }
    const result = newSecret('done');
    const { tenantId, userId } = session;
    const done = await context.db.transaction(async tx => {
      const user = await lockUser(tx, tenantId, userId);
      if (user?.tokenEpoch !== session.epoch) return false;
      const open = and(
        eq(authSessions.idHash, session.idHash),
        eq(authSessions.status, 'pending'),
        sql`${authSessions.expiresAt} > now() - make_interval(secs => ${GRACE_SEC})`,
      );
      const [own] = await tx
        .select({ idHash: authSessions.idHash })
        .from(authSessions)
        .where(open)
        .for('update');
      if (!own) return false;
      const { id } = await connections.putValues(
        tx,
        { tenantId, userId, ...target, askedBy: session.apiKeyId },
        { values, forUsers: false },
      );
      await tx
        .update(authSessions)
        .set({
          status: 'complete',
          finishedAt: sql`now()`,
          sealed: null,
          connectionId: id,
          resultHash: sha256(result),
        })
        .where(eq(authSessions.idHash, session.idHash));
      await this.#record(tx, { ...actor, tenantId }, userId, serverId);
      return true;
    });
    holdings.forget(tenantId, userId);
    context.events.kick();
    return done ? { kind: 'result', result } : undefined;
  }

  async #put(
    actor: Actor & { readonly tenantId: string },
    externalId: string,
    { serverId, ...given }: CredentialValues & { readonly serverId: string },
    { forUsers, signal }: { readonly forUsers: boolean | undefined; readonly signal: Cancellation },
  ): Promise<MadeConnection> {
    const { context, connections, holdings } = this.#parts;
    const { tenantId } = actor;
    const { server } = this.form(serverId);
    const before = await findUser(context.db, tenantId, externalId);
    const { tools, problem, values } = await this.#check(tenantId, server, given, signal);
    const made = await context.db.transaction(async tx => {
      const { id: userId, tokenEpoch } = await ensureUser(tx, tenantId, externalId);
      if (before && before.tokenEpoch !== tokenEpoch) throw revokedMeanwhile();
      const owner = { tenantId, userId, ...targetOf(server), askedBy: actor.keyId ?? null };
      const connection = await connections.putValues(tx, owner, { values, forUsers });
      await this.#record(tx, actor, userId, serverId);
      return { userId, connection };
    });
    holdings.forget(tenantId, made.userId);
    context.events.kick();
    return { ...made.connection, tools, problem };
  }

  /** Checks values by the server's schema, then by the server itself. */
  async #check(tenantId: string, server: ServerHead, given: CredentialValues, signal: Cancellation) {
    const values = checkValues(server, given);
    const filled = fillIn(server, values);
    const parts = 'missing' in filled ? { headers: {}, secrets: [] } : filled;
    const credential: Credential = { connectionKey: 'trial', version: 1, ...parts };
    const trial = await this.#tried(tenantId, () => this.#parts.inspect(server, signal, credential));
    const { tools, error } = trial;
    if (error?.code === 'upstream_blocked') throw error;
    if (error && isRefusal(trial, credential)) {
      const isGuess = takesHeader(server) && given.header === undefined;
      throw refusedKey(server, error, isGuess ? OTHER_HEADER : '');
    }
    return { values, tools: tools?.length ?? null, problem: error?.detail ?? null };
  }

  async #tried<T>(tenantId: string, trial: () => Promise<T>): Promise<T> {
    const place = this.#trials.enter(tenantId);
    if (typeof place === 'string') throw tooManyTrials();
    using _trial = place;
    return await trial();
  }

  async #record(tx: Database, actor: Actor, userId: string, serverId: string): Promise<void> {
    const event = { event: 'connection_created', outcome: 'ok', userId, meta: { serverId } } as const;
    await this.#parts.context.audit.record(actor, event, tx);
  }
}

/** The next page of the browser after the form of a session: its result, or the app, which confirms it. */
type SubmitOutcome =
  { readonly kind: 'result'; readonly result: string } | { readonly kind: 'app'; readonly url: string };

/** Advice for a key whose header was guessed. */
const OTHER_HEADER =
  ' It was sent as Authorization: Bearer. If the server expects it in another header, name it in header (on the command line: --header).';

const tooManyTrials = () =>
  new SwitchboardError('rate_limited', 'Too many keys are being tried right now. Try again in 5 s.', {
    retryAfterSec: 5,
  });

function refusedKey({ id }: ServerHead, error: SwitchboardError, hint: string): SwitchboardError {
  const why = error.detail.replace(/^The MCP server [a-z -]+ \(HTTP (\d+)\)/, 'It returned HTTP $1');
  const detail = `The server ${id} refused the key. ${asSentence(why)} Nothing was changed.${hint}`;
  return new SwitchboardError('credentials_rejected', detail, { cause: error });
}

const revokedMeanwhile = () =>
  new SwitchboardError(
    'invalid_request',
    "The user's access was revoked while the key was being tried. Nothing was stored.",
  );

const REFUSALS: ReadonlySet<string> = new Set(['upstream_unauthorized', 'upstream_forbidden']);

/** Returns whether a server refused the values. A wrong part of an address leads to a page that is not the server. */
function isRefusal({ error, httpStatus = 0 }: Trial, { url }: Credential): boolean {
  if (error === undefined) return false;
  if (REFUSALS.has(error.code)) return true;
  const isNotFound = error.code === 'upstream_http_error' && httpStatus >= 400 && httpStatus < 500;
  return url !== undefined && (error.code === 'upstream_protocol' || isNotFound);
}

/** @throws SwitchboardError `invalid_request` for a server that takes no credentials */
function requireTaking(server: ServerHead): void {
  const { id, auth } = server;
  if (needsNothing(server))
    throw new SwitchboardError(
      'invalid_request',
      `The server ${id} needs no connection. Call it without one.`,
    );
  if (auth.kind === 'user_oauth')
    throw new SwitchboardError(
      'invalid_request',
      `The server ${id} requires an account at ${auth.provider ?? 'its provider'}, not a key. Create an authorization session with that provider.`,
    );
}
