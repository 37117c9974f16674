import { and, eq, like, type SQL } from 'drizzle-orm';
import { SwitchboardError } from '../../../errors.ts';
import type { Actor } from '../../access/audit.ts';
import type { Caller } from '../../access/caller.ts';
import type { Connections } from '../connections/connections.ts';
import type { ServerHead } from '../../catalogue/entry.ts';
import type { IdentityContext } from '../context.ts';
import { serverTarget, type Holdings } from '../connections/holdings.ts';
import { ProviderError, type Account } from '../connections/provider.ts';
import type { ServerAuthorization } from '../oauth/server-authorization.ts';
import { authSessions } from '../schema.ts';
import { newSecret, sha256 } from '../../../platform/ids.ts';
import {
  claimSession,
  errorOf,
  isBrowserOf,
  pendingSecrets,
  sessionOfResult,
  sessionOfTicket,
  SESSION_ERRORS,
  waitingSecrets,
  type PendingSecrets,
  type SessionError,
  type SessionRow,
  type WaitingSecrets,
} from './session-store.ts';
import { Outcomes } from './outcomes.ts';
import { undo } from './undo.ts';
import { viewLink, viewResult, type LinkView, type ResultView } from './sign-in-view.ts';
import { requireUserId } from '../../access/tenants.ts';
import type { SessionStatus } from './sessions.ts';
import { failedAtApp, sendToApp, takeConfirmed, type Confirmation } from './app-confirmation.ts';

export type CallbackOutcome =
  /** The sign-in has ended; its page shows the outcome. */
  | { readonly kind: 'result'; readonly result: string }
  /** The browser goes on to the app, which confirms the sign-in or learns why it failed. */
  | { readonly kind: 'app'; readonly url: string }
  /** Nothing was changed. */
  | { readonly kind: 'refused'; readonly reason: 'link_over' | 'other_browser' };

interface Parts {
  readonly context: IdentityContext;
  readonly connections: Connections;
  readonly authorization: ServerAuthorization;
  readonly holdings: Holdings;
}

/** Sign-ins from the end user's side: our page if there is one, the callback, the result, the undo. */
export class SignIns {
  readonly #parts: Parts;
  readonly #context: IdentityContext;
  readonly #authorization: ServerAuthorization;
  readonly #outcomes: Outcomes;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#context = parts.context;
    this.#authorization = parts.authorization;
    this.#outcomes = new Outcomes(parts);
  }

  /** Sets how servers are found in the catalogue. */
  findServers(serverOf: (id: string) => ServerHead | undefined): void {
    this.#outcomes.findServers(serverOf);
  }

  /** Returns the page behind a link of mode `page`; undefined if the link has expired, or is for another browser. */
  view(ticket: string, browser: string | undefined): Promise<LinkView | undefined> {
    return viewLink(this.#context, ticket, browser);
  }

  /** Returns undefined if there is no such result, or if it waits for confirmation in another browser. */
  result(result: string, browser: string | undefined): Promise<ResultView | undefined> {
    return viewResult(this.#context, result, browser);
  }

  /**
   * Binds the sign-in to this browser, also if it was begun in another one, which can then no longer finish it: its user may have
   * closed it. Returns the URL of the provider's page; undefined as `view`.
   */
  async begin(ticket: string, browser: string): Promise<string | undefined> {
    const session = await sessionOfTicket(this.#context, ticket, browser);
    if (!session) return undefined;
    const [bound] = await this.#context.db
      .update(authSessions)
      .set({ browserHash: sha256(browser) })
      .where(and(eq(authSessions.idHash, session.idHash), eq(authSessions.status, 'pending')))
      .returning({ idHash: authSessions.idHash });
    return bound && (await pendingSecrets(this.#context, session)).providerUrl;
  }

  /**
   * Completes a sign-in after the provider's redirect. The session is claimed first, so that the code is exchanged at most
   * once even if callbacks are repeated or concurrent.
   */
  async callback(
    providerName: string,
    query: URLSearchParams,
    browser: string | undefined,
    actor: Actor,
  ): Promise<CallbackOutcome> {
    const provider = this.#context.providers.get(providerName);
    if (!provider) return { kind: 'refused', reason: 'link_over' };
    const of = eq(authSessions.provider, providerName);
    return this.#callback({ of, redirectUri: undefined, query, browser, actor });
  }

  /**
   * Completes a sign-in with a server's own authorization server. Its page has named app, user and server before, so it needs no
   * confirmation.
   * @param key what the address that the browser came back to ends with; most authorization servers have one of their own
   */
  async returned(
    key: string | undefined,
    query: URLSearchParams,
    browser: string | undefined,
    actor: Actor,
  ): Promise<CallbackOutcome> {
    const of = like(authSessions.provider, serverTarget('%'));
    const redirectUri = this.#authorization.clients.returnUri(key);
    return this.#callback({ of, redirectUri, query, browser, actor });
  }

  async #callback({ of, redirectUri, query, browser, actor }: Callback): Promise<CallbackOutcome> {
    const [state, ...more] = query.getAll('state');
    if (state === undefined || more.length > 0) return { kind: 'refused', reason: 'link_over' };
    const result = newSecret('done');
    const session = await claimSession(this.#context, { of, state, browser, result });
    if (typeof session === 'string') return { kind: 'refused', reason: session };
    const pending = await pendingSecrets(this.#context, session);
    const failure = await this.#received(session, pending, { query, redirectUri, actor });
    if (session.mode !== 'caller') return { kind: 'result', result };
    if (failure !== undefined) return { kind: 'app', url: failedAtApp(session, pending.sessionId, failure) };
    const brought = { query: query.toString(), pending };
    const url = await sendToApp(this.#context, session, pending.sessionId, { brought, from: 'claimed' });
    return { kind: 'app', url: url ?? failedAtApp(session, pending.sessionId, 'revoked') };
  }

  /** Handles an answer that the browser brought. A code of mode `caller` is left for later. Resolves to why the session has failed. */
  async #received(
    session: SessionRow,
    pending: PendingSecrets,
    { query, redirectUri, actor }: Pick<Callback, 'query' | 'redirectUri' | 'actor'>,
  ): Promise<SessionError | undefined> {
    if (hasRepeated(query)) {
      await this.#outcomes.fail(session, 'invalid_response', actor);
      return 'invalid_response';
    }
    // Another authorization server's code must not be sent to this one (RFC 9700 §4.4).
    if (pending.atServer?.redirectUri !== redirectUri) {
      this.#context.log.warn({ provider: session.provider }, 'failed sign-in: returned to another address');
      await this.#outcomes.fail(session, 'exchange_failed', actor);
      return 'exchange_failed';
    }
    if (session.mode === 'caller' && query.has('code') && !query.has('error')) return undefined;
    return this.#exchange(session, pending, query, actor);
  }

  /** Exchanges the code for tokens, and stores them. Resolves to why that failed, if it is known by then. */
  async #exchange(
    session: SessionRow,
    pending: PendingSecrets,
    query: URLSearchParams,
    actor: Actor,
  ): Promise<SessionError | undefined> {
    let tokens: WaitingSecrets;
    try {
      tokens = await this.#tokensFor(session, pending, query);
    } catch (error) {
      if (!(error instanceof ProviderError)) throw error;
      const level = error.reason === 'denied' ? 'info' : 'warn';
      this.#context.log[level]({ err: error, provider: session.provider }, 'failed sign-in');
      await this.#outcomes.fail(session, CODES[error.reason], actor);
      return CODES[error.reason];
    }
    if (!isExpected(tokens.account, pending.expectedAccount)) {
      await this.#outcomes.fail(session, 'account_mismatch', actor, tokens);
      return 'account_mismatch';
    }
    // The page of a server's own sign-in has named app, user and server before.
    const waits = session.mode === 'page' && !pending.atServer;
    if (waits) await this.#outcomes.wait(session, tokens, actor);
    else await this.#outcomes.connect(session, tokens, actor, pending.atServer?.forUsers);
    return undefined;
  }

  /** @throws ProviderError */
  async #tokensFor(
    session: SessionRow,
    { nonce, verifier, atServer }: PendingSecrets,
    query: URLSearchParams,
  ): Promise<WaitingSecrets> {
    const state = query.get('state') ?? '';
    if (atServer) {
      const server = await this.#authorization.at(atServer.issuedTo).catch((cause: unknown) => {
        throw cause instanceof ProviderError ? cause : new ProviderError('failed', cause);
      });
      const { redirectUri } = atServer;
      return server.exchange(query, { state, verifier, redirectUri }, session.scopes);
    }
    const provider = this.#context.providers.get(session.provider);
    if (!provider) throw new ProviderError('failed', new Error('the provider is no longer configured'));
    const callback = new URL(
      `${this.#context.publicUrl()}/oauth/callback/${session.provider}?${query.toString()}`,
    );
    return provider.exchange(callback, { state, nonce, verifier }, session);
  }

  /**
   * Completes a sign-in of mode `caller`: the app says which of its users is signed in to it in the browser that brought the code.
   * Only then is the provider's code exchanged. If it is another user, the session ends.
   * @throws SwitchboardError `session_not_found` (also for another tenant's), `invalid_grant`
   */
  async confirmByApp(caller: Caller, confirmation: Confirmation): Promise<SessionStatus> {
    requireUserId(confirmation.userId);
    const { tenantId } = caller;
    const { session, brought, isOwner } = await takeConfirmed(this.#context, tenantId, confirmation);
    if (!isOwner) {
      await this.#outcomes.fail(session, 'user_mismatch', caller);
      throw new SwitchboardError(
        'invalid_grant',
        'user_id: is not the user that the session was started for. Nothing was connected, and the session has ended.',
      );
    }
    if ('values' in brought) await this.#outcomes.connectValues(session, brought.values, caller);
    else await this.#exchange(session, brought.pending, new URLSearchParams(brought.query), caller);
    const [ended] = await this.#context.db
      .select({ status: authSessions.status, errorCode: authSessions.errorCode })
      .from(authSessions)
      .where(eq(authSessions.idHash, session.idHash));
    return ended?.status === 'complete'
      ? { status: 'complete' }
      : { status: 'error', error: SESSION_ERRORS[errorOf(ended?.errorCode ?? null)] };
  }

  /** Handles the user's decision on a sign-in of mode `page`. Resolves to false if it has expired or belongs to another browser. */
  async confirm(
    result: string,
    browser: string | undefined,
    accepts: boolean,
    actor: Actor,
  ): Promise<boolean> {
    const session = await sessionOfResult(this.#context, result);
    if (session?.status !== 'confirm' || session.over || !isBrowserOf(session, browser)) return false;
    const waiting = await waitingSecrets(this.#context, session);
    if (!waiting) return false;
    if (accepts) await this.#outcomes.connect(session, waiting, actor);
    else await this.#outcomes.fail(session, 'access_denied', actor, waiting);
    return true;
  }

  /** Ends the connection of a sign-in and revokes what was issued for it. Works once, within ten minutes. */
  undo(result: string, actor: Actor): Promise<boolean> {
    return undo(this.#parts, result, actor);
  }
}

interface Callback {
  /** The sessions that its address is for. */
  readonly of: SQL;
  /** The address that the browser came back to; undefined at an identity provider's, which its session names. */
  readonly redirectUri: string | undefined;
  readonly query: URLSearchParams;
  readonly browser: string | undefined;
  readonly actor: Actor;
}

const CODES = {
  denied: 'access_denied',
  refused: 'provider_error',
  invalid_grant: 'exchange_failed',
  other_account: 'exchange_failed',
  failed: 'exchange_failed',
} as const;

/** Returns whether a session may connect this account. An address that the provider has not verified does not count. */
const isExpected = ({ subject, email }: Account, expected: string | undefined): boolean =>
  expected === undefined ||
  subject === expected ||
  (email !== undefined && inLowerCase(email) === inLowerCase(expected));

/** Folds ASCII letters only: other characters, such as the Kelvin sign, must not become a letter of another address. */
const inLowerCase = (address: string): string => address.replaceAll(/[A-Z]/g, letter => letter.toLowerCase());

/** RFC 6749 §3.1: parameters must not be repeated. */
export const hasRepeated = (query: URLSearchParams): boolean =>
  new Set(query.keys()).size !== [...query.keys()].length;
