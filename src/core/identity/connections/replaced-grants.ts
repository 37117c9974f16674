import { and, eq } from 'drizzle-orm';
import type { Database } from '../../../platform/database/database.ts';
import { connectionBinding, supersede, type StoredTokens, type TokenPair } from './connection-record.ts';
import { connections } from '../schema.ts';
import { VaultError, type Vault } from '../vault/vault.ts';

/** Whose grant it is. */
export interface GrantOwner {
  readonly provider: string;
  readonly userId: string;
  /** The provider's `sub`. */
  readonly subject: string;
}

/**
 * Tokens that will not be used, of an account that is connected: kept beside the connection's own, to be revoked with them.
 * False: the account is not connected, and the provider can be told at once. Within a transaction; locks the connection.
 */
export async function keepWithConnection(
  tx: Database,
  vault: Vault,
  owner: GrantOwner,
  tokens: TokenPair,
): Promise<boolean> {
  const [row] = await tx
    .select()
    .from(connections)
    .where(
      and(
        eq(connections.userId, owner.userId),
        eq(connections.provider, owner.provider),
        eq(connections.subject, owner.subject),
        eq(connections.status, 'active'),
      ),
    )
    .limit(1)
    .for('update');
  if (!row?.sealed) return false;
  const binding = connectionBinding(row);
  let current: StoredTokens;
  try {
    current = JSON.parse(await vault.open(binding, row.sealed)) as StoredTokens;
  } catch (error) {
    // Nothing of it can be used or revoked; it must not keep these tokens, a revocation or an expiry.
    if (error instanceof VaultError) return false;
    throw error;
  }
  const sealed = await vault.seal(binding, JSON.stringify(supersede(current, tokens)));
  // Not a new version: the tokens in use are the same.
  await tx.update(connections).set({ sealed }).where(eq(connections.id, row.id));
  return true;
}
