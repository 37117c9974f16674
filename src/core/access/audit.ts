import { and, desc, eq, gt, gte, inArray, lt, or, sql } from 'drizzle-orm';
import type { Database } from '../../platform/database/database.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { Metrics } from '../metrics.ts';
import type { Caller } from './caller.ts';
import { auditLog, TENANT_HOLDER, users } from './schema.ts';

/** All recorded events. Successful refreshes are not recorded: they are frequent, and the family's rows show them. */
type AuditEvent =
  | 'session_created'
  | 'session_completed'
  | 'session_failed'
  | 'connection_undone'
  | 'connection_needs_reauth'
  | 'connection_created'
  | 'connection_rejected'
  | 'connection_replaced'
  | 'connection_revoked'
  | 'tokens_issued'
  | 'refresh_race'
  | 'refresh_reuse'
  | 'user_revoked'
  | 'provider_revocation'
  | 'manage_link_created'
  | 'manage_link_opened'
  | 'manage_signed_in'
  | 'client_signed_in'
  | 'client_token_reused'
  | 'key_created'
  | 'key_changed'
  | 'key_rotated'
  | 'key_revoked'
  | 'tenant_changed'
  | 'console_link_created'
  | 'console_signed_in'
  | 'console_signed_out'
  | 'request_refused'
  | 'oauth_client_entered'
  | 'oauth_client_removed'
  | 'webhook_changed'
  | 'webhook_rotated'
  | 'webhook_removed'
  | 'webhook_disabled'
  | 'webhook_dropped'
  | 'catalogue_imported'
  | 'catalogue_synced'
  | 'catalogue_reindexed'
  | 'catalogue_probed'
  | 'server_added'
  | 'server_changed'
  | 'server_deactivated'
  | 'server_reactivated'
  | 'server_tools_read';

/** The actor of an event. The pages of an end user have no API key. */
export interface Actor extends Pick<Caller, 'requestId'> {
  readonly tenantId?: string;
  readonly keyId?: string;
  readonly ip?: string | undefined;
}

export interface AuditEntry {
  readonly event: AuditEvent;
  readonly outcome: 'ok' | 'refused' | 'failed';
  readonly tenantId?: string;
  /** `usr_…`, never the caller's own id for the user. */
  readonly userId?: string;
  /** Static words and ids, never a secret. */
  readonly meta?: Readonly<Record<string, string | number | boolean>>;
}

export interface AuditFilter {
  readonly tenant?: string | undefined;
  /**
   * The id of the acting key, `operator` for the command line, `console` for the console opened by its link, or `page` for a user
   * on the page of connections.
   */
  readonly keyId?: string | undefined;
  /** The id of a key that acted or that was acted on. */
  readonly key?: string | undefined;
  readonly event?: string | undefined;
  readonly outcome?: AuditEntry['outcome'] | undefined;
  /** `usr_…`. */
  readonly userId?: string | undefined;
  /** The caller's own id for the user. */
  readonly externalId?: string | undefined;
  /** Only entries newer than the one with this id. */
  readonly after?: number | undefined;
  /** Inclusive. */
  readonly from?: Date | undefined;
  /** Exclusive. */
  readonly to?: Date | undefined;
  /** Only entries older than the one with this id. */
  readonly before?: number | undefined;
  readonly limit: number;
}

/** A record for an operator. */
export interface AuditRecord {
  readonly id: number;
  readonly at: string;
  readonly event: string;
  readonly outcome: string;
  readonly tenant: string | null;
  readonly key_id: string | null;
  /** `usr_…`, never the caller's own id for the user. */
  readonly user: string | null;
  /** The caller's own id for the user, which is not in the log itself. */
  readonly user_id: string | null;
  readonly request_id: string | null;
  readonly ip: string | null;
  readonly details: Readonly<Record<string, unknown>>;
}

/** The append-only audit log: each event is stored as a row, logged and counted. */
export class Audit {
  readonly #db: Database;
  readonly #log: Log;
  readonly #metrics: Metrics | undefined;

  constructor(db: Database, log: Log, metrics?: Metrics) {
    this.#db = db;
    this.#log = log;
    this.#metrics = metrics;
  }

  /**
   * Records an event. The log line and the count remain even if the transaction fails later.
   * @param tx the transaction of the recorded change, so that both succeed or fail together; omit it if
   * nothing changed in the database
   */
  async record(
    actor: Partial<Actor>,
    { event, outcome, tenantId = actor.tenantId, userId, meta }: AuditEntry,
    tx: Database = this.#db,
  ): Promise<void> {
    const { requestId } = actor;
    await tx.insert(auditLog).values({
      event,
      outcome,
      tenantId: tenantId ?? null,
      keyId: actor.keyId ?? null,
      userId: userId ?? null,
      requestId: requestId ?? null,
      ip: actor.ip ?? null,
      meta: { ...meta },
    });
    const level = outcome === 'ok' ? 'info' : 'warn';
    this.#log[level]({ event, outcome, tenantId, userId, requestId, ...meta }, 'audit event');
    this.#metrics?.events.audited(event, outcome);
  }

  /** Lists records, newest first. */
  async list({ from, to, before, after, limit, ...filter }: AuditFilter): Promise<{
    readonly records: readonly AuditRecord[];
    readonly hasMore: boolean;
  }> {
    const found = await this.#db
      .select({ row: auditLog, externalId: users.externalId })
      .from(auditLog)
      .leftJoin(users, eq(users.id, auditLog.userId))
      .where(
        and(
          ...conditionsOf(this.#db, filter),
          from && gte(auditLog.at, from),
          to && lt(auditLog.at, to),
          before === undefined ? undefined : lt(auditLog.id, before),
          after === undefined ? undefined : gt(auditLog.id, after),
        ),
      )
      .orderBy(desc(auditLog.id))
      // One extra row shows whether there are more.
      .limit(limit + 1);
    return { records: found.slice(0, limit).map(recordOf), hasMore: found.length > limit };
  }
}

function conditionsOf(
  db: Database,
  {
    tenant,
    keyId,
    key,
    event,
    outcome,
    userId,
    externalId,
  }: Omit<AuditFilter, 'from' | 'to' | 'before' | 'after' | 'limit'>,
) {
  const { meta } = auditLog;
  return [
    tenant === undefined ? undefined : eq(auditLog.tenantId, tenant),
    keyId === undefined ? undefined : eq(auditLog.keyId, keyId),
    key === undefined
      ? undefined
      : // A rotation names the new key as `by`.
        or(eq(auditLog.keyId, key), eq(sql`${meta}->>'key'`, key), eq(sql`${meta}->>'by'`, key)),
    event === undefined ? undefined : eq(auditLog.event, event),
    outcome === undefined ? undefined : eq(auditLog.outcome, outcome),
    userId === undefined ? undefined : eq(auditLog.userId, userId),
    externalId === undefined
      ? undefined
      : inArray(
          auditLog.userId,
          db.select({ id: users.id }).from(users).where(eq(users.externalId, externalId)),
        ),
  ];
}

const recordOf = ({
  row,
  externalId,
}: {
  row: typeof auditLog.$inferSelect;
  externalId: string | null;
}): AuditRecord => ({
  id: row.id,
  at: row.at.toISOString(),
  event: row.event,
  outcome: row.outcome,
  tenant: row.tenantId,
  key_id: row.keyId,
  user: row.userId,
  user_id: externalId === TENANT_HOLDER ? null : externalId,
  request_id: row.requestId,
  ip: row.ip,
  details: row.meta,
});
