import { and, eq, gt, or, sql } from 'drizzle-orm';
import type { IdentityContext } from '../context.ts';
import { authSessions } from '../schema.ts';
import { isSecret, sha256 } from '../secrets.ts';
import {
  sessionBinding,
  waitingBinding,
  type PendingSecrets,
  type SessionRow,
  type WaitingSecrets,
} from './session-record.ts';

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
