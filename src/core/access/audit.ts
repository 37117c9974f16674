import type { Database } from '../../platform/database/database.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { Metrics } from '../../platform/telemetry/metrics.ts';
import type { Caller } from './caller.ts';
import { auditLog } from './schema.ts';

/** Everything that is recorded. Successful refreshes are not: they are many, and the family's rows tell of them. */
type AuditEvent =
  | 'session_created'
  | 'session_completed'
  | 'session_failed'
  | 'connection_undone'
  | 'connection_needs_reauth'
  | 'connection_replaced'
  | 'connection_revoked'
  | 'tokens_issued'
  | 'refresh_race'
  | 'refresh_reuse'
  | 'user_revoked'
  | 'provider_revocation'
  | 'manage_link_created'
  | 'manage_link_opened'
  | 'key_created'
  | 'key_changed'
  | 'key_rotated'
  | 'key_revoked'
  | 'tenant_changed'
  | 'catalogue_imported'
  | 'catalogue_synced'
  | 'catalogue_probed'
  | 'server_deactivated'
  | 'server_reactivated'
  | 'server_tools_read';

/** Who caused it. The pages of an end user have no API key. */
export interface Actor extends Pick<Caller, 'requestId'> {
  readonly tenantId?: string;
  readonly keyId?: string;
  readonly ip?: string;
}

export interface AuditEntry {
  readonly event: AuditEvent;
  readonly outcome: 'ok' | 'refused' | 'failed';
  readonly tenantId?: string;
  /** `usr_…`; never the caller's own id of the user. */
  readonly userId?: string;
  /** Static words and ids, never a secret. */
  readonly meta?: Readonly<Record<string, string | number | boolean>>;
}

/** The append-only audit log: a row, a log line and a count for each event. */
export class Audit {
  readonly #log: Log;
  readonly #metrics: Metrics | undefined;

  constructor(log: Log, metrics?: Metrics) {
    this.#log = log;
    this.#metrics = metrics;
  }

  /**
   * Within the transaction of what it records, so that neither stands without the other. Line and count come after the row: without
   * one there are none. They stand where the transaction fails later on.
   */
  async record(
    db: Database,
    actor: Partial<Actor>,
    { event, outcome, tenantId, userId, meta }: AuditEntry,
  ): Promise<void> {
    const tenant = tenantId ?? actor.tenantId;
    const { requestId } = actor;
    await db.insert(auditLog).values({
      event,
      outcome,
      tenantId: tenant ?? null,
      keyId: actor.keyId ?? null,
      userId: userId ?? null,
      requestId: requestId ?? null,
      ip: actor.ip ?? null,
      meta: { ...meta },
    });
    const level = outcome === 'ok' ? 'info' : 'warn';
    this.#log[level]({ event, outcome, tenantId: tenant, userId, requestId, ...meta }, 'audit event');
    this.#metrics?.events.audited(event, outcome);
  }
}
