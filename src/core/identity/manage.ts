import { and, eq, gt, isNull, sql } from 'drizzle-orm';
import { tenants, users } from '../access/schema.ts';
import type { Actor } from '../access/audit.ts';
import type { ConnectionInfo, Connections } from './connections/connections.ts';
import type { IdentityContext } from './context.ts';
import type { Revocations } from './connections/revocations.ts';
import { manageLinks } from './schema.ts';
import { isSecret, newSecret, sha256 } from '../../platform/ids.ts';
import { ensureUser, requireUserId } from '../access/tenants.ts';

const LINK_MINUTES = 5;
const PAGE_MINUTES = 15;

export interface ManageLink {
  readonly url: string;
  readonly expires_at: string;
}

export interface ManageView {
  readonly app: string | undefined;
  readonly user: string;
  readonly connections: readonly ConnectionInfo[];
}

interface Holder {
  readonly tenantId: string;
  readonly userId: string;
}

/**
 * The page on which a user sees and ends connections. Switchboard has no login of its own: the caller, which knows its user,
 * requests a link. The link works once, within five minutes, and opens the page for 15 minutes in one browser.
 */
export class Manage {
  readonly #context: IdentityContext;
  readonly #connections: Connections;
  readonly #revocations: Revocations;

  constructor(context: IdentityContext, all: Connections, revocations: Revocations) {
    this.#context = context;
    this.#connections = all;
    this.#revocations = revocations;
  }

  /** Creates a link to the page. @throws SwitchboardError `invalid_request` */
  async createLink(actor: Actor & { tenantId: string }, externalId: string): Promise<ManageLink> {
    const userId = requireUserId(externalId);
    const link = newSecret('page');
    const { db, audit, publicUrl } = this.#context;
    const expiresAt = await db.transaction(async tx => {
      const user = await ensureUser(tx, actor.tenantId, userId);
      const [row] = await tx
        .insert(manageLinks)
        .values({
          hash: sha256(link),
          tenantId: actor.tenantId,
          userId: user.id,
          epoch: user.tokenEpoch,
          expiresAt: sql`now() + make_interval(mins => ${LINK_MINUTES})`,
        })
        .returning({ expiresAt: manageLinks.expiresAt });
      if (!row) throw new Error('INSERT … RETURNING gave no row');
      await audit.record(actor, { event: 'manage_link_created', outcome: 'ok', userId: user.id }, tx);
      return row.expiresAt;
    });
    return { url: `${publicUrl()}/manage/${link}`, expires_at: expiresAt.toISOString() };
  }

  /** Resolves to whether the link is still valid. Checking it, as link previews do, does not use it up. */
  async isOpen(link: string): Promise<boolean> {
    if (!isSecret(link, 'page')) return false;
    const [row] = await this.#context.db
      .select({ hash: manageLinks.hash })
      .from(manageLinks)
      .where(this.#unused(link));
    return row !== undefined;
  }

  /** Uses the link. Returns the secret of the browser that may see the page; undefined if the link has expired. */
  async open(link: string, actor: Actor): Promise<string | undefined> {
    if (!isSecret(link, 'page')) return undefined;
    const browser = newSecret('web');
    const { db, audit } = this.#context;
    return db.transaction(async tx => {
      const [row] = await tx
        .update(manageLinks)
        .set({
          usedAt: sql`now()`,
          browserHash: sha256(browser),
          expiresAt: sql`now() + make_interval(mins => ${PAGE_MINUTES})`,
        })
        .where(this.#unused(link))
        .returning();
      if (!row) return undefined;
      const { tenantId, userId } = row;
      await audit.record(actor, { event: 'manage_link_opened', outcome: 'ok', tenantId, userId }, tx);
      return browser;
    });
  }

  /** Returns the page's data; undefined if this browser may not see it, or no longer. */
  async view(browser: string | undefined): Promise<ManageView | undefined> {
    const holder = await this.#holder(browser);
    if (!holder) return undefined;
    const [names] = await this.#context.db
      .select({ app: tenants.name, user: users.externalId })
      .from(users)
      .innerJoin(tenants, eq(tenants.id, users.tenantId))
      .where(eq(users.id, holder.userId));
    if (!names) return undefined;
    return {
      app: names.app ?? undefined,
      user: names.user,
      connections: await this.#connections.listOf(holder.tenantId, holder.userId),
    };
  }

  /** Ends one connection. Resolves to false if it no longer exists, and to undefined if the page has expired. */
  async disconnect(
    browser: string | undefined,
    connectionId: string,
    actor: Actor,
  ): Promise<boolean | undefined> {
    const holder = await this.#holder(browser);
    if (!holder) return undefined;
    if (!/^con_[0-9A-Za-z]{22}$/.test(connectionId)) return false;
    return this.#revocations.disconnect({ ...actor, tenantId: holder.tenantId }, holder.userId, connectionId);
  }

  /** Revokes everything the app has of this user, including this page. Resolves to undefined if the page has expired. */
  async revokeAll(browser: string | undefined, actor: Actor): Promise<true | undefined> {
    const holder = await this.#holder(browser);
    if (!holder) return undefined;
    await this.#revocations.revokeUser({ ...actor, tenantId: holder.tenantId }, holder.userId);
    return true;
  }

  async #holder(browser: string | undefined): Promise<Holder | undefined> {
    if (browser === undefined || !isSecret(browser, 'web')) return undefined;
    const [row] = await this.#context.db
      .select({ tenantId: manageLinks.tenantId, userId: manageLinks.userId })
      .from(manageLinks)
      .innerJoin(users, and(eq(users.id, manageLinks.userId), eq(users.tokenEpoch, manageLinks.epoch)))
      .where(and(eq(manageLinks.browserHash, sha256(browser)), gt(manageLinks.expiresAt, sql`now()`)));
    return row;
  }

  #unused(link: string) {
    return and(
      eq(manageLinks.hash, sha256(link)),
      isNull(manageLinks.usedAt),
      gt(manageLinks.expiresAt, sql`now()`),
    );
  }
}
