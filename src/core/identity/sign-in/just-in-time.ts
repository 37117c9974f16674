import { isDeepStrictEqual } from 'node:util';
import { and, eq, gt, inArray, isNull, sql } from 'drizzle-orm';
import { SwitchboardError } from '../../../errors.ts';
import type { Database } from '../../../platform/database/database.ts';
import type { SignInMode } from '../../access/caller.ts';
import { serverIdOf } from '../connections/holdings.ts';
import type { IdentityContext } from '../context.ts';
import type { IssuedTo } from '../oauth/client.ts';
import { authSessions } from '../schema.ts';
import type { Goal } from './goals.ts';
import { failed, pendingSecrets, type SessionRow } from './session-store.ts';

/** A session is reused while it has at least this long left. */
const REUSE_LEFT_SEC = 60;
/** A link is replaced at most this often in a minute. */
const MAX_REPLACED = 2;

/** The session that a call needs. */
export interface NeededSession {
  readonly tenantId: string;
  readonly userId: string;
  readonly mode: SignInMode;
  readonly goal: Goal;
}

export interface AuthSession {
  readonly session_id: string;
  readonly auth_url: string;
  readonly expires_at: string;
}

interface Open {
  readonly row: SessionRow;
  readonly session: AuthSession;
  /** Its sign-in goes to the same client of the same authorization server, in the same mode. */
  readonly isAlike: boolean;
}

/** Returns the open session that an earlier call with the same need created. */
export async function reusable(
  context: IdentityContext,
  db: Database,
  needed: NeededSession,
): Promise<AuthSession | undefined> {
  const open = await readOpen(context, db, needed);
  return open.find(({ row, isAlike }) => isAlike && sameSet(row.scopes, needed.goal.scopes))?.session;
}

/**
 * Ends the open sessions of earlier calls to the same server that needed something else, so that there is one at a time.
 * The user must be locked.
 * @returns an open session that stays: its user has begun, or a server that demands other scopes with every call has had it
 * replaced often enough. The scopes that it lacks are asked for after it
 * @throws SwitchboardError `rate_limited` if the server names another authorization server with every call
 */
export async function replaceOpen(
  context: IdentityContext,
  tx: Database,
  needed: NeededSession,
): Promise<AuthSession | undefined> {
  // The calls to several servers may need several sign-ins with one provider.
  if (serverIdOf(needed.goal.name) === undefined) return undefined;
  const open = await readOpen(context, tx, needed);
  if (open.length === 0) return undefined;
  const isTooMany = (await countReplaced(tx, needed)) >= MAX_REPLACED;
  const kept = open.find(({ row, isAlike }) => isAlike && (isTooMany || row.browserHash !== null));
  if (kept) return kept.session;
  if (isTooMany) throw changesTooOften();
  const ids = open.map(({ row }) => row.idHash);
  await tx
    .update(authSessions)
    .set(failed('replaced'))
    .where(and(inArray(authSessions.idHash, ids), eq(authSessions.status, 'pending')));
  return undefined;
}

async function readOpen(context: IdentityContext, db: Database, needed: NeededSession): Promise<Open[]> {
  const rows = await db
    .select()
    .from(authSessions)
    .where(
      and(
        isOf(needed),
        eq(authSessions.status, 'pending'),
        // Matches the condition of the index of open sessions.
        isNull(authSessions.finishedAt),
        gt(authSessions.expiresAt, sql`now() + make_interval(secs => ${REUSE_LEFT_SEC})`),
      ),
    );
  return Promise.all(
    rows.map(async row => {
      const { sessionId, authUrl, atServer } = await pendingSecrets(context, row);
      const isAlike =
        row.mode === needed.mode && isSameClient(atServer?.issuedTo, needed.goal.signIn?.issuedTo);
      const session = { session_id: sessionId, auth_url: authUrl, expires_at: row.expiresAt.toISOString() };
      return { row, session, isAlike };
    }),
  );
}

async function countReplaced(tx: Database, needed: NeededSession): Promise<number> {
  const [found] = await tx
    .select({ count: sql<number>`count(*)::int` })
    .from(authSessions)
    .where(
      and(
        isOf(needed),
        eq(authSessions.errorCode, 'replaced'),
        gt(authSessions.finishedAt, sql`now() - interval '1 minute'`),
      ),
    );
  return found?.count ?? 0;
}

const isOf = ({ tenantId, userId, goal }: NeededSession) =>
  and(
    eq(authSessions.tenantId, tenantId),
    eq(authSessions.userId, userId),
    eq(authSessions.provider, goal.name),
    eq(authSessions.resource, goal.resource),
    eq(authSessions.justInTime, true),
  );

/** Compares two clients as they are stored, without undefined members. */
const isSameClient = (one: IssuedTo | undefined, other: IssuedTo | undefined): boolean =>
  isDeepStrictEqual(plain(one), plain(other));

const plain = (issuedTo: IssuedTo | undefined): unknown => JSON.parse(JSON.stringify(issuedTo ?? null));

const sameSet = (a: readonly string[], b: readonly string[]) =>
  a.length === b.length && a.every(name => b.includes(name));

const changesTooOften = () =>
  new SwitchboardError(
    'rate_limited',
    'The server names another authorization server with every call. Try again in 60 s.',
    { retryAfterSec: 60 },
  );
