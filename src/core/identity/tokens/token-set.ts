import { sql } from 'drizzle-orm';
import type { Database } from '../../../platform/database/database.ts';
import type { IdentityTokens, TokenOwner } from './identity-token.ts';
import { refreshTokens } from '../schema.ts';
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
