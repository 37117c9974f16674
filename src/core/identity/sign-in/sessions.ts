import { and, eq, gt, isNull, sql } from 'drizzle-orm';
import { SwitchboardError } from '../../../errors.ts';
import type { Database } from '../../../platform/database/database.ts';
import type { Caller, SignInMode, Subject } from '../../access/caller.ts';
import { tenants, users } from '../../access/schema.ts';
import { ensureUser, lockUser, requireUserId, TENANT_HOLDER, type User } from '../../access/tenants.ts';
import { isConnectionOf } from '../connections/connections.ts';
import { targetOf, type Target } from '../connections/holdings.ts';
import type { ServerHead } from '../../catalogue/entry.ts';
import type { Provider } from '../connections/provider.ts';
import type { IdentityContext } from '../context.ts';
import type { Challenge } from '../oauth/challenge.ts';
import type { ServerAuthorization } from '../oauth/server-authorization.ts';
import { authSessions, connections } from '../schema.ts';
import { reusable, replaceOpen, type AuthSession, type NeededSession } from './just-in-time.ts';
import { isSecret, sha256 } from '../../../platform/ids.ts';
import { invalidToken } from '../tokens/identity-token.ts';
import { sessionNotFound } from './app-confirmation.ts';
import { goalAtProvider, Goals, type Draft, type Goal } from './goals.ts';
import { requireMode, requireReturnUrl, strictest, withPage } from './modes.ts';
import {
  errorOf,
  expireSessions,
  overdue,
  SESSION_ERRORS,
  sessionBinding,
  type PendingSecrets,
} from './session-store.ts';

/** How long a session can be authorized and polled, in seconds (contract). */
const SESSION_SEC = 300;

export interface SessionStatus {
  readonly status: 'pending' | 'complete' | 'error';
  readonly error?: string;
}

/** Options of a new session, in addition to its draft. */
type Extras = Partial<
  Pick<typeof authSessions.$inferInsert, 'returnUrl' | 'allowAccountChange' | 'justInTime' | 'browserHash'>
>;

/** Sign-ins from the caller's side: creating and polling sessions. */
export class Sessions {
  readonly #context: IdentityContext;
  readonly #goals: Goals;

  constructor(context: IdentityContext, authorization: ServerAuthorization) {
    this.#context = context;
    this.#goals = new Goals(context, authorization);
  }

  /**
   * Creates a session, which can be authorized and polled for five minutes.
   * @throws SwitchboardError `invalid_request`, `provider_not_configured`, `rate_limited` (one user's sessions), or
   * `unavailable` if the provider's metadata cannot be read
   */
  async create(caller: Caller, request: SessionRequest): Promise<AuthSession> {
    const userId = requireUserId(request.userId);
    const provider = this.#context.providers.require(request.provider);
    const tenant = await this.#tenant(caller.tenantId);
    const mode = requireMode(request.mode, tenant.signInMode);
    requireReturnUrl(request.returnUrl, tenant.returnUrls, mode);
    const { expectedAccount, resource = '' } = request;
    if (expectedAccount !== undefined && !provider.tellsAccounts) throw unknownAccounts(request.provider);
    const target = { provider: provider.settings.name, resource };
    const scopes = await this.#withGranted(caller.tenantId, userId, target, request.scopes);
    const loginHint = request.loginHint ?? expectedAccount;
    const goal = goalAtProvider({ provider, scopes, resource });
    const draft = await this.#goals.draft(goal, mode, { loginHint, expectedAccount });
    return this.#open(caller, userId, draft, {
      returnUrl: request.returnUrl ?? null,
      allowAccountChange: request.allowAccountChange ?? false,
    });
  }

  /**
   * Creates a session in which the user connects a server: with a sign-in with the server's own authorization server or, where it has
   * none, with an API key or other values that it takes.
   * @throws SwitchboardError `invalid_request`, `rate_limited`, `operator_setup_needed`, `provider_unavailable`,
   * `upstream_protocol`
   */
  async createForServer(
    caller: Caller,
    server: ServerHead,
    request: Pick<SessionRequest, 'userId' | 'returnUrl' | 'scopes' | 'mode'>,
  ): Promise<AuthSession> {
    const userId = requireUserId(request.userId);
    const tenant = await this.#tenant(caller.tenantId);
    const mode = withPage(requireMode(request.mode, tenant.signInMode));
    requireReturnUrl(request.returnUrl, tenant.returnUrls, mode);
    const held = await this.#withGranted(caller.tenantId, userId, targetOf(server), request.scopes);
    const goal = await this.#goals.atServer(server, { held, isAsked: true });
    if (!goal.signIn && request.scopes?.length) throw noScopes(server);
    const draft = await this.#goals.draft(goal, mode);
    return this.#open(caller, userId, draft, { returnUrl: request.returnUrl ?? null });
  }

  /**
   * Creates a session in which the operator connects a server for a whole tenant.
   * @param options `forUsers` as for `ServerConnections.putShared`; `scopes` to ask for besides those that the server names
   * @returns undefined if the server has no authorization server, and so takes credentials
   * @throws SwitchboardError as `createForServer`
   */
  async createShared(
    caller: Caller,
    server: ServerHead,
    { forUsers, scopes }: { forUsers: boolean | undefined; scopes: readonly string[] | undefined },
  ): Promise<AuthSession | undefined> {
    const held = await this.#withGranted(caller.tenantId, TENANT_HOLDER, targetOf(server), scopes);
    const goal = await this.#goals.atServer(server, { held, isAsked: true, byOperator: true });
    if (!goal.signIn) return undefined;
    return this.#open(caller, TENANT_HOLDER, await this.#goals.draft(goal, 'page', { forUsers }), {});
  }

  #open(caller: Caller, userId: string, draft: Draft, extras: Extras): Promise<AuthSession> {
    return this.#context.db.transaction(async tx => {
      const user = await ensureUser(tx, caller.tenantId, userId);
      await requireRoom(tx, user, { justInTime: false });
      return this.#insert(tx, caller, user, draft, extras);
    });
  }

  /**
   * Returns a session for a user's call that lacks a connection at an identity provider. An open one for the same user, goal and
   * scopes is reused, so that fifty failing calls create one link.
   * @throws SwitchboardError `rate_limited` (one user's sessions)
   */
  async justInTime(
    caller: Caller,
    wanted: { provider: Provider; scopes: readonly string[]; resource: string },
  ): Promise<AuthSession> {
    return this.#justInTime(caller, goalAtProvider(wanted), caller.signInMode ?? 'direct');
  }

  /**
   * Returns, like `justInTime`, a session for a server that takes values or has an authorization server of its own, and says which
   * of them it is.
   * @param asked `held`: scopes that the user keeps
   */
  async justInTimeFor(
    caller: Caller,
    server: ServerHead,
    asked: { held: readonly string[]; challenge: Challenge | undefined },
  ): Promise<AuthSession & { readonly kind: 'credentials' | 'oauth' }> {
    const goal = await this.#goals.atServer(server, asked);
    const session = await this.#justInTime(caller, goal, 'page');
    return { kind: goal.signIn ? 'oauth' : 'credentials', ...session };
  }

  async #justInTime(caller: Caller, goal: Goal, leastStrict: SignInMode): Promise<AuthSession> {
    const { tenantId, subject } = caller;
    if (!subject) throw new Error('only a user can be asked to connect an account');
    const { userId } = subject;
    const { mode, returnUrl } = await this.#endOf(tenantId, leastStrict);
    const needed: NeededSession = { tenantId, userId, mode, goal };
    const early = await reusable(this.#context, this.#context.db, needed);
    if (early) return early;
    const draft = await this.#goals.draft(goal, mode);
    return this.#context.db.transaction(async tx => {
      const user = await lockLiveUser(tx, tenantId, subject);
      const known =
        (await reusable(this.#context, tx, needed)) ?? (await replaceOpen(this.#context, tx, needed));
      if (known) return known;
      await requireRoom(tx, user, { justInTime: true });
      return this.#insert(tx, caller, user, draft, { justInTime: true, returnUrl: returnUrl ?? null });
    });
  }

  /**
   * Creates a session that a user asks for on the page of connections. It ends there or, in a tenant whose app confirms sign-ins, at the
   * app, because a link to that page can be passed on.
   * @param browser the secret of the user's browser, which alone can go on
   * @throws SwitchboardError as `create` and `createForServer`; `identity_token_invalid` if the user was revoked meanwhile
   */
  async createOnPage(
    caller: Caller,
    userId: string,
    wanted: WantedOnPage,
    browser: string,
  ): Promise<AuthSession> {
    const { tenantId, subject } = caller;
    if (!subject) throw new Error('the page of connections belongs to a user');
    const { mode, returnUrl = `${this.#context.publicUrl()}${MANAGE_PATH}` } = await this.#endOf(
      tenantId,
      'page',
    );
    const goal = await this.#goalOnPage(tenantId, userId, wanted);
    const draft = await this.#goals.draft(goal, mode);
    return this.#context.db.transaction(async tx => {
      const user = await lockLiveUser(tx, tenantId, subject);
      await requireRoom(tx, user, { justInTime: false });
      return this.#insert(tx, caller, user, draft, { returnUrl, browserHash: sha256(browser) });
    });
  }

  async #goalOnPage(tenantId: string, userId: string, wanted: WantedOnPage): Promise<Goal> {
    if ('server' in wanted) {
      const held = await this.#withGranted(tenantId, userId, targetOf(wanted.server));
      return this.#goals.atServer(wanted.server, { held, isAsked: true });
    }
    const provider = this.#context.providers.require(wanted.provider);
    const scopes = await this.#withGranted(tenantId, userId, wanted, wanted.scopes);
    return goalAtProvider({ provider, scopes, resource: wanted.resource });
  }

  /**
   * Returns the status of a session. A final status is delivered once.
   * @throws SwitchboardError `session_not_found` (also for another tenant's), `session_delivered` from the second time on.
   */
  async poll(caller: Pick<Caller, 'tenantId'>, sessionId: string): Promise<SessionStatus> {
    if (!isSecret(sessionId, 'ses')) throw sessionNotFound();
    const { db } = this.#context;
    const own = and(eq(authSessions.idHash, sha256(sessionId)), eq(authSessions.tenantId, caller.tenantId));
    const read = () =>
      db
        .select({
          status: authSessions.status,
          delivered: sql<boolean>`${authSessions.deliveredAt} is not null`,
          overdue: overdue(),
        })
        .from(authSessions)
        .where(own);
    let [session] = await read();
    if (session?.overdue === true) {
      await expireSessions(this.#context, own, 1);
      [session] = await read();
    }
    if (!session) throw sessionNotFound();
    if (session.delivered) throw delivered();
    if (session.status !== 'complete' && session.status !== 'error') return { status: 'pending' };
    const [final] = await db
      .update(authSessions)
      .set({ deliveredAt: sql`now()` })
      .where(and(own, isNull(authSessions.deliveredAt)))
      .returning({ status: authSessions.status, errorCode: authSessions.errorCode });
    if (!final) throw delivered();
    if (final.status === 'complete') return { status: 'complete' };
    return { status: 'error', error: SESSION_ERRORS[errorOf(final.errorCode)] };
  }

  /** Inserts the session and records it in the audit log. */
  async #insert(
    tx: Database,
    caller: Caller,
    user: User,
    draft: Draft,
    extras: Extras,
  ): Promise<AuthSession> {
    const { goal, mode, state, nonce, verifier, ticket, providerUrl, sessionId, authUrl } = draft;
    const { forUsers, expectedAccount } = draft;
    const { name: provider, resource, scopes, signIn } = goal;
    const { tenantId } = caller;
    const idHash = sha256(sessionId);
    const binding = sessionBinding({ tenantId, userId: user.id, idHash, provider });
    const atServer = signIn && { issuedTo: signIn.issuedTo, redirectUri: signIn.redirectUri, forUsers };
    const secrets: PendingSecrets = {
      nonce,
      verifier,
      providerUrl,
      sessionId,
      authUrl,
      ...(expectedAccount === undefined ? {} : { expectedAccount }),
      ...(atServer ? { atServer } : {}),
    };
    const [row] = await tx
      .insert(authSessions)
      .values({
        idHash,
        stateHash: sha256(state),
        ticketHash: ticket === undefined ? null : sha256(ticket),
        tenantId,
        userId: user.id,
        apiKeyId: caller.keyId,
        provider,
        scopes: [...scopes],
        resource,
        mode,
        sealed: await this.#context.vault.sealJson(binding, secrets),
        epoch: user.tokenEpoch,
        expiresAt: sql`now() + make_interval(secs => ${SESSION_SEC})`,
        ...extras,
      })
      .returning({ expiresAt: authSessions.expiresAt });
    if (!row) throw new Error('INSERT … RETURNING gave no row');
    const meta = { provider, mode, ...(extras.justInTime ? { justInTime: true } : {}) };
    const event = { event: 'session_created', outcome: 'ok', userId: user.id, meta } as const;
    await this.#context.audit.record(caller, event, tx);
    return { session_id: sessionId, auth_url: authUrl, expires_at: row.expiresAt.toISOString() };
  }

  /** Returns how a session ends for which nobody has named an address of the app. */
  async #endOf(
    tenantId: string,
    leastStrict: SignInMode,
  ): Promise<{ mode: SignInMode; returnUrl?: string | undefined }> {
    const tenant = await this.#tenant(tenantId);
    const required = strictest(tenant.signInMode, leastStrict);
    const [returnUrl] = required === 'caller' ? tenant.returnUrls : [];
    return { mode: required === 'caller' && returnUrl === undefined ? 'page' : required, returnUrl };
  }

  async #tenant(tenantId: string) {
    const [tenant] = await this.#context.db.select().from(tenants).where(eq(tenants.id, tenantId));
    return tenant ?? { signInMode: 'direct' as const, returnUrls: [] };
  }

  /** Returns scopes together with those that a holder has already granted, which a new sign-in must not lose. */
  async #withGranted(
    tenantId: string,
    externalId: string,
    target: Target,
    scopes: readonly string[] = [],
  ): Promise<string[]> {
    const [row] = await this.#context.db
      .select({ scopes: connections.scopes })
      .from(connections)
      .innerJoin(users, isConnectionOf({ userId: users.id, ...target }))
      .where(and(eq(users.tenantId, tenantId), eq(users.externalId, externalId)));
    return [...(row?.scopes ?? []), ...scopes];
  }
}

const delivered = () =>
  new SwitchboardError(
    'session_delivered',
    'The final status of this session has already been delivered. It is delivered only once.',
  );

/** The sessions that a user may start in a minute, and the links that calls may create for a user. */
const MAX_PER_MINUTE = { asked: 10, justInTime: 30 };

export interface SessionRequest {
  readonly userId: string;
  readonly provider: string;
  readonly scopes?: readonly string[];
  /** RFC 8707. */
  readonly resource?: string;
  readonly mode?: SignInMode;
  readonly returnUrl?: string;
  readonly loginHint?: string;
  readonly allowAccountChange?: boolean;
  /** The e-mail address or the id of the only account that may be connected. */
  readonly expectedAccount?: string;
}

/** The path of the page of connections. */
export const MANAGE_PATH = '/manage';

/** The goal of a sign-in that begins on the page of connections: a server, or an account at an identity provider. */
export type WantedOnPage =
  { readonly server: ServerHead } | (Target & { readonly scopes: readonly string[] });

/** Locks the user of a token that was checked before. @throws SwitchboardError `identity_token_invalid` if it was revoked since */
async function lockLiveUser(tx: Database, tenantId: string, { userId, epoch }: Subject): Promise<User> {
  const user = await lockUser(tx, tenantId, userId);
  if (!user) throw new Error('the user of a verified token no longer exists');
  // A link created now would restore revoked access.
  if (epoch !== user.tokenEpoch) throw invalidToken();
  return user;
}

const noScopes = ({ id }: ServerHead) =>
  new SwitchboardError('invalid_request', `scopes: ${id} takes a key, which has none. Leave scopes out.`);

const unknownAccounts = (provider: string) =>
  new SwitchboardError(
    'invalid_request',
    `expected_account: ${provider} does not say which account a user has. Leave it out.`,
  );

/** Limits the sessions of one user. @throws SwitchboardError `rate_limited` */
async function requireRoom(
  tx: Database,
  user: User,
  { justInTime }: { readonly justInTime: boolean },
): Promise<void> {
  const [recent] = await tx
    .select({
      count: sql<number>`count(*)::int`,
      waitSec: sql<number>`ceil(60 - extract(epoch from now() - min(${authSessions.createdAt})))::int`,
    })
    .from(authSessions)
    .where(
      and(
        eq(authSessions.userId, user.id),
        eq(authSessions.justInTime, justInTime),
        gt(authSessions.createdAt, sql`now() - interval '1 minute'`),
      ),
    );
  const max = justInTime ? MAX_PER_MINUTE.justInTime : MAX_PER_MINUTE.asked;
  if (!recent || recent.count < max) return;
  const retryAfterSec = Math.max(1, recent.waitSec);
  throw new SwitchboardError(
    'rate_limited',
    `Rate limit exceeded: ${justInTime ? `calls for a user can ask for ${max} links` : `a user can start ${max} sessions`} per minute. Try again in ${retryAfterSec} s.`,
    { retryAfterSec },
  );
}
