import { and, asc, desc, eq, gt, gte, lt, lte, or, sql } from 'drizzle-orm';
import type { Database } from '../../platform/database/database.ts';
import { apiKeys, keyUse } from './schema.ts';

export interface UseFilter {
  readonly keyId?: string | undefined;
  readonly tenant?: string | undefined;
  /** Dates, `2026-11-21` (UTC), both included. */
  readonly from?: string | undefined;
  readonly to?: string | undefined;
  /** Only what comes after it in the list. */
  readonly after?: { readonly day: string; readonly keyId: string } | undefined;
  readonly limit: number;
}

/** What a key used on a day. */
export interface UseRecord {
  readonly day: string;
  readonly key_id: string;
  /** Null for a key that is no row of the database: the one of the environment. */
  readonly name: string | null;
  readonly tenant: string | null;
  readonly calls: number;
  readonly searches: number;
}

/** The newest day first, and by key within a day. One more than the limit is read, to know whether there are more. */
export async function listUse(
  db: Database,
  { keyId, tenant, from, to, after, limit }: UseFilter,
): Promise<{ readonly records: readonly UseRecord[]; readonly hasMore: boolean }> {
  // Byte order, whatever the database's collation: the order that `>` compares by.
  const key = sql`${keyUse.keyId} collate "C"`;
  const found = await db
    .select({
      day: keyUse.day,
      key_id: keyUse.keyId,
      name: apiKeys.name,
      tenant: apiKeys.tenantId,
      calls: keyUse.calls,
      searches: keyUse.searches,
    })
    .from(keyUse)
    .leftJoin(apiKeys, eq(apiKeys.id, keyUse.keyId))
    .where(
      and(
        keyId === undefined ? undefined : eq(keyUse.keyId, keyId),
        tenant === undefined ? undefined : eq(apiKeys.tenantId, tenant),
        from === undefined ? undefined : gte(keyUse.day, from),
        to === undefined ? undefined : lte(keyUse.day, to),
        after && or(lt(keyUse.day, after.day), and(eq(keyUse.day, after.day), gt(key, after.keyId))),
      ),
    )
    .orderBy(desc(keyUse.day), asc(key))
    .limit(limit + 1);
  return { records: found.slice(0, limit), hasMore: found.length > limit };
}
