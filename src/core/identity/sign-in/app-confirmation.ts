import { and, eq, gt, sql } from 'drizzle-orm';
import { SwitchboardError } from '../../../errors.ts';
import { isSecret, newSecret, sha256 } from '../../../platform/ids.ts';
import { users } from '../../access/schema.ts';
import type { CredentialValues } from '../../catalogue/credential-schema.ts';
import type { IdentityContext } from '../context.ts';
import { authSessions } from '../schema.ts';
import { waitingBinding, type PendingSecrets, type SessionError, type SessionRow } from './session-store.ts';

/** The session of a confirmation does not exist, or belongs to another tenant. */
export const sessionNotFound = (): SwitchboardError =>
  new SwitchboardError('session_not_found', 'No authorization session has this id. Create a new one.');

/** The result of the browser in a session of mode `caller`. It is stored until the app confirms who uses that browser. */
export type Brought =
  /** The provider's response, with a code that was not exchanged yet. */
  | { readonly query: string; readonly pending: PendingSecrets }
  /** The credentials that the user entered for a server. */
  | { readonly values: CredentialValues };

/** Returns the app's URL at which a session ends. */
function appUrl(session: SessionRow, sessionId: string, result: Readonly<Record<string, string>>): string {
  const url = new URL(session.returnUrl ?? '');
  for (const [name, value] of Object.entries({ session_id: sessionId, ...result }))
    url.searchParams.set(name, value);
  return url.href;
}

/** Returns the address of the app for a session that failed. */
export const failedAtApp = (session: SessionRow, sessionId: string, error: SessionError): string =>
  appUrl(session, sessionId, { error });

/**
 * Keeps what the browser brought, sealed, and sends the browser on to the app with a code that works once.
 * @param from the session's status so far
 * @returns the address of the app; undefined if the session has ended meanwhile
 */
export async function sendToApp(
  { db, vault }: IdentityContext,
  session: SessionRow,
  sessionId: string,
  { brought, from }: { readonly brought: Brought; readonly from: 'pending' | 'claimed' },
): Promise<string | undefined> {
  const code = newSecret('code');
  const sealed = await vault.sealJson(waitingBinding(session), brought);
  const [waits] = await db
    .update(authSessions)
    .set({
      status: 'confirm',
      sealed,
      resultHash: sha256(code),
      // A user who came in time leaves the app at least a minute.
      expiresAt: sql`greatest(${authSessions.expiresAt}, now() + interval '1 minute')`,
    })
    .where(and(eq(authSessions.idHash, session.idHash), eq(authSessions.status, from)))
    .returning({ idHash: authSessions.idHash });
  return waits && appUrl(session, sessionId, { code });
}

export interface Confirmation {
  readonly sessionId: string;
  /** From the address at which the browser came back to the app. */
  readonly code: string;
  /** The app's own id for the user who is signed in to it in that browser. */
  readonly userId: string;
}

/**
 * Takes what the browser brought, once, for the app's confirmation.
 * @returns `isOwner` is false if the app says that another user is in that browser
 * @throws SwitchboardError `session_not_found`; `invalid_grant` for a code that is wrong, used or expired
 */
export async function takeConfirmed(
  context: IdentityContext,
  tenantId: string,
  { sessionId, code, userId }: Confirmation,
): Promise<{ readonly session: SessionRow; readonly brought: Brought; readonly isOwner: boolean }> {
  if (!isSecret(sessionId, 'ses')) throw sessionNotFound();
  const own = and(eq(authSessions.idHash, sha256(sessionId)), eq(authSessions.tenantId, tenantId));
  const [found] = await context.db
    .select({ session: authSessions, user: users.externalId })
    .from(authSessions)
    .innerJoin(users, eq(users.id, authSessions.userId))
    .where(own);
  if (!found) throw sessionNotFound();
  if (!isSecret(code, 'code')) throw wrongCode();
  const [session] = await context.db
    .update(authSessions)
    .set({ status: 'claimed', claimedAt: sql`now()`, sealed: null })
    .where(
      and(
        own,
        eq(authSessions.mode, 'caller'),
        eq(authSessions.status, 'confirm'),
        eq(authSessions.resultHash, sha256(code)),
        gt(authSessions.expiresAt, sql`now()`),
      ),
    )
    .returning();
  if (!session) throw wrongCode();
  const brought = await context.vault.openJson<Brought>(waitingBinding(session), found.session.sealed ?? '');
  return { session, brought, isOwner: found.user === userId };
}

const wrongCode = () =>
  new SwitchboardError(
    'invalid_grant',
    'The code is wrong, was used before, or has expired. Each code works once, for the session it came with.',
  );
