import { and, eq, gt, isNull, sql } from 'drizzle-orm';
import type { Actor } from '../../access/audit.ts';
import { lockUser } from '../../access/tenants.ts';
import type { Connections } from '../connections/connections.ts';
import type { Holdings } from '../connections/holdings.ts';
import type { IdentityContext } from '../context.ts';
import { authSessions, connections, tokenFamilies } from '../schema.ts';
import { isMadeBy, sessionOfResult, UNDO_MINUTES } from './session-store.ts';

interface Parts {
  readonly context: IdentityContext;
  readonly connections: Connections;
  readonly holdings: Holdings;
}

/**
 * Ends the connection of a sign-in and revokes what was issued for it. Works once, within ten minutes, and not after a later sign-in
 * has renewed the connection.
 */
export async function undo(
  { context, connections: all, holdings }: Parts,
  result: string,
  actor: Actor,
): Promise<boolean> {
  const found = await sessionOfResult(context, result);
  if (!found) return false;
  const done = await context.db.transaction(async tx => {
    await lockUser(tx, found.tenantId, found.userId);
    const [session] = await tx
      .select()
      .from(authSessions)
      .where(
        and(
          eq(authSessions.idHash, found.idHash),
          eq(authSessions.status, 'complete'),
          gt(authSessions.finishedAt, sql`now() - make_interval(mins => ${UNDO_MINUTES})`),
        ),
      )
      .for('update');
    if (!session) return false;
    const [connection] = await tx
      .select()
      .from(connections)
      .where(eq(connections.id, session.connectionId ?? ''))
      .for('update');
    if (connection && !isMadeBy(session, connection)) return false;
    if (connection) await all.remove(tx, connection, 'undone');
    await tx
      .update(authSessions)
      .set({ status: 'error', errorCode: 'undone' })
      .where(eq(authSessions.idHash, session.idHash));
    await tx
      .update(tokenFamilies)
      .set({ revokedAt: sql`now()`, revokedReason: 'undone' })
      .where(and(eq(tokenFamilies.id, session.familyId ?? ''), isNull(tokenFamilies.revokedAt)));
    const { tenantId, userId, provider } = session;
    await context.audit.record(
      actor,
      {
        event: 'connection_undone',
        outcome: 'ok',
        tenantId,
        userId,
        meta: { provider },
      },
      tx,
    );
    return true;
  });
  holdings.forget(found.tenantId, found.userId);
  context.outbox.kick();
  context.events.kick();
  return done;
}
