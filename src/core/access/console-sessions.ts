import { timingSafeEqual } from 'node:crypto';
import { and, desc, eq, gt, inArray, lt, sql } from 'drizzle-orm';
import { LRUCache } from 'lru-cache';
import { SwitchboardError } from '../../errors.ts';
import type { Database } from '../../platform/database/database.ts';
import { isSecret, newSecret, sha256 } from '../../platform/ids.ts';
import { isLiveKey, lackingScope } from './api-key.ts';
import type { Actor, Audit } from './audit.ts';
import {
  CONSOLE_KEY_ID,
  ENVIRONMENT_KEY_ID,
  OPERATOR_KEY_ID,
  type ConsoleRole,
  type Principal,
} from './caller.ts';
import { apiKeys, consoleSessions as table } from './schema.ts';
import { LOCAL_TENANT } from './tenants.ts';

const LINK_MINUTES = 5;
const IDLE_MINUTES = 30;
const MAX_HOURS = 12;
/** The sessions that one key may have at the same time; a further one ends the oldest. */
const MAX_SESSIONS = 100;
const MAX_KNOWN = 1_000;
/** Use is written down at most this often. */
const TOUCH_SEC = 60;

/** A session for the browser that it belongs to. */
export interface ConsoleSession {
  readonly role: ConsoleRole;
  /** The id of the key that signed in; `environment`: the key of the settings; `operator`: a link of the command line. */
  readonly key_id: string;
  readonly key_name: string | null;
  /** When the session ends unless it is used. */
  readonly idle_until: string;
  /** When it ends in any case. */
  readonly ends_at: string;
}

interface SessionsOptions {
  readonly db: Database;
  readonly audit: Audit;
  /** The key of the settings. */
  readonly environmentKey: string | undefined;
  readonly publicUrl: () => string;
}

/**
 * Browsers in which operators are signed in to the console, by a key or by a link of the command line. A session ends after half an
 * hour without use and after twelve hours, and at once with its key. All processes of a database know it.
 */
export class ConsoleSessions {
  readonly #parts: SessionsOptions;
  /** Digests of cookies that this process has found good. */
  readonly #known = new LRUCache<string, true>({ max: MAX_KNOWN });

  constructor(parts: SessionsOptions) {
    this.#parts = parts;
  }

  /** Creates a link that signs one browser in, once, within five minutes. */
  async createLink(role: ConsoleRole, actor: Partial<Actor>): Promise<{ url: string; expires_at: string }> {
    const { db, audit, publicUrl } = this.#parts;
    const link = newSecret('page');
    const expiresAt = await db.transaction(async tx => {
      const [row] = await tx
        .insert(table)
        .values({
          hash: sha256(link),
          isLink: true,
          keyId: OPERATOR_KEY_ID,
          role,
          expiresAt: minutesFromNow(LINK_MINUTES),
          idleUntil: minutesFromNow(LINK_MINUTES),
        })
        .returning({ expiresAt: table.expiresAt });
      if (!row) throw new Error('INSERT … RETURNING gave no row');
      await audit.record(actor, { event: 'console_link_created', outcome: 'ok', meta: { role } }, tx);
      return row.expiresAt;
    });
    // A fragment reaches neither servers nor their logs.
    return { url: `${publicUrl()}/console/#link=${link}`, expires_at: expiresAt.toISOString() };
  }

  /** Uses a link, and returns the cookie of the new session; undefined if it was used or has expired. */
  async open(link: string, actor: Actor): Promise<string | undefined> {
    if (!isSecret(link, 'page')) return undefined;
    const cookie = newSecret('web');
    const { db, audit } = this.#parts;
    return db.transaction(async tx => {
      const [row] = await tx
        .update(table)
        .set({ hash: sha256(cookie), isLink: false, ...LIFE })
        .where(and(eq(table.hash, sha256(link)), eq(table.isLink, true), gt(table.expiresAt, sql`now()`)))
        .returning({ role: table.role });
      if (!row) return undefined;
      const meta = { role: row.role, by: 'link' };
      const who = { ...actor, tenantId: LOCAL_TENANT, keyId: CONSOLE_KEY_ID };
      await audit.record(who, { event: 'console_signed_in', outcome: 'ok', meta }, tx);
      this.#known.set(digestOf(cookie), true);
      return cookie;
    });
  }

  /**
   * Starts a session for the holder of a key, and returns its cookie.
   * @throws SwitchboardError `insufficient_scope`
   */
  async start(principal: Principal, actor: Actor): Promise<string> {
    const { db, audit, environmentKey } = this.#parts;
    const { keyId } = principal;
    const who = { ...actor, tenantId: principal.tenantId, keyId };
    const lacking = lackingScope(principal, 'admin_read');
    if (lacking) {
      await audit.record(who, { event: 'console_signed_in', outcome: 'refused', meta: { by: 'key' } });
      throw lacking;
    }
    const role: ConsoleRole = principal.scopes.has('admin') ? 'admin' : 'admin_read';
    const cookie = newSecret('web');
    const isEnvironment = keyId === ENVIRONMENT_KEY_ID && environmentKey !== undefined;
    const keyMark = isEnvironment ? markOf(cookie, environmentKey) : null;
    await db.transaction(async tx => {
      await tx.insert(table).values({ hash: sha256(cookie), isLink: false, keyId, keyMark, role, ...LIFE });
      const ofKey = and(eq(table.keyId, keyId), eq(table.isLink, false));
      const older = tx
        .select({ hash: table.hash })
        .from(table)
        .where(ofKey)
        .orderBy(desc(table.createdAt))
        .offset(MAX_SESSIONS);
      await tx.delete(table).where(inArray(table.hash, older));
      await audit.record(who, { event: 'console_signed_in', outcome: 'ok', meta: { role, by: 'key' } }, tx);
    });
    this.#known.set(digestOf(cookie), true);
    return cookie;
  }

  /** Returns whether a cookie was good when this process last asked. */
  isKnown(cookie: string): boolean {
    return this.#known.has(digestOf(cookie));
  }

  /** Returns the session of a cookie, which this use extends; undefined if it has ended. */
  async find(cookie: string): Promise<ConsoleSession | undefined> {
    if (!isSecret(cookie, 'web')) return undefined;
    const { db } = this.#parts;
    const hash = sha256(cookie);
    const isLive = and(
      eq(table.hash, hash),
      eq(table.isLink, false),
      gt(table.expiresAt, sql`now()`),
      gt(table.idleUntil, sql`now()`),
    );
    const isDue = lt(
      table.idleUntil,
      sql`${minutesFromNow(IDLE_MINUTES)} - make_interval(secs => ${TOUCH_SEC})`,
    );
    const [found] = await db
      .select({
        session: table,
        key: { id: apiKeys.id, name: apiKeys.name },
        isDue: sql<boolean>`${isDue}`,
      })
      .from(table)
      .leftJoin(apiKeys, and(eq(apiKeys.id, table.keyId), isLiveKey))
      .where(isLive);
    if (!found || !this.#isKeyLive(cookie, found.session, found.key !== null)) {
      this.#known.delete(digestOf(cookie));
      return undefined;
    }
    this.#known.set(digestOf(cookie), true);
    const [touched] = found.isDue
      ? await db
          .update(table)
          .set({ idleUntil: minutesFromNow(IDLE_MINUTES) })
          .where(isLive)
          .returning({ idleUntil: table.idleUntil })
      : [];
    const { role, keyId, idleUntil, expiresAt } = found.session;
    return {
      role,
      key_id: keyId,
      key_name: found.key?.name ?? null,
      idle_until: (touched?.idleUntil ?? idleUntil).toISOString(),
      ends_at: expiresAt.toISOString(),
    };
  }

  /** Returns the caller of a session's requests. @throws SwitchboardError `unauthorized` if it has ended */
  async authenticate(cookie: string): Promise<Principal> {
    const session = await this.find(cookie);
    if (!session) throw consoleSessionEnded();
    const { role } = session;
    const keyId = actingAs(session.key_id);
    // Those whom links signed in share no key, and so no limit.
    const limited = keyId === CONSOLE_KEY_ID ? { limitedAs: `${keyId}:${digestOf(cookie)}` } : {};
    return { tenantId: LOCAL_TENANT, keyId, scopes: new Set([role]), ...limited };
  }

  /** Ends a session. Resolves to false if there is none. */
  async end(cookie: string, actor: Actor): Promise<boolean> {
    if (!isSecret(cookie, 'web')) return false;
    const { db, audit } = this.#parts;
    return db.transaction(async tx => {
      const [row] = await tx
        .delete(table)
        .where(and(eq(table.hash, sha256(cookie)), eq(table.isLink, false)))
        .returning({ keyId: table.keyId });
      if (!row) return false;
      const who = { ...actor, tenantId: LOCAL_TENANT, keyId: actingAs(row.keyId) };
      await audit.record(who, { event: 'console_signed_out', outcome: 'ok' }, tx);
      return true;
    });
  }

  /** Ends all sessions and unused links. Resolves to their number. */
  async endAll(actor: Partial<Actor>): Promise<number> {
    const { db, audit } = this.#parts;
    return db.transaction(async tx => {
      const isLive = sql<boolean>`least(${table.expiresAt}, ${table.idleUntil}) > now()`;
      const rows = await tx.delete(table).returning({ isLive });
      const ended = rows.filter(one => one.isLive).length;
      await audit.record(actor, { event: 'console_signed_out', outcome: 'ok', meta: { ended } }, tx);
      return ended;
    });
  }

  /** @param isStored true if the key is in the database, and valid */
  #isKeyLive(cookie: string, { keyId, keyMark }: typeof table.$inferSelect, isStored: boolean): boolean {
    if (keyId === OPERATOR_KEY_ID) return true;
    if (keyId !== ENVIRONMENT_KEY_ID) return isStored;
    const { environmentKey } = this.#parts;
    if (environmentKey === undefined || keyMark === null) return false;
    const mark = markOf(cookie, environmentKey);
    return mark.length === keyMark.length && timingSafeEqual(mark, keyMark);
  }
}

export const consoleSessionEnded = (): SwitchboardError =>
  new SwitchboardError('unauthorized', 'The session of the console has ended. Sign in again.');

/** Returns the key id of what a session does. The audit log tells a browser from the command line that made its link. */
const actingAs = (keyId: string): string => (keyId === OPERATOR_KEY_ID ? CONSOLE_KEY_ID : keyId);

const digestOf = (cookie: string): string => Buffer.from(sha256(cookie)).toString('base64url');

const minutesFromNow = (minutes: number) => sql`now() + make_interval(mins => ${minutes})`;

/** The times of a new session. */
const LIFE = { expiresAt: minutesFromNow(60 * MAX_HOURS), idleUntil: minutesFromNow(IDLE_MINUTES) };

/** Nobody who reads the database can try keys: the cookie is not in it. */
const markOf = (cookie: string, key: string): Uint8Array => sha256(`${cookie}|${key}`);
