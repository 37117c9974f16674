import { and, eq, isNull, sql } from 'drizzle-orm';
import type { Database } from '../../../platform/database/database.ts';
import type { IdentityTokens, TokenOwner } from './identity-token.ts';
import { apiKeys, users } from '../../access/schema.ts';
import { refreshTokens, tokenFamilies } from '../schema.ts';
import { newSecret, sha256 } from '../secrets.ts';
import { IDENTITY_TOKEN_SEC } from './signing-keys.ts';

/** Days a refresh token lives unused. */
const IDLE_DAYS = 30;

export interface TokenSet {
  readonly access_token: string;
  readonly refresh_token: string;
  readonly expires_in: number;
  readonly token_type: 'Bearer';
}

export type Sign = Awaited<ReturnType<IdentityTokens['issuer']>>;
/** A new pair; the refresh token follows the one with `parentHash`, or begins its family. */
export async function issue(
  tx: Database,
  sign: Sign,
  owner: TokenOwner,
  parentHash: Uint8Array | undefined,
): Promise<TokenSet> {
  const refreshToken = newSecret('sbr');
  await tx.insert(refreshTokens).values({
    hash: sha256(refreshToken),
    familyId: owner.familyId,
    parentHash: parentHash ?? null,
    epoch: owner.epoch,
    expiresAt: sql`now() + make_interval(days => ${IDLE_DAYS})`,
  });
  return {
    access_token: await sign(owner),
    refresh_token: refreshToken,
    expires_in: IDENTITY_TOKEN_SEC,
    token_type: 'Bearer',
  };
}

/** Ends what speaks for the user, whose row is locked: identity tokens, families of refresh tokens, bound API keys. */
export async function endTokens(
  tx: Database,
  userId: string,
  revokedReason: 'revoked' | 'refresh_reuse',
): Promise<void> {
  await tx
    .update(users)
    .set({ tokenEpoch: sql`${users.tokenEpoch} + 1` })
    .where(eq(users.id, userId));
  await tx
    .update(tokenFamilies)
    .set({ revokedAt: sql`now()`, revokedReason })
    .where(and(eq(tokenFamilies.userId, userId), isNull(tokenFamilies.revokedAt)));
  await tx
    .update(apiKeys)
    .set({ revokedAt: sql`now()` })
    .where(and(eq(apiKeys.userId, userId), isNull(apiKeys.revokedAt)));
}
