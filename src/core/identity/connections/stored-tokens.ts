import { and, eq } from 'drizzle-orm';
import type { Database } from '../../../platform/database/database.ts';
import { connections } from '../schema.ts';
import { kindAtServer, serverIdOf } from './holdings.ts';
import type { IssuedTo } from '../oauth/client.ts';
import { VaultError, type Binding, type Vault } from '../vault/vault.ts';

export type ConnectionRow = typeof connections.$inferSelect;

export interface TokenPair {
  readonly accessToken: string;
  readonly refreshToken: string | undefined;
  /** For tokens of a server's own authorization server. */
  readonly issuedTo?: IssuedTo | undefined;
}

/** The tokens of a connection, as stored in the vault. */
export interface StoredTokens extends TokenPair {
  /**
   * Tokens of earlier sign-ins to the same account. They are revoked only together with the current ones, because many
   * providers end the whole grant with any of its tokens.
   */
  readonly superseded?: readonly TokenPair[];
}

/** The maximum number of superseded tokens that a connection's row has. */
const MAX_SUPERSEDED = 10;

const pairOf = ({ accessToken, refreshToken, issuedTo }: TokenPair): TokenPair => ({
  accessToken,
  refreshToken,
  issuedTo,
});

/**
 * Adds older tokens to those that are revoked with the connection's own. Those that no longer fit are kept in the outbox until the
 * connection ends. The connection must be locked.
 */
export async function supersede(
  tx: Database,
  { hold }: Holds,
  owner: GrantOwner,
  tokens: StoredTokens,
  older: TokenPair,
): Promise<StoredTokens> {
  const all = [...(tokens.superseded ?? []), pairOf(older)];
  for (const pair of all.slice(0, -MAX_SUPERSEDED)) await hold(tx, owner, pair);
  return { ...pairOf(tokens), superseded: all.slice(-MAX_SUPERSEDED) };
}

/** Keeps tokens until the connection of their account ends. */
export interface Holds {
  hold(this: void, tx: Database, owner: GrantOwner, tokens: TokenPair): Promise<void>;
}

/** Binds the tokens, or the values, to the row, its provider and its resource: with a changed provider, they cannot be decrypted. */
export const connectionBinding = (
  row: Pick<ConnectionRow, 'tenantId' | 'userId' | 'id' | 'provider' | 'resource' | 'issuer'>,
): Binding => ({
  table: 'connections',
  tenantId: row.tenantId,
  userId: row.userId,
  id: JSON.stringify([row.id, row.provider, row.resource, ...(row.issuer === null ? [] : [row.issuer])]),
  purpose: PURPOSES[kindOf(row)],
});

const PURPOSES = { provider: 'provider_tokens', credentials: 'values', oauth: 'server_tokens' } as const;

/**
 * Returns the kind of a connection. `credentials`: values, such as an API key, that one server takes. `oauth`: an account at the
 * server's own authorization server. `provider`: an account at an identity provider.
 */
export const kindOf = (
  row: Pick<ConnectionRow, 'provider' | 'issuer'>,
): 'credentials' | 'oauth' | 'provider' =>
  serverIdOf(row.provider) === undefined ? 'provider' : kindAtServer(row);

/** Returns whether a connection holds values instead of tokens. */
export const hasValues = (row: Pick<ConnectionRow, 'provider' | 'issuer'>): boolean =>
  kindOf(row) === 'credentials';

/** The account that a grant belongs to. */
export interface GrantOwner {
  readonly provider: string;
  readonly userId: string;
  /** The provider's `sub`. */
  readonly subject: string;
}

/**
 * Stores unused tokens with the connection to the same account, to be revoked together. Locks the connection until the
 * transaction ends. Resolves to false if the account is not connected; the provider can then be notified at once.
 */
export async function keepWithConnection(
  tx: Database,
  { vault, outbox }: { readonly vault: Vault; readonly outbox: Holds },
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
    current = await vault.openJson<StoredTokens>(binding, row.sealed);
  } catch (error) {
    // Tokens that cannot be decrypted must not block the revocation of these.
    if (error instanceof VaultError) return false;
    throw error;
  }
  const sealed = await vault.sealJson(binding, await supersede(tx, outbox, row, current, tokens));
  // The version is unchanged, because the tokens in use are the same.
  await tx.update(connections).set({ sealed }).where(eq(connections.id, row.id));
  return true;
}
