import { and, desc, eq, isNotNull, isNull, like, ne, not } from 'drizzle-orm';
import { createdText, isAfter, type Place } from '../../../platform/database/columns.ts';
import { TENANT_HOLDER } from '../../access/tenants.ts';
import { users } from '../../access/schema.ts';
import type { IdentityContext } from '../context.ts';
import { connections } from '../schema.ts';
import { infoOf, type ConnectionInfo } from './connections.ts';
import { serverTarget } from './holdings.ts';
import type { ConnectionRow } from './stored-tokens.ts';

/** Connections of all tenants and users. An absent field does not matter. */
export interface ConnectionFilter {
  readonly tenant?: string | undefined;
  /** The caller's own id for the user. */
  readonly userId?: string | undefined;
  readonly serverId?: string | undefined;
  readonly provider?: string | undefined;
  readonly kind?: ConnectionInfo['kind'] | undefined;
  readonly status?: ConnectionRow['status'] | undefined;
  /** true: only those that a tenant shares. false: only those of users. */
  readonly isShared?: boolean | undefined;
}

/** A connection for an operator. */
export interface HeldConnectionInfo extends ConnectionInfo {
  readonly tenant: string;
  /** The caller's own id for the user; null for a connection that the tenant shares. */
  readonly user: string | null;
}

/** Returns connections, the newest first, from after a place. `next` is the place of the last one if there are more. */
export async function pageOfConnections(
  { db, providers }: Pick<IdentityContext, 'db' | 'providers'>,
  filter: ConnectionFilter,
  { after, limit }: { readonly after: Place | undefined; readonly limit: number },
): Promise<{ connections: readonly HeldConnectionInfo[]; next: Place | undefined }> {
  const found = await db
    .select({ row: connections, user: users.externalId, createdAt: createdText(connections.createdAt) })
    .from(connections)
    .innerJoin(users, eq(users.id, connections.userId))
    .where(and(...conditionsOf(filter), after && isAfter(connections, after)))
    .orderBy(desc(connections.createdAt), desc(connections.id))
    .limit(limit + 1);
  const page = found.slice(0, limit);
  const last = found.length > limit ? page.at(-1) : undefined;
  return {
    connections: page.map(({ row, user }) =>
      Object.assign(infoOf(row, providers), {
        tenant: row.tenantId,
        user: user === TENANT_HOLDER ? null : user,
      }),
    ),
    next: last && { createdAt: last.createdAt, id: last.row.id },
  };
}

function conditionsOf({ tenant, userId, serverId, provider, kind, status, isShared }: ConnectionFilter) {
  const isShareds = eq(users.externalId, TENANT_HOLDER);
  return [
    tenant === undefined ? undefined : eq(connections.tenantId, tenant),
    userId === undefined ? undefined : eq(users.externalId, userId),
    serverId === undefined ? undefined : eq(connections.provider, serverTarget(serverId)),
    provider === undefined ? undefined : eq(connections.provider, provider),
    kind === undefined ? undefined : KINDS[kind],
    status === undefined ? undefined : eq(connections.status, status),
    isShared === undefined ? undefined : isShared ? isShareds : ne(users.externalId, TENANT_HOLDER),
  ];
}

const isAtServer = like(connections.provider, serverTarget('%'));
const KINDS = {
  credentials: and(isAtServer, isNull(connections.issuer)),
  oauth: and(isAtServer, isNotNull(connections.issuer)),
  provider: not(isAtServer),
};
