import { and, eq, gt, isNull, lte, ne, or, sql, type SQL } from 'drizzle-orm';
import type { Database } from '../../../platform/database/database.ts';
import { keepWithConnection, type ConnectionRow } from '../connections/stored-tokens.ts';
import type { Account, Grant } from '../connections/provider.ts';
import type { IdentityContext } from '../context.ts';
import { PAGE_KEY_ID } from '../../access/caller.ts';
import { authSessions } from '../schema.ts';
import { isSecret, sha256 } from '../../../platform/ids.ts';
import type { IssuedTo } from '../oauth/client.ts';
import { VaultError, type Binding } from '../vault/vault.ts';

export type SessionRow = typeof authSessions.$inferSelect;

export const UNDO_MINUTES = 10;
/** How long a callback that arrived in time may take to finish; a longer one has crashed. */
const CLAIM_SEC = 60;

/** The secrets of a pending session. */
export interface PendingSecrets {
  readonly nonce: string;
  readonly verifier: string;
  /** The provider's page. */
  readonly providerUrl: string;
  /** The e-mail address or the id of the only account that may be connected. */
  readonly expectedAccount?: string | undefined;
  /** Set for a sign-in with a server's own authorization server. */
  readonly atServer?: {
    readonly issuedTo: IssuedTo;
    readonly redirectUri: string;
    /** For a tenant's shared connection: whether calls for users carry it, too. */
    readonly forUsers?: boolean | undefined;
  };
  /** The response of a just-in-time session, to be returned again. */
  readonly sessionId: string;
  readonly authUrl: string;
}

/** The secrets of a session that waits for the user's confirmation. */
export interface WaitingSecrets {
  readonly grant: Grant;
  readonly account: Account;
}

/** Binds the sealed data of a session's row to that row and its provider. */
export const sessionBinding = (
  row: Pick<SessionRow, 'tenantId' | 'userId' | 'idHash' | 'provider'>,
): Binding => ({
  table: 'auth_sessions',
  tenantId: row.tenantId,
  userId: row.userId,
  id: JSON.stringify([Buffer.from(row.idHash).toString('base64url'), row.provider]),
  purpose: 'authorization',
});

/** Binds the tokens of a session that waits for the user's confirmation. */
export const waitingBinding = (row: Parameters<typeof sessionBinding>[0]): Binding => ({
  ...sessionBinding(row),
  purpose: 'waiting',
});

/** The texts of a session's failures, never a provider's own, because they appear on pages and in logs. */
export const SESSION_ERRORS = {
  access_denied: 'access_denied: The user did not grant access.',
  account_mismatch:
    'account_mismatch: The user signed in with a different account than before, or than expected_account. Send allow_account_change to permit a change.',
  exchange_failed:
    'exchange_failed: The identity provider did not complete the sign-in. Start a new session.',
  interrupted: 'interrupted: The server interrupted the sign-in. Start a new session.',
  invalid_response: "invalid_response: The identity provider's response was invalid. Start a new session.",
  provider_error: 'provider_error: The identity provider refused the sign-in. Start a new session.',
  replaced: 'replaced: A later call needed another sign-in with the same server, and has its link.',
  revoked: "revoked: The user's access was revoked during the sign-in.",
  server_moved:
    'server_moved: The server has another address than when the sign-in began, or is gone. Start a new session.',
  session_expired: 'session_expired: The user did not finish within 5 minutes. Start a new session.',
  undone: 'undone: The user undid the connection.',
  user_mismatch:
    'user_mismatch: The app confirmed the sign-in for another user than the one it was started for.',
} as const;
export type SessionError = keyof typeof SESSION_ERRORS;

/** Returns a stored error code, or `exchange_failed` if this version does not know it. */
export const errorOf = (code: string | null): SessionError =>
  code !== null && Object.hasOwn(SESSION_ERRORS, code) ? (code as SessionError) : 'exchange_failed';

/**
 * Finds the session of a link to our own page, while it can still be started. One that began on the page of connections is for that
 * browser alone: its user has no reason to pass the link on, and whoever follows it would connect an account for that user.
 */
export async function sessionOfTicket(
  { db }: IdentityContext,
  ticket: string,
  browser: string | undefined,
): Promise<SessionRow | undefined> {
  if (!isSecret(ticket, 'link')) return undefined;
  const [session] = await db
    .select()
    .from(authSessions)
    .where(
      and(
        eq(authSessions.ticketHash, sha256(ticket)),
        eq(authSessions.status, 'pending'),
        gt(authSessions.expiresAt, sql`now()`),
        or(ne(authSessions.apiKeyId, PAGE_KEY_ID), isOwnBrowser(browser)),
      ),
    );
  return session;
}

export type ResultSession = SessionRow & {
  /** The confirmation comes too late. */
  readonly over: boolean;
  /** The connection can still be undone. */
  readonly undoable: boolean;
};

/** Returns whether what a connection has is of this session's sign-in. */
export const isMadeBy = (
  session: Pick<SessionRow, 'signIn'>,
  connection: Pick<ConnectionRow, 'signIn'>,
): boolean => session.signIn === null || session.signIn === connection.signIn;

/** Finds the session of a link to a result. */
export async function sessionOfResult(
  { db }: IdentityContext,
  result: string,
): Promise<ResultSession | undefined> {
  if (!isSecret(result, 'done')) return undefined;
  const [found] = await db
    .select({
      session: authSessions,
      over: sql<boolean>`${authSessions.expiresAt} <= now()`,
      undoable: sql<boolean>`coalesce(${authSessions.finishedAt} > now() - make_interval(mins => ${UNDO_MINUTES}), false)`,
    })
    .from(authSessions)
    .where(eq(authSessions.resultHash, sha256(result)));
  return found && { ...found.session, over: found.over, undoable: found.undoable };
}

/** @throws VaultError */
export const pendingSecrets = ({ vault }: IdentityContext, session: SessionRow): Promise<PendingSecrets> =>
  vault.openJson(sessionBinding(session), session.sealed ?? '');

/** Returns undefined if the session no longer waits for the confirmation. @throws VaultError */
export async function waitingSecrets(
  { vault }: IdentityContext,
  session: SessionRow,
): Promise<WaitingSecrets | undefined> {
  // In mode `caller` no code has been exchanged yet.
  if (session.status !== 'confirm' || session.mode === 'caller' || session.sealed === null) return undefined;
  return vault.openJson<WaitingSecrets>(waitingBinding(session), session.sealed);
}

export const isBrowserOf = (session: SessionRow, browser: string | undefined): boolean =>
  browser !== undefined &&
  session.browserHash !== null &&
  Buffer.compare(session.browserHash, sha256(browser)) === 0;

const isOwnBrowser = (browser: string | undefined): SQL =>
  browser === undefined ? sql`false` : eq(authSessions.browserHash, sha256(browser));

/**
 * Gives a pending session to one callback, once; otherwise returns why it cannot.
 * @param callback.of the sessions that the callback's address is for
 */
export async function claimSession(
  { db }: IdentityContext,
  callback: { of: SQL; state: string; browser: string | undefined; result: string },
): Promise<SessionRow | 'link_over' | 'other_browser'> {
  const { of, state, browser, result } = callback;
  const open = and(
    eq(authSessions.stateHash, sha256(state)),
    of,
    eq(authSessions.status, 'pending'),
    gt(authSessions.expiresAt, sql`now()`),
  );
  const [claimed] = await db
    .update(authSessions)
    .set({ status: 'claimed', claimedAt: sql`now()`, resultHash: sha256(result) })
    // Without a page of ours no browser is bound: the confirmation of mode `caller` tells whose it is.
    .where(
      and(
        open,
        or(and(ne(authSessions.mode, 'page'), isNull(authSessions.ticketHash)), isOwnBrowser(browser)),
      ),
    )
    .returning();
  if (claimed) return claimed;
  const [elsewhere] = await db.select({ mode: authSessions.mode }).from(authSessions).where(open);
  return elsewhere && elsewhere.mode !== 'direct' ? 'other_browser' : 'link_over';
}

/** Ends sessions that were not completed in time, at most `limit` of them. Resolves to their number. */
export async function expireSessions(
  context: IdentityContext,
  which: SQL | undefined,
  limit: number,
): Promise<number> {
  return context.db.transaction(async tx => {
    const rows = await tx
      .select()
      .from(authSessions)
      .where(and(which, overdue()))
      // Concurrent replicas must lock in the same order.
      .orderBy(authSessions.userId, authSessions.idHash)
      .limit(limit)
      .for('update', { skipLocked: true });
    for (const row of rows) {
      await giveBackWaiting(context, tx, row);
      await tx
        .update(authSessions)
        .set(failed(row.status === 'claimed' ? 'interrupted' : 'session_expired'))
        .where(eq(authSessions.idHash, row.idHash));
    }
    return rows.length;
  });
}

/** Returns the columns of a session that ends in error. */
export const failed = (errorCode: SessionError) => ({
  status: 'error' as const,
  errorCode,
  finishedAt: sql`now()`,
  sealed: null,
});

/** Revokes the tokens of a session that ends without confirmation, if it has any. */
export async function giveBackWaiting(
  context: IdentityContext,
  tx: Database,
  row: SessionRow,
): Promise<void> {
  const waiting = await waitingSecrets(context, row).catch((error: unknown) => {
    if (!(error instanceof VaultError)) throw error;
    context.log.error(
      { err: error, event: 'session_unreadable', tenantId: row.tenantId },
      "ALARM: a sign-in's tokens cannot be decrypted",
    );
    return undefined;
  });
  if (waiting) await giveBack(context, tx, row, waiting);
}

/** Revokes the tokens of a failed sign-in, but not while the same account is connected. */
export async function giveBack(
  context: IdentityContext,
  tx: Database,
  { userId, provider }: Pick<SessionRow, 'userId' | 'provider'>,
  { grant, account }: WaitingSecrets,
): Promise<void> {
  const owner = { userId, provider, subject: account.subject };
  if (!(await keepWithConnection(tx, context, owner, grant))) await context.outbox.add(tx, owner, grant);
}

/** Selects expired sessions: uncompleted ones, and those claimed by a callback that never finished. */
export const overdue = () =>
  sql<boolean>`(${or(
    and(sql`${authSessions.status} in ('pending', 'confirm')`, lte(authSessions.expiresAt, sql`now()`)),
    and(
      eq(authSessions.status, 'claimed'),
      lte(authSessions.claimedAt, sql`now() - make_interval(secs => ${CLAIM_SEC})`),
    ),
  )})`;
