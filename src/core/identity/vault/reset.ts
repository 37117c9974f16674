import { isNotNull, sql } from 'drizzle-orm';
import type { Database } from '../../../platform/database/database.ts';
import { withoutTokens } from '../connections/connection-record.ts';
import { authSessions, connections, refreshTokens, revocationOutbox, signingKeys } from '../schema.ts';
import { forgetCanary } from './key-check.ts';
import type { Vault } from './vault.ts';

/**
 * Gives up what a lost key has sealed, so that a new one can begin: connections must be made again, sign-ins under way end,
 * providers are not told of tokens that can no longer be read, and identity tokens end with their signing keys, until they
 * are refreshed. Users, refresh tokens, API keys and the catalogue stay.
 */
export async function dropSealed(db: Database, vault: Vault): Promise<void> {
  await db.transaction(async tx => {
    if (!(await forgetCanary(tx, vault))) return;
    const noReplay = { replaySealed: null, replayUntil: null };
    await tx.update(connections).set(withoutTokens()).where(isNotNull(connections.sealed));
    await tx
      .update(authSessions)
      .set({ status: 'error', errorCode: 'interrupted', finishedAt: sql`now()`, sealed: null })
      .where(isNotNull(authSessions.sealed));
    await tx.update(authSessions).set(noReplay).where(isNotNull(authSessions.replaySealed));
    await tx.update(refreshTokens).set(noReplay).where(isNotNull(refreshTokens.replaySealed));
    await tx.delete(revocationOutbox);
    await tx.delete(signingKeys);
  });
}
