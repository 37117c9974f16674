import { and, eq, gt, inArray, isNull, sql } from 'drizzle-orm';
import type { Database } from '../../../platform/database/database.ts';
import type { ApiKeys } from '../../access/api-keys.ts';
import type { Actor } from '../../access/audit.ts';
import type { Connections } from './connections.ts';
import { serverTarget, type Holdings } from './holdings.ts';
import type { ConnectionRow } from './stored-tokens.ts';
import { revokedBy } from '../webhooks/events.ts';
import type { IdentityContext } from '../context.ts';
import { authSessions, connections, manageLinks, tokenFamilies, userCalls } from '../schema.ts';
import { isLiveKey } from '../../access/api-key.ts';
import { apiKeys } from '../../access/schema.ts';
import { failed, giveBackWaiting } from '../sign-in/session-store.ts';
import { findUser, lockUser, requireUserId } from '../../access/tenants.ts';
import { endTokens } from '../tokens/refresh-tokens.ts';

/** The connections to end; all that the user has if none is named. */
interface Which {
  readonly provider?: string | undefined;
  readonly serverId?: string | undefined;
  readonly connectionId?: string | undefined;
}

/** The numbers of things of a user that a revocation ends. */
interface Held {
  readonly connections: number;
  /** Families of refresh tokens: one for each sign-in at an app that still lasts. */
  readonly identity_sessions: number;
  /** Sign-ins at providers and servers that have begun. */
  readonly pending_sign_ins: number;
  /** Keys that act for the user. */
  readonly keys: number;
}

const NOTHING: Held = { connections: 0, identity_sessions: 0, pending_sign_ins: 0, keys: 0 };

/** Revokes everything a user has, or one connection. */
export class Revocations {
  readonly #context: IdentityContext;
  readonly #connections: Connections;
  readonly #holdings: Holdings;
  readonly #apiKeys: Pick<ApiKeys, 'forget'>;

  constructor(
    context: IdentityContext,
    all: Connections,
    { holdings, keys }: { holdings: Holdings; keys: Pick<ApiKeys, 'forget'> },
  ) {
    this.#context = context;
    this.#connections = all;
    this.#holdings = holdings;
    this.#apiKeys = keys;
  }

  /**
   * Revokes everything of a user, immediately and on every replica: identity tokens, refresh tokens, the user's keys, pending
   * sign-ins, stored provider tokens; the provider is notified in the background. With `provider`,
   * `serverId` or `connectionId`, ends only the connections with that provider or server, or that connection. An unknown user is a success, so that the existence of users is not revealed (in the spirit of RFC 7009 §2.2).
   * @returns whether there was anything to end, as far as that is known
   * @throws SwitchboardError `invalid_request`
   */
  async revoke(
    actor: Actor & { tenantId: string },
    externalId: string,
    { provider, serverId, connectionId }: Which = {},
  ): Promise<boolean> {
    const user = await findUser(this.#context.db, actor.tenantId, requireUserId(externalId));
    if (!user) return false;
    if (connectionId !== undefined) return this.disconnect(actor, user.id, connectionId);
    if (serverId !== undefined) return this.disconnectServer(actor, user.id, serverId);
    if (provider !== undefined) {
      const sessions = eq(authSessions.provider, provider);
      const which = eq(connections.provider, provider);
      return (await this.#revokeConnections(actor, user.id, which, sessions)) > 0;
    }
    await this.revokeUser(actor, user.id);
    return true;
  }

  /** Counts what `revoke` would end of a user. An unknown user has nothing. @throws SwitchboardError `invalid_request` */
  async held(tenantId: string, externalId: string): Promise<Held> {
    const { db } = this.#context;
    const user = await findUser(db, tenantId, requireUserId(externalId));
    return user ? countHeld(db, user.id) : NOTHING;
  }

  /** Revokes everything of a user, and counts it. An unknown user had nothing. @throws SwitchboardError `invalid_request` */
  async revokeAll(actor: Actor & { tenantId: string }, externalId: string): Promise<Held> {
    const user = await findUser(this.#context.db, actor.tenantId, requireUserId(externalId));
    return user ? this.revokeUser(actor, user.id) : NOTHING;
  }

  /** Revokes everything of a user, and counts it. */
  async revokeUser(actor: Actor & { tenantId: string }, userId: string): Promise<Held> {
    const { db, audit, outbox, events } = this.#context;
    const { tenantId } = actor;
    const keys: string[] = [];
    const ended = await db.transaction(async tx => {
      if (!(await lockUser(tx, tenantId, userId))) return NOTHING;
      const held = await countHeld(tx, userId);
      for (const { id: key } of await liveKeys(tx, userId)) {
        keys.push(key);
        const meta = { key, with_user: true };
        await audit.record(actor, { event: 'key_revoked', outcome: 'ok', userId, meta }, tx);
      }
      await endTokens(tx, userId, 'revoked');
      await tx.delete(manageLinks).where(eq(manageLinks.userId, userId));
      await tx.delete(userCalls).where(eq(userCalls.userId, userId));
      await this.#endSessions(tx, userId);
      for (const row of await this.#lockConnections(tx, userId))
        await this.#connections.remove(tx, row, revokedBy(actor));
      await audit.record(actor, { event: 'user_revoked', outcome: 'ok', userId, meta: { ...held } }, tx);
      return held;
    });
    for (const key of keys) this.#apiKeys.forget(key);
    this.#holdings.forget(tenantId, userId);
    outbox.kick();
    events.kick();
    return ended;
  }

  /** Ends one connection, from the user's own page. Resolves to false if it no longer exists or belongs to another user. */
  async disconnect(
    actor: Actor & { tenantId: string },
    userId: string,
    connectionId: string,
  ): Promise<boolean> {
    return (await this.#revokeConnections(actor, userId, eq(connections.id, connectionId))) > 0;
  }

  /** Ends the connections with one server, at whatever address it had. Resolves to false where there is none. */
  async disconnectServer(
    actor: Actor & { tenantId: string },
    userId: string,
    serverId: string,
  ): Promise<boolean> {
    const provider = serverTarget(serverId);
    const sessions = eq(authSessions.provider, provider);
    return (await this.#revokeConnections(actor, userId, eq(connections.provider, provider), sessions)) > 0;
  }

  async #revokeConnections(
    actor: Actor & { tenantId: string },
    userId: string,
    which: ReturnType<typeof eq>,
    sessions?: ReturnType<typeof eq>,
  ): Promise<number> {
    const { db, audit, outbox, events } = this.#context;
    const { tenantId } = actor;
    const count = await db.transaction(async tx => {
      if (!(await lockUser(tx, tenantId, userId))) return 0;
      // A pending sign-in would reconnect, even if nothing is connected yet. Sessions are locked before connections.
      const ending = tx
        .select({ provider: connections.provider })
        .from(connections)
        .where(and(eq(connections.userId, userId), which));
      await this.#endSessions(tx, userId, sessions ?? inArray(authSessions.provider, ending));
      const rows = await this.#lockConnections(tx, userId, which);
      for (const row of rows) {
        await this.#connections.remove(tx, row, revokedBy(actor));
        const meta = { provider: row.provider };
        await audit.record(actor, { event: 'connection_revoked', outcome: 'ok', userId, meta }, tx);
      }
      return rows.length;
    });
    this.#holdings.forget(tenantId, userId);
    outbox.kick();
    events.kick();
    return count;
  }

  #lockConnections(tx: Database, userId: string, which?: ReturnType<typeof eq>): Promise<ConnectionRow[]> {
    return tx
      .select()
      .from(connections)
      .where(and(eq(connections.userId, userId), which))
      .for('update');
  }

  async #endSessions(tx: Database, userId: string, which?: ReturnType<typeof eq>): Promise<void> {
    const open = await tx
      .select()
      .from(authSessions)
      .where(and(eq(authSessions.userId, userId), isNull(authSessions.finishedAt), which))
      .for('update');
    for (const row of open) await giveBackWaiting(this.#context, tx, row);
    const ids = open.map(({ idHash }) => idHash);
    if (ids.length === 0) return;
    await tx.update(authSessions).set(failed('revoked')).where(inArray(authSessions.idHash, ids));
  }
}

const liveKeys = (db: Database, userId: string) =>
  db
    .select({ id: apiKeys.id })
    .from(apiKeys)
    .where(and(eq(apiKeys.userId, userId), isLiveKey));

async function countHeld(db: Database, userId: string): Promise<Held> {
  const isLiveFamily = and(isNull(tokenFamilies.revokedAt), gt(tokenFamilies.expiresAt, sql`now()`));
  const isOpen = and(isNull(authSessions.finishedAt), gt(authSessions.expiresAt, sql`now()`));
  return {
    connections: await db.$count(connections, eq(connections.userId, userId)),
    identity_sessions: await db.$count(tokenFamilies, and(eq(tokenFamilies.userId, userId), isLiveFamily)),
    pending_sign_ins: await db.$count(authSessions, and(eq(authSessions.userId, userId), isOpen)),
    keys: (await liveKeys(db, userId)).length,
  };
}
