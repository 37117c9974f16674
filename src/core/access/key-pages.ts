import { and, desc, eq, ilike, not, or, sql } from 'drizzle-orm';
import { containing, createdText, isAfter, type Place } from '../../platform/database/columns.ts';
import type { Database } from '../../platform/database/database.ts';
import { isLiveKey } from './api-key.ts';
import { apiKeys, users } from './schema.ts';

/** Limits which keys are listed. An absent field does not matter. */
export interface KeyFilter {
  readonly tenant?: string | undefined;
  /** Text in the name, the id or the caller's own id for the user, in any case. */
  readonly text?: string | undefined;
  /** false: only revoked and expired ones. */
  readonly isActive?: boolean | undefined;
  /** Only those after this one. */
  readonly after?: Place | undefined;
  readonly limit?: number | undefined;
}

/** Returns the rows of keys, the newest first, and one more than the limit if there are more. */
export function pageOfKeys(db: Database, { tenant, text, isActive, after, limit }: KeyFilter) {
  const contains = text === undefined ? undefined : containing(text);
  const rows = db
    .select({ row: apiKeys, user: users.externalId, createdAt: createdText(apiKeys.createdAt) })
    .from(apiKeys)
    .leftJoin(users, eq(users.id, apiKeys.userId))
    .where(
      and(
        tenant === undefined ? undefined : eq(apiKeys.tenantId, tenant),
        contains === undefined
          ? undefined
          : or(...[apiKeys.name, apiKeys.id, users.externalId].map(column => ilike(column, contains))),
        isActive === undefined ? undefined : isActive ? isLiveKey : not(sql`(${isLiveKey})`),
        after && isAfter(apiKeys, after),
      ),
    )
    .orderBy(desc(apiKeys.createdAt), desc(apiKeys.id))
    .$dynamic();
  return limit === undefined ? rows : rows.limit(limit + 1);
}
