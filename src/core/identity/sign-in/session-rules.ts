import { and, eq, gt, sql } from 'drizzle-orm';
import { SwitchboardError } from '../../../errors.ts';
import type { Database } from '../../../platform/database/database.ts';
import type { SignInMode } from '../../access/caller.ts';
import { authSessions } from '../schema.ts';
import type { User } from '../../access/users.ts';

const MAX_PER_USER_AND_MINUTE = 10;

export interface SessionRequest {
  readonly userId: string;
  readonly provider: string;
  readonly scopes?: readonly string[];
  /** RFC 8707. */
  readonly resource?: string;
  readonly mode?: SignInMode;
  readonly returnUrl?: string;
  readonly loginHint?: string;
  readonly allowAccountChange?: boolean;
}

/** `direct` can be raised to `page` for one session; never the other way round. */
export function requireMode(asked: SignInMode | undefined, tenantMode: SignInMode): SignInMode {
  if (asked === undefined || asked === tenantMode) return tenantMode;
  if (tenantMode === 'direct') return asked;
  throw new SwitchboardError('invalid_request', `mode: this tenant requires ${JSON.stringify(tenantMode)}`);
}

export function requireReturnUrl(url: string | undefined, registered: readonly string[]): void {
  if (url === undefined || registered.includes(url)) return;
  throw new SwitchboardError(
    'invalid_request',
    'return_url: is not registered for this tenant. The operator registers it with `switchboard tenant set --return-url`.',
  );
}

export async function requireRoom(tx: Database, user: User): Promise<void> {
  const [recent] = await tx
    .select({
      count: sql<number>`count(*)::int`,
      waitSec: sql<number>`ceil(60 - extract(epoch from now() - min(${authSessions.createdAt})))::int`,
    })
    .from(authSessions)
    .where(
      and(
        eq(authSessions.userId, user.id),
        eq(authSessions.justInTime, false),
        gt(authSessions.createdAt, sql`now() - interval '1 minute'`),
      ),
    );
  if (!recent || recent.count < MAX_PER_USER_AND_MINUTE) return;
  const retryAfterSec = Math.max(1, recent.waitSec);
  throw new SwitchboardError(
    'rate_limited',
    `This user has had ${MAX_PER_USER_AND_MINUTE} sessions within a minute. Try again in ${retryAfterSec} s.`,
    { retryAfterSec },
  );
}
