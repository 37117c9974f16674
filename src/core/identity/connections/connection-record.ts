import { sql } from 'drizzle-orm';
import { connections } from '../schema.ts';
import type { Binding } from '../vault/vault.ts';

export type ConnectionRow = typeof connections.$inferSelect;

export interface TokenPair {
  readonly accessToken: string;
  readonly refreshToken: string | undefined;
}

/** The tokens of a connection, as they lie in the vault. */
export interface StoredTokens extends TokenPair {
  /**
   * Of earlier sign-ins to the same account. They are told to the provider together with the current ones and not before:
   * many providers end the whole grant with any of its tokens.
   */
  readonly superseded?: readonly TokenPair[];
}

/** A user who signs in again and again leaves no more than the newest of them. */
const MAX_SUPERSEDED = 10;

const pairOf = ({ accessToken, refreshToken }: TokenPair): TokenPair => ({ accessToken, refreshToken });

export const supersede = (tokens: StoredTokens, ...older: readonly TokenPair[]): StoredTokens => ({
  accessToken: tokens.accessToken,
  refreshToken: tokens.refreshToken,
  superseded: [...(tokens.superseded ?? []), ...older.map(pairOf)].slice(-MAX_SUPERSEDED),
});

/** The provider and the resource are part of it: a row that is made another provider's opens nothing. */
export const connectionBinding = (
  row: Pick<ConnectionRow, 'tenantId' | 'userId' | 'id' | 'provider' | 'resource'>,
): Binding => ({
  table: 'connections',
  tenantId: row.tenantId,
  userId: row.userId,
  id: JSON.stringify([row.id, row.provider, row.resource]),
  purpose: 'provider_tokens',
});

/** What a connection without tokens is set to: only the user can mend it. */
export const withoutTokens = () => ({
  status: 'needs_reauth' as const,
  sealed: null,
  hasRefreshToken: false,
  version: sql`${connections.version} + 1`,
  leaseId: null,
  leaseUntil: null,
  updatedAt: sql`now()`,
});
