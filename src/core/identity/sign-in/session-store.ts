import { and, eq, gt, lte, or, sql, type SQL } from 'drizzle-orm';
import type { Database } from '../../../platform/database/database.ts';
import { keepWithConnection } from '../connections/connections.ts';
import type { Account, Grant } from '../connections/provider.ts';
import type { IdentityContext } from '../context.ts';
import { authSessions } from '../schema.ts';
import { isSecret, sha256 } from '../secrets.ts';
import { VaultError, type Binding } from '../vault/vault.ts';

export type SessionRow = typeof authSessions.$inferSelect;

/** What a pending session keeps to itself. */
export interface PendingSecrets {
  readonly nonce: string;
  readonly verifier: string;
  /** The provider's page. */
  readonly providerUrl: string;
  /** As they were answered, for a just-in-time session that is given out again. */
  readonly sessionId: string;
  readonly authUrl: string;
}

/** What a session keeps to itself while it waits for the user's click. */
export interface WaitingSecrets {
  readonly grant: Grant;
  readonly account: Account;
}

/** The session's row in the vault's terms. */
export const sessionBinding = (row: {
  tenantId: string;
  userId: string;
  idHash: Uint8Array;
  provider: string;
}): Binding => ({
  table: 'auth_sessions',
  tenantId: row.tenantId,
  userId: row.userId,
  id: JSON.stringify([Buffer.from(row.idHash).toString('base64url'), row.provider]),
  purpose: 'authorization',
});

/** While it waits for the user's click, a session's secrets are the tokens themselves. */
export const waitingBinding = (row: Parameters<typeof sessionBinding>[0]): Binding => ({
  ...sessionBinding(row),
  purpose: 'waiting',
});

/** The texts of the ways in which a session fails. Never a provider's own words: they reach pages and logs. */
export const SESSION_ERRORS = {
  access_denied: 'access_denied: The user did not grant access.',
  account_mismatch:
    'account_mismatch: The user signed in to another account than before. Pass allow_account_change to permit it.',
  exchange_failed:
    'exchange_failed: The identity provider did not complete the sign-in. Start a new session.',
  interrupted: 'interrupted: The sign-in was interrupted on our side. Start a new session.',
  invalid_response:
    'invalid_response: The answer of the identity provider was not valid. Start a new session.',
  provider_error: 'provider_error: The identity provider refused the sign-in. Start a new session.',
  revoked: "revoked: The user's access was revoked meanwhile.",
  session_expired: 'session_expired: The user did not finish within 5 minutes. Start a new session.',
  undone: 'undone: The user undid the connection.',
} as const;
export type SessionError = keyof typeof SESSION_ERRORS;

/** A code that this version does not know is that of a failure nevertheless. */
export const errorOf = (code: string | null): SessionError =>
  code !== null && Object.hasOwn(SESSION_ERRORS, code) ? (code as SessionError) : 'exchange_failed';

export const UNDO_MINUTES = 10;

/** The session behind a link to our own page, while it can still be begun. */
export async function sessionOfTicket(
  context: IdentityContext,
  ticket: string,
): Promise<SessionRow | undefined> {
  if (!isSecret(ticket, 'link')) return undefined;
  const [session] = await context.db
    .select()
    .from(authSessions)
    .where(
      and(
        eq(authSessions.ticketHash, sha256(ticket)),
        eq(authSessions.status, 'pending'),
        gt(authSessions.expiresAt, sql`now()`),
      ),
    );
  return session;
}

/** The session behind the link to a result. `over`: too late for the click; `undoable`: not too late for that. */
export async function sessionOfResult(
  context: IdentityContext,
  result: string,
): Promise<(SessionRow & { over: boolean; undoable: boolean }) | undefined> {
  if (!isSecret(result, 'done')) return undefined;
  const [found] = await context.db
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
export async function pendingSecrets(context: IdentityContext, session: SessionRow): Promise<PendingSecrets> {
  return JSON.parse(
    await context.vault.open(sessionBinding(session), session.sealed ?? ''),
  ) as PendingSecrets;
}

/** Undefined: no longer waiting. @throws VaultError */
export async function waitingSecrets(
  context: IdentityContext,
  session: SessionRow,
): Promise<WaitingSecrets | undefined> {
  if (session.status !== 'confirm' || session.sealed === null) return undefined;
  return JSON.parse(await context.vault.open(waitingBinding(session), session.sealed)) as WaitingSecrets;
}

export const isBrowserOf = (session: SessionRow, browser: string | undefined): boolean =>
  browser !== undefined &&
  session.browserHash !== null &&
  Buffer.compare(session.browserHash, sha256(browser)) === 0;

/** Gives a pending session to one callback, once; says why it cannot. */
export async function claimSession(
  context: IdentityContext,
  provider: string,
  state: string,
  browser: string | undefined,
  result: string,
): Promise<SessionRow | 'link_over' | 'other_browser'> {
  const { db } = context;
  const open = and(
    eq(authSessions.stateHash, sha256(state)),
    eq(authSessions.provider, provider),
    eq(authSessions.status, 'pending'),
    gt(authSessions.expiresAt, sql`now()`),
  );
  const ownBrowser = browser === undefined ? sql`false` : eq(authSessions.browserHash, sha256(browser));
  const [claimed] = await db
    .update(authSessions)
    .set({ status: 'claimed', claimedAt: sql`now()`, resultHash: sha256(result) })
    .where(and(open, or(eq(authSessions.mode, 'direct'), ownBrowser)))
    .returning();
  if (claimed) return claimed;
  const [elsewhere] = await db.select({ mode: authSessions.mode }).from(authSessions).where(open);
  return elsewhere?.mode === 'page' ? 'other_browser' : 'link_over';
}

/** A callback that came in time may still be finished this long afterwards; one that takes longer has crashed. */
const CLAIM_SEC = 60;

/** Ends what nobody finished in time. Tokens that were waiting for the user's click go back to the provider. */
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
      // Replicas that do this at once lock in one order.
      .orderBy(authSessions.userId, authSessions.idHash)
      .limit(limit)
      .for('update', { skipLocked: true });
    for (const row of rows) {
      await giveBackWaiting(context, tx, row);
      await tx
        .update(authSessions)
        .set({
          status: 'error',
          errorCode: row.status === 'claimed' ? 'interrupted' : 'session_expired',
          finishedAt: sql`now()`,
          sealed: null,
        })
        .where(eq(authSessions.idHash, row.idHash));
    }
    return rows.length;
  });
}

/** The tokens of a session that ends without its click; one that does not wait for a click has none. */
export async function giveBackWaiting(
  context: IdentityContext,
  tx: Database,
  row: SessionRow,
): Promise<void> {
  const waiting = await waitingSecrets(context, row).catch((error: unknown) => {
    if (!(error instanceof VaultError)) throw error;
    context.log.error(
      { err: error, event: 'session_unreadable', tenantId: row.tenantId },
      'ALARM: the tokens of a sign-in do not open',
    );
    return undefined;
  });
  if (waiting) await giveBack(context, tx, row, waiting);
}

/** Tokens of a sign-in that came to nothing. The provider is told, but not while the same account is connected. */
export async function giveBack(
  context: IdentityContext,
  tx: Database,
  session: Pick<SessionRow, 'userId' | 'provider'>,
  { grant, account }: WaitingSecrets,
): Promise<void> {
  const owner = { userId: session.userId, provider: session.provider, subject: account.subject };
  if (!(await keepWithConnection(tx, context.vault, owner, grant)))
    await context.outbox.add(tx, owner, grant);
}

/** Past its time: unfinished at expiry, or claimed by a callback that did not come back. */
export const overdue = () =>
  sql<boolean>`(${or(
    and(sql`${authSessions.status} in ('pending', 'confirm')`, lte(authSessions.expiresAt, sql`now()`)),
    and(
      eq(authSessions.status, 'claimed'),
      lte(authSessions.claimedAt, sql`now() - make_interval(secs => ${CLAIM_SEC})`),
    ),
  )})`;
