import { and, desc, eq, gte, lt, type SQL } from 'drizzle-orm';
import type { Database } from '../../platform/database/database.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { Metrics } from '../../platform/telemetry/metrics.ts';
import { Audit, type Actor, type AuditEntry } from './audit.ts';
import { auditLog } from './schema.ts';

export interface AuditFilter {
  readonly tenant?: string | undefined;
  /** Who did it: a key's id, or `operator` for the command line. */
  readonly keyId?: string | undefined;
  readonly event?: string | undefined;
  readonly from?: Date | undefined;
  /** Not itself included. */
  readonly to?: Date | undefined;
  /** Only entries older than the one of this id. */
  readonly before?: number | undefined;
  readonly limit: number;
}

/** An entry as an operator sees it. */
export interface AuditRecord {
  readonly id: number;
  readonly at: string;
  readonly event: string;
  readonly outcome: string;
  readonly tenant: string | null;
  readonly key_id: string | null;
  /** `usr_…`; never the caller's own id of the user. */
  readonly user: string | null;
  readonly request_id: string | null;
  readonly ip: string | null;
  readonly details: Readonly<Record<string, unknown>>;
}

/** The audit log as operators read it, and as what is not itself in the database writes to it. */
export class AuditTrail {
  readonly #db: Database;
  readonly #audit: Audit;

  constructor(db: Database, log: Log, metrics?: Metrics) {
    this.#db = db;
    this.#audit = new Audit(log, metrics);
  }

  /** @param tx that of what it records, so that neither stands without the other; of what changed nothing there is none */
  record(actor: Partial<Actor>, entry: AuditEntry, tx = this.#db): Promise<void> {
    return this.#audit.record(tx, actor, entry);
  }

  /** The newest first. One more than the limit is read, to know whether there are more. */
  async list({ tenant, keyId, event, from, to, before, limit }: AuditFilter): Promise<{
    readonly records: readonly AuditRecord[];
    readonly hasMore: boolean;
  }> {
    const conditions: (SQL | undefined)[] = [
      tenant === undefined ? undefined : eq(auditLog.tenantId, tenant),
      keyId === undefined ? undefined : eq(auditLog.keyId, keyId),
      event === undefined ? undefined : eq(auditLog.event, event),
      from && gte(auditLog.at, from),
      to && lt(auditLog.at, to),
      before === undefined ? undefined : lt(auditLog.id, before),
    ];
    const found = await this.#db
      .select()
      .from(auditLog)
      .where(and(...conditions))
      .orderBy(desc(auditLog.id))
      .limit(limit + 1);
    return { records: found.slice(0, limit).map(record), hasMore: found.length > limit };
  }
}

const record = (row: typeof auditLog.$inferSelect): AuditRecord => ({
  id: row.id,
  at: row.at.toISOString(),
  event: row.event,
  outcome: row.outcome,
  tenant: row.tenantId,
  key_id: row.keyId,
  user: row.userId,
  request_id: row.requestId,
  ip: row.ip,
  details: row.meta,
});
