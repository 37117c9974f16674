import { and, eq, gt, isNull, sql, type SQL } from 'drizzle-orm';
import type { Config } from '../../../config/index.ts';
import { SwitchboardError } from '../../../errors.ts';
import type { Database } from '../../../platform/database/database.ts';
import { isSecret, newId, newSecret, sha256 } from '../../../platform/ids.ts';
import { monotonicMs } from '../../../platform/time.ts';
import type { Caller } from '../../access/caller.ts';
import { apiKeys, users } from '../../access/schema.ts';
import { lockUser } from '../../access/tenants.ts';
import { serverIdOf } from '../connections/holdings.ts';
import type { IdentityContext } from '../context.ts';
import { authSessions, refreshTokens, tokenFamilies } from '../schema.ts';
import { sessionBinding } from '../sign-in/session-store.ts';
import type { Binding } from '../vault/vault.ts';
import { IDENTITY_TOKEN_SEC, type IdentityTokens, type TokenOwner } from './identity-token.ts';

/** The total lifetime of a family in days: rotation does not extend it. */
const FAMILY_DAYS = 90;
/** How long a response is repeated for its Idempotency-Key. */
const REPLAY_SEC = 60;
/** How long a session can be redeemed after its completion. */
const REDEEM_SEC = 600;

type Outcome = TokenSet | 'refused' | 'pending';

/**
 * Identity tokens and their refresh tokens: the first pair for a completed session, then rotation (RFC 9700 §4.14.2). Reusing
 * a token revokes its family, except after a lost response or in a race of one client with itself; neither exception returns
 * new tokens.
 */
export class RefreshTokens {
  readonly #context: IdentityContext;
  readonly #tokens: IdentityTokens;
  readonly #policy: Pick<Config['identity'], 'refreshRaceMs' | 'reuseAction'>;

  constructor(
    context: IdentityContext,
    tokens: IdentityTokens,
    policy: Pick<Config['identity'], 'refreshRaceMs' | 'reuseAction'>,
  ) {
    this.#context = context;
    this.#tokens = tokens;
    this.#policy = policy;
  }

  /**
   * Issues the first token set of a completed session, once, within ten minutes of its completion.
   * @throws SwitchboardError `authorization_pending`, `invalid_grant`.
   */
  async redeem(caller: Caller, sessionId: string, idempotencyKey?: string): Promise<TokenSet> {
    if (!isSecret(sessionId, 'ses')) throw invalidSession();
    const own = and(eq(authSessions.idHash, sha256(sessionId)), eq(authSessions.tenantId, caller.tenantId));
    const sign = await this.#tokens.issuer();
    const outcome = await this.#context.db.transaction(async (tx): Promise<Outcome> => {
      const [owner] = await tx
        .select({ userId: authSessions.userId, provider: authSessions.provider })
        .from(authSessions)
        .where(own);
      // Connecting a server proves nothing about the user.
      if (owner && serverIdOf(owner.provider) !== undefined) throw notForTokens();
      const user = owner && (await lockUser(tx, caller.tenantId, owner.userId));
      if (!user) return 'refused';
      const [won] = await tx
        .update(authSessions)
        .set({ redeemedAt: sql`now()`, idempotencyHash: hashOf(idempotencyKey) })
        .where(
          and(
            own,
            eq(authSessions.status, 'complete'),
            isNull(authSessions.redeemedAt),
            eq(authSessions.epoch, user.tokenEpoch),
            gt(authSessions.finishedAt, sql`now() - make_interval(secs => ${REDEEM_SEC})`),
          ),
        )
        .returning();
      if (won) return this.#issueFirst(tx, caller, won, { sign, idempotencyKey });
      return this.#redeemedBefore(tx, own, idempotencyKey);
    });
    this.#count('session', outcome);
    if (outcome === 'pending') {
      throw new SwitchboardError(
        'authorization_pending',
        'The user has not finished the sign-in yet. Poll the session.',
      );
    }
    if (outcome === 'refused') throw invalidSession();
    return outcome;
  }

  /**
   * Issues a new token set for a refresh token, which is used up.
   * @param arrivedMs when the request arrived, by this process's monotonic clock
   * @throws SwitchboardError `invalid_grant`, with one text for every reason
   */
  async refresh(
    caller: Caller,
    refreshToken: string,
    { arrivedMs, idempotencyKey }: { arrivedMs: number; idempotencyKey?: string | undefined },
  ): Promise<TokenSet> {
    if (!isSecret(refreshToken, 'sbr')) throw invalidGrant();
    const hash = sha256(refreshToken);
    const sign = await this.#tokens.issuer();
    const outcome = await this.#context.db.transaction(async (tx): Promise<Outcome> => {
      const arrivedAt = arrivalOf(monotonicMs(this.#context.clock) - arrivedMs);
      const owner = await lockOwner(tx, caller, hash);
      if (!owner) return 'refused';
      const [won] = await tx
        .update(refreshTokens)
        .set({ usedAt: arrivedAt, idempotencyHash: hashOf(idempotencyKey) })
        .where(
          and(
            eq(refreshTokens.hash, hash),
            isNull(refreshTokens.usedAt),
            gt(refreshTokens.expiresAt, sql`now()`),
            eq(refreshTokens.epoch, owner.epoch),
            sql`exists (select from ${tokenFamilies} where ${tokenFamilies.id} = ${refreshTokens.familyId} and ${tokenFamilies.revokedAt} is null and ${tokenFamilies.expiresAt} > now())`,
          ),
        )
        .returning({ hash: refreshTokens.hash });
      if (!won) return this.#usedBefore(tx, caller, owner, hash, { arrivedAt, idempotencyKey });
      const set = await issue(tx, sign, owner, hash);
      if (idempotencyKey !== undefined) {
        const replaySealed = await this.#context.vault.sealJson(replayBinding(owner, hash), set);
        await tx
          .update(refreshTokens)
          .set({ replaySealed, replayUntil: replayUntil() })
          .where(eq(refreshTokens.hash, hash));
      }
      return set;
    });
    this.#count('refresh_token', outcome);
    // Thrown only now: inside the transaction, it would have rolled back the revocation of the family.
    if (typeof outcome === 'string') throw invalidGrant();
    return outcome;
  }

  #count(grant: 'session' | 'refresh_token', outcome: Outcome): void {
    this.#context.metrics?.events.tokensAsked(grant, typeof outcome === 'string' ? outcome : 'ok');
  }

  async #issueFirst(
    tx: Database,
    caller: Caller,
    session: typeof authSessions.$inferSelect,
    { sign, idempotencyKey }: { sign: Sign; idempotencyKey: string | undefined },
  ): Promise<TokenSet> {
    const familyId = newId('fam');
    const { userId, epoch, tenantId, idHash } = session;
    await tx.insert(tokenFamilies).values({
      id: familyId,
      tenantId,
      userId,
      expiresAt: sql`now() + make_interval(days => ${FAMILY_DAYS})`,
    });
    const owner = { tenantId, keyId: caller.keyId, userId, familyId, epoch };
    const set = await issue(tx, sign, owner, undefined);
    const replay =
      idempotencyKey === undefined
        ? {}
        : {
            replaySealed: await this.#context.vault.sealJson(sessionReplay(session), set),
            replayUntil: replayUntil(),
          };
    await tx
      .update(authSessions)
      .set({ familyId, ...replay })
      .where(eq(authSessions.idHash, idHash));
    const meta = { provider: session.provider };
    await this.#context.audit.record(caller, { event: 'tokens_issued', outcome: 'ok', userId, meta }, tx);
    return set;
  }

  async #redeemedBefore(
    tx: Database,
    own: ReturnType<typeof and>,
    idempotencyKey: string | undefined,
  ): Promise<Outcome> {
    const [found] = await tx
      .select({
        session: authSessions,
        open: sql<boolean>`${authSessions.finishedAt} is null and ${authSessions.expiresAt} > now()`,
        replayable: sql<boolean>`coalesce(${authSessions.replayUntil} > now(), false) and exists (
          select from refresh_tokens r join token_families f on f.id = r.family_id
          where f.id = auth_sessions.family_id and f.revoked_at is null and r.parent_hash is null and r.used_at is null)`,
      })
      .from(authSessions)
      .where(own);
    if (!found) return 'refused';
    const { session, open, replayable } = found;
    if (open) return 'pending';
    if (!replayable || session.replaySealed === null || !isSameKey(session.idempotencyHash, idempotencyKey))
      return 'refused';
    return this.#context.vault.openJson<TokenSet>(sessionReplay(session), session.replaySealed);
  }

  /** Decides on an unusable token: a repeated request, a race, a theft, or a token that was never valid. */
  async #usedBefore(
    tx: Database,
    caller: Caller,
    owner: TokenOwner,
    hash: Uint8Array,
    { arrivedAt, idempotencyKey }: { arrivedAt: SQL; idempotencyKey: string | undefined },
  ): Promise<Outcome> {
    const raceSec = this.#policy.refreshRaceMs / 1000;
    const [found] = await tx
      .select({
        token: refreshTokens,
        replayable: sql<boolean>`coalesce(${refreshTokens.replayUntil} > now(), false)`,
        atOnce: sql<boolean>`coalesce(abs(extract(epoch from ${refreshTokens.usedAt} - (${arrivedAt}))) < ${raceSec}::float8, false)`,
        isOver: sql<boolean>`${tokenFamilies.revokedAt} is not null or ${tokenFamilies.expiresAt} <= now()`,
        successorUsed: sql<boolean>`exists (select from refresh_tokens s where s.parent_hash = ${refreshTokens.hash} and s.used_at is not null)`,
      })
      .from(refreshTokens)
      .innerJoin(tokenFamilies, eq(tokenFamilies.id, refreshTokens.familyId))
      .where(eq(refreshTokens.hash, hash));
    if (!found?.token.usedAt || found.isOver || found.token.epoch !== owner.epoch) return 'refused';
    const { token, replayable, atOnce, successorUsed } = found;
    if (
      !successorUsed &&
      replayable &&
      token.replaySealed !== null &&
      isSameKey(token.idempotencyHash, idempotencyKey)
    ) {
      return this.#context.vault.openJson<TokenSet>(replayBinding(owner, hash), token.replaySealed);
    }
    const { audit } = this.#context;
    const { userId } = owner;
    if (!successorUsed && atOnce) {
      await audit.record(caller, { event: 'refresh_race', outcome: 'refused', userId }, tx);
      return 'refused';
    }
    await this.#endAfterReuse(tx, owner);
    const meta = { ended: this.#policy.reuseAction };
    await audit.record(caller, { event: 'refresh_reuse', outcome: 'refused', userId, meta }, tx);
    return 'refused';
  }

  /** Revokes the family, or all of the user's. Provider tokens stay, because they never left us. */
  async #endAfterReuse(tx: Database, { userId, familyId }: TokenOwner): Promise<void> {
    if (this.#policy.reuseAction === 'user') {
      await endTokens(tx, userId, 'refresh_reuse');
      return;
    }
    await tx
      .update(tokenFamilies)
      .set({ revokedAt: sql`now()`, revokedReason: 'refresh_reuse' })
      .where(and(eq(tokenFamilies.id, familyId), isNull(tokenFamilies.revokedAt)));
  }
}

/** Returns the owner of a token, with the user's row locked. Another tenant's token counts as unknown. */
async function lockOwner(tx: Database, caller: Caller, hash: Uint8Array): Promise<TokenOwner | undefined> {
  const [owner] = await tx
    .select({ userId: users.id, epoch: users.tokenEpoch, familyId: tokenFamilies.id })
    .from(refreshTokens)
    .innerJoin(tokenFamilies, eq(tokenFamilies.id, refreshTokens.familyId))
    .innerJoin(users, eq(users.id, tokenFamilies.userId))
    .where(and(eq(refreshTokens.hash, hash), eq(tokenFamilies.tenantId, caller.tenantId)))
    .for('no key update', { of: users });
  return owner && { ...owner, tenantId: caller.tenantId, keyId: caller.keyId };
}

/**
 * Returns when a request arrived that has waited this long when its transaction begins. By the database's clock, because the
 * clocks of two processes can differ by more than the time within which two requests are a race.
 */
const arrivalOf = (waitedMs: number): SQL => sql`now() - make_interval(secs => ${waitedMs / 1000})`;

const replayUntil = () => sql`now() + make_interval(secs => ${REPLAY_SEC})`;

const hashOf = (idempotencyKey: string | undefined) =>
  idempotencyKey === undefined ? null : sha256(idempotencyKey);

const isSameKey = (hash: Uint8Array | null, idempotencyKey: string | undefined): boolean =>
  hash !== null && idempotencyKey !== undefined && Buffer.compare(hash, sha256(idempotencyKey)) === 0;

const replayBinding = (owner: TokenOwner, hash: Uint8Array): Binding => ({
  table: 'refresh_tokens',
  tenantId: owner.tenantId,
  userId: owner.userId,
  id: Buffer.from(hash).toString('base64url'),
  purpose: 'replay',
});

const sessionReplay = (session: typeof authSessions.$inferSelect): Binding => ({
  ...sessionBinding(session),
  purpose: 'replay',
});

const invalidGrant = () =>
  new SwitchboardError('invalid_grant', 'The refresh token is invalid, expired or already used.');

const notForTokens = () =>
  new SwitchboardError(
    'invalid_grant',
    'The session connects a server, which gives no identity tokens. Get tokens with a session for an identity provider, or have the operator create a key for the user with switchboard keys create --user USER_ID.',
  );

const invalidSession = () =>
  new SwitchboardError(
    'invalid_grant',
    'The session is unknown, failed or too old, or its tokens were already issued. Create a new session.',
  );

/** The lifetime of an unused refresh token in days. */
const IDLE_DAYS = 30;

export interface TokenSet {
  readonly access_token: string;
  readonly refresh_token: string;
  readonly expires_in: number;
  readonly token_type: 'Bearer';
}

type Sign = Awaited<ReturnType<IdentityTokens['issuer']>>;
/** Issues a new pair; its refresh token follows the one with `parentHash`, or starts a family. */
async function issue(
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

/** Revokes everything that acts for a user, whose row is locked: identity tokens, refresh token families, the user's API keys. */
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
