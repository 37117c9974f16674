import { and, eq, isNull, sql } from 'drizzle-orm';
import type { Database } from '../../../platform/database/database.ts';
import { newId } from '../../../platform/ids.ts';
import type { Actor } from '../../access/audit.ts';
import { isOperatorId } from '../../access/caller.ts';
import { users } from '../../access/schema.ts';
import { TENANT_HOLDER } from '../../access/tenants.ts';
import { serverIdOf } from '../connections/holdings.ts';
import { kindOf } from '../connections/stored-tokens.ts';
import type { connections } from '../schema.ts';
import { webhookOutbox, webhooks } from './schema.ts';

/** The events of a connection, each with its reasons. */
export const CONNECTION_EVENTS = {
  created: [],
  rejected: [],
  ended: ['revoked_by_app', 'revoked_by_user', 'revoked_by_operator', 'undone', 'replaced'],
  needs_reauth: ['expired', 'invalid_grant', 'other_account', 'issuer_changed', 'vault_reset'],
} as const;

export type EndReason = (typeof CONNECTION_EVENTS)['ended'][number];
export type ReauthReason = (typeof CONNECTION_EVENTS)['needs_reauth'][number];

type ConnectionEvent =
  | { readonly event: 'created' | 'rejected' }
  | { readonly event: 'ended'; readonly reason: EndReason }
  | { readonly event: 'needs_reauth'; readonly reason: ReauthReason };

type Changed = Pick<typeof connections.$inferSelect, 'id' | 'tenantId' | 'userId' | 'provider' | 'issuer'>;

/** Returns who ended a connection. Pages of end users act without a key. */
export const revokedBy = ({ keyId }: Pick<Actor, 'keyId'>): EndReason => {
  if (keyId === undefined) return 'revoked_by_user';
  return isOperatorId(keyId) ? 'revoked_by_operator' : 'revoked_by_app';
};

/** Records events in the outbox of a tenant's webhook, which `Deliveries` sends. */
export class Events {
  /** Sends recorded events in the background. Call it after the commit. */
  readonly kick: () => void;

  constructor(kick: () => void) {
    this.kick = kick;
  }

  /**
   * Records what happened to a connection, in the transaction of that change. Does nothing for a tenant without a webhook. A
   * connection that is deleted is recorded by what it was.
   */
  async connection(
    tx: Database,
    { id, tenantId, userId, provider, issuer }: Changed,
    { event, ...why }: ConnectionEvent,
  ): Promise<void> {
    const [found] = await tx
      .select({ user: users.externalId, at: AT })
      .from(webhooks)
      .innerJoin(users, and(eq(users.tenantId, webhooks.tenantId), eq(users.id, userId)))
      .where(and(eq(webhooks.tenantId, tenantId), isNull(webhooks.disabledAt)))
      // Without the lock, a webhook that is removed now would make the change fail.
      .for('key share', { of: webhooks });
    if (!found) return;
    const serverId = serverIdOf(provider);
    const type = `connection.${event}`;
    const data = {
      connection_id: id,
      user_id: found.user === TENANT_HOLDER ? null : found.user,
      kind: kindOf({ provider, issuer }),
      provider: serverId === undefined ? provider : null,
      server_id: serverId ?? null,
      ...why,
    };
    const body = JSON.stringify({ type, timestamp: found.at, data });
    await tx.insert(webhookOutbox).values({ id: newId('evt'), tenantId, type, body });
  }
}

/** The database's clock: transactions on one user follow each other, so that the timestamps tell their order. */
const AT = sql<string>`to_char(clock_timestamp() at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;
