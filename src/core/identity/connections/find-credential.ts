import { and, eq, gt, isNull, sql } from 'drizzle-orm';
import type { Database } from '../../../platform/database/database.ts';
import type { Subject } from '../../access/caller.ts';
import { users } from '../../access/schema.ts';
import type { ConnectionRow } from './connection-record.ts';
import { connections, tokenFamilies } from '../schema.ts';

/** A token with less than this left is refreshed before it is used. */
const FRESH_SEC = 60;

/** A connection as a call needs it. */
export type Found = Pick<
  ConnectionRow,
  | 'id'
  | 'tenantId'
  | 'userId'
  | 'provider'
  | 'resource'
  | 'status'
  | 'scopes'
  | 'sealed'
  | 'version'
  | 'hasRefreshToken'
> & { readonly fresh: boolean };

/** The one query of a call: whether user and family still hold, and the connection. Built once: it runs on every call. */
export function prepareFind(db: Database) {
  return db
    .select({
      epoch: users.tokenEpoch,
      familyId: tokenFamilies.id,
      connection: {
        id: connections.id,
        tenantId: connections.tenantId,
        userId: connections.userId,
        provider: connections.provider,
        resource: connections.resource,
        status: connections.status,
        scopes: connections.scopes,
        sealed: connections.sealed,
        version: connections.version,
        hasRefreshToken: connections.hasRefreshToken,
      },
      fresh: sql<boolean>`coalesce(${connections.accessExpiresAt} > now() + make_interval(secs => ${FRESH_SEC}), true)`,
    })
    .from(users)
    .leftJoin(
      tokenFamilies,
      and(
        eq(tokenFamilies.id, sql.placeholder('familyId')),
        eq(tokenFamilies.userId, users.id),
        isNull(tokenFamilies.revokedAt),
        gt(tokenFamilies.expiresAt, sql`now()`),
      ),
    )
    .leftJoin(
      connections,
      and(
        eq(connections.userId, users.id),
        eq(connections.provider, sql.placeholder('provider')),
        eq(connections.resource, sql.placeholder('resource')),
      ),
    )
    .where(and(eq(users.id, sql.placeholder('userId')), eq(users.tenantId, sql.placeholder('tenantId'))))
    .prepare('find_credential');
}

/** Whether what the identity token or the key says still holds. */
export const isLive = (subject: Subject, row: { epoch: number; familyId: string | null }): boolean =>
  row.epoch === subject.epoch && (subject.familyId === undefined || row.familyId === subject.familyId);
