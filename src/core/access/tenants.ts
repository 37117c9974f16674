import { and, eq, ilike, or, sql } from 'drizzle-orm';
import { isOnLoopback } from '../../config/setting.ts';
import { SwitchboardError } from '../../errors.ts';
import { quoted } from '../../platform/sanitize.ts';
import { containing } from '../../platform/database/columns.ts';
import type { Database } from '../../platform/database/database.ts';
import type { SignInMode } from './caller.ts';
import type { Actor, Audit } from './audit.ts';
import { tenants, users } from './schema.ts';
import { randomBase62 } from '../../platform/ids.ts';

/** The default tenant of keys. */
export const LOCAL_TENANT = 'local';

const MAX_URL_CHARS = 2048;

/** A tenant for an operator. */
interface TenantInfo {
  readonly id: string;
  /** The app's name on the pages for end users. */
  readonly name: string | null;
  /** How sign-ins are completed unless the caller asks for more. */
  readonly mode: SignInMode;
  readonly return_urls: readonly string[];
  /** The provider at which users sign in to their page, and the claim that is their `user_id`. */
  readonly sign_in: {
    readonly provider: string;
    readonly user_id: 'email' | 'sub';
    /** Users with a verified address at this domain are created. Only with `email`. */
    readonly domain?: string | undefined;
  } | null;
  readonly created_at: string;
}

/** Limits which tenants are listed. An absent field does not matter. */
interface TenantFilter {
  /** Text in the id or the name, in any case. */
  readonly text?: string | undefined;
  /** Only ids after this one. */
  readonly after?: string | undefined;
  readonly limit?: number | undefined;
}

interface TenantChange {
  /** '' removes it. */
  readonly name?: string | undefined;
  readonly mode?: SignInMode | undefined;
  /** Replaces the whole list. */
  readonly returnUrls?: readonly string[] | undefined;
  /** null removes it. */
  readonly signIn?: TenantInfo['sign_in'] | undefined;
}

/** Tenants own keys, users and sessions. */
export class Tenants {
  readonly #db: Database;
  readonly #audit: Audit;

  constructor(db: Database, audit: Audit) {
    this.#db = db;
    this.#audit = audit;
  }

  /** Lists tenants by id. */
  async list({ text, after, limit }: TenantFilter = {}): Promise<{
    tenants: TenantInfo[];
    hasMore: boolean;
  }> {
    const contains = text === undefined ? undefined : containing(text);
    const rows = this.#db
      .select()
      .from(tenants)
      .where(
        and(
          contains === undefined ? undefined : or(ilike(tenants.id, contains), ilike(tenants.name, contains)),
          after === undefined ? undefined : sql`${tenants.id} collate "C" > ${after} collate "C"`,
        ),
      )
      .orderBy(sql`${tenants.id} collate "C"`)
      .$dynamic();
    const found = await (limit === undefined ? rows : rows.limit(limit + 1));
    return { tenants: found.slice(0, limit).map(info), hasMore: limit !== undefined && found.length > limit };
  }

  /** @throws SwitchboardError `invalid_request` if the tenant does not exist */
  async get(id: string): Promise<TenantInfo> {
    const [row] = await this.#db.select().from(tenants).where(eq(tenants.id, id));
    if (!row) throw unknownTenant(id);
    return info(row);
  }

  /**
   * Changes a tenant. Omitted fields stay unchanged.
   * @throws SwitchboardError `invalid_request`, also for an unknown tenant, so that a typo creates none
   */
  async change(
    id: string,
    { name, mode, returnUrls, signIn }: TenantChange,
    actor: Partial<Actor> = {},
  ): Promise<TenantInfo> {
    const changes = {
      ...(name === undefined ? {} : { name: name === '' ? null : name }),
      ...(mode === undefined ? {} : { signInMode: mode }),
      ...(returnUrls === undefined ? {} : { returnUrls: [...new Set(returnUrls.map(requireReturnUrl))] }),
      ...signInColumns(signIn),
    };
    if (Object.keys(changes).length === 0) return this.get(id);
    return this.#db.transaction(async tx => {
      const [row] = await tx.update(tenants).set(changes).where(eq(tenants.id, id)).returning();
      if (!row) throw unknownTenant(id);
      if (row.signInMode === 'caller' && row.returnUrls.length === 0)
        throw new SwitchboardError(
          'invalid_request',
          'mode: caller requires a return URL, the address of the app that sign-ins end at. Set return_urls as well.',
        );
      const meta = { changed: Object.keys(changes).join(',') };
      await this.#audit.record(actor, { event: 'tenant_changed', outcome: 'ok', tenantId: id, meta }, tx);
      return info(row);
    });
  }
}

/** Returns the columns for a change of how users sign in without a link; null removes it. */
function signInColumns(signIn: TenantInfo['sign_in'] | undefined) {
  if (signIn === undefined) return {};
  const { provider = null, user_id: claim = null, domain } = signIn ?? {};
  return { pageProvider: provider, pageClaim: claim, pageDomain: domain?.toLowerCase() ?? null };
}

/** Creates the tenant if it does not exist. */
export async function ensureTenant(db: Database, id: string): Promise<void> {
  await db.insert(tenants).values({ id }).onConflictDoNothing();
}

/** Validates a return URL, which becomes a link on one of our pages and is later matched exactly. */
function requireReturnUrl(text: string): string {
  const refuse = (why: string) => new SwitchboardError('invalid_request', `return_urls: ${text} ${why}`);
  const url = URL.parse(text);
  if (!url || text.length > MAX_URL_CHARS || !/^https?:\/\/[^\\\s\p{Cc}\p{Cs}]+$/u.test(text))
    throw refuse('must be an absolute URL');
  if (url.protocol !== 'https:' && !isOnLoopback(url)) throw refuse('must be https (http only on loopback)');
  if (url.username !== '' || url.password !== '') throw refuse('must not have a user name or password');
  if (text.includes('#')) throw refuse('must not have a fragment');
  return text;
}

const unknownTenant = (id: string) =>
  new SwitchboardError(
    'invalid_request',
    `No tenant has the id ${quoted(id)}. \`switchboard keys create --tenant\` creates one.`,
  );

const info = (row: typeof tenants.$inferSelect): TenantInfo => ({
  id: row.id,
  name: row.name,
  mode: row.signInMode,
  return_urls: row.returnUrls,
  sign_in:
    row.pageProvider === null || row.pageClaim === null
      ? null
      : {
          provider: row.pageProvider,
          user_id: row.pageClaim,
          ...(row.pageDomain === null ? {} : { domain: row.pageDomain }),
        },
  created_at: row.createdAt.toISOString(),
});

const MAX_BYTES = 1024;

export { TENANT_HOLDER } from './schema.ts';

export interface User {
  readonly id: string;
  readonly tokenEpoch: number;
}

/**
 * Validates the caller's own id for an end user. It stays byte-exact: no normalisation, no case folding.
 * @throws SwitchboardError `invalid_request`
 */
export function requireUserId(externalId: string): string {
  const why = userIdProblem(externalId);
  if (why === undefined) return externalId;
  throw new SwitchboardError('invalid_request', `user_id: ${why}`);
}

/** Returns whether a text can be the caller's own id for an end user. */
export const isUserId = (externalId: string): boolean => userIdProblem(externalId) === undefined;

function userIdProblem(externalId: string): string | undefined {
  const bytes = Buffer.byteLength(externalId);
  if (bytes < 1 || bytes > MAX_BYTES) return `must have 1 to ${MAX_BYTES} bytes, not ${bytes}`;
  // A lone surrogate would be stored as U+FFFD, which could merge two users.
  if (!externalId.isWellFormed()) return 'must be well-formed Unicode';
  return /\p{Cc}/u.test(externalId) ? 'must not contain control characters' : undefined;
}

/** Returns the user's row, created if necessary; it stays locked until the transaction ends. */
export async function ensureUser(tx: Database, tenantId: string, externalId: string): Promise<User> {
  const [user] = await tx
    .insert(users)
    .values({ id: `usr_${randomBase62(22)}`, tenantId, externalId })
    .onConflictDoUpdate({ target: [users.tenantId, users.externalId], set: { lastSeenAt: sql`now()` } })
    .returning({ id: users.id, tokenEpoch: users.tokenEpoch });
  if (!user) throw new Error('INSERT … RETURNING gave no row');
  return user;
}

/** Returns undefined for an unknown user. */
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
 * Locks the user's row. Every transaction on a user's tokens does this first, so that a revocation and a refresh never
 * interleave. Returns undefined if the user no longer exists.
 */
export async function lockUser(tx: Database, tenantId: string, userId: string): Promise<User | undefined> {
  const [user] = await tx
    .select({ id: users.id, tokenEpoch: users.tokenEpoch })
    .from(users)
    .where(and(eq(users.id, userId), eq(users.tenantId, tenantId)))
    .for('no key update');
  return user;
}
