import { and, eq, lte, or, sql, type SQL } from 'drizzle-orm';
import type { Database } from '../../../platform/database/database.ts';
import type { IdentityContext } from '../context.ts';
import { authSessions } from '../schema.ts';
import type { SessionRow, WaitingSecrets } from './session-record.ts';
import { waitingSecrets } from './sign-in-store.ts';
import { keepWithConnection } from '../connections/replaced-grants.ts';
import { VaultError } from '../vault/vault.ts';

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
