import { and, eq, sql } from 'drizzle-orm';
import { SwitchboardError } from '../../errors.ts';
import type { Database } from '../../platform/database/database.ts';
import { randomBase62 } from '../../platform/ids.ts';
import { users } from './schema.ts';

const MAX_BYTES = 1024;

export interface User {
  readonly id: string;
  readonly tokenEpoch: number;
}

/**
 * Checks the caller's own id of an end user. It stays byte-exact: no normalisation, no case folding.
 * @throws SwitchboardError `invalid_request`.
 */
export function requireUserId(externalId: string): string {
  const bytes = Buffer.byteLength(externalId);
  if (bytes < 1 || bytes > MAX_BYTES) throw refuse(`must have 1 to ${MAX_BYTES} bytes, not ${bytes}`);
  // A lone surrogate would be stored as U+FFFD, and two users would become one.
  if (!externalId.isWellFormed()) throw refuse('must be well-formed Unicode');
  if (/\p{Cc}/u.test(externalId)) throw refuse('must not contain control characters');
  return externalId;
}

const refuse = (why: string) => new SwitchboardError('invalid_request', `user_id: ${why}`);

/** Returns the user's row, made at the first time; it is locked until the transaction ends. */
export async function ensureUser(tx: Database, tenantId: string, externalId: string): Promise<User> {
  const [user] = await tx
    .insert(users)
    .values({ id: `usr_${randomBase62(22)}`, tenantId, externalId })
    .onConflictDoUpdate({ target: [users.tenantId, users.externalId], set: { lastSeenAt: sql`now()` } })
    .returning({ id: users.id, tokenEpoch: users.tokenEpoch });
  if (!user) throw new Error('INSERT … RETURNING gave no row');
  return user;
}

/** Returns undefined for a user never seen. */
export async function findUser(
  db: Database,
  tenantId: string,
  externalId: string,
): Promise<User | undefined> {
  const [user] = await db
    .select({ id: users.id, tokenEpoch: users.tokenEpoch })
    .from(users)
    .where(and(eq(users.tenantId, tenantId), eq(users.externalId, externalId)));
  return user;
}

/**
 * Locks the user's row. Every transaction on a user's tokens does this first, so that a revocation and a refresh never cross.
 * Returns undefined when the user is gone.
 */
export async function lockUser(tx: Database, tenantId: string, userId: string): Promise<User | undefined> {
  const [user] = await tx
    .select({ id: users.id, tokenEpoch: users.tokenEpoch })
    .from(users)
    .where(and(eq(users.id, userId), eq(users.tenantId, tenantId)))
    .for('no key update');
  return user;
}
