import { and, asc, eq, sql, type SQLWrapper } from 'drizzle-orm';
import type { Database } from '../../../platform/database/database.ts';
import { newId, sha256 } from '../../../platform/ids.ts';
import { apiKeys } from '../../access/schema.ts';
import { findUser, requireUserId } from '../../access/tenants.ts';
import type { CredentialValues } from '../../catalogue/credential-schema.ts';
import { ASKING_KEY, askerOf, type Asker } from '../calls.ts';
import type { IdentityContext } from '../context.ts';
import { connections } from '../schema.ts';
import type { EndReason, ReauthReason } from '../webhooks/events.ts';
import type { Account, Grant } from './provider.ts';
import { serverIdOf, type Target } from './holdings.ts';
import {
  connectionBinding,
  hasValues,
  kindOf,
  supersede,
  type ConnectionRow,
  type StoredTokens,
} from './stored-tokens.ts';

/** Returns the columns of a connection without tokens, which only the user can renew. */
export const withoutTokens = () => ({
  status: 'needs_reauth' as const,
  sealed: null,
  hasRefreshToken: false,
  version: sql`${connections.version} + 1`,
  leaseId: null,
  leaseUntil: null,
  updatedAt: sql`now()`,
});

/** A connection for callers and end users, without tokens. */
export interface ConnectionInfo {
  readonly id: string;
  /**
   * `credentials`: values, such as an API key, that one server takes. `oauth`: an account at the server's own authorization server.
   * `provider`: an account at an identity provider.
   */
  readonly kind: 'credentials' | 'oauth' | 'provider';
  /** Set for `provider`. */
  readonly provider: string | null;
  /** Null for `provider`. */
  readonly server_id: string | null;
  /** Set for `oauth`. */
  readonly issuer: string | null;
  readonly title: string;
  /** The display name of the account; null if there is none. */
  readonly account: string | null;
  /** Tells one key from another without showing it; set for `credentials`. */
  readonly fingerprint: string | null;
  /** True for a shared connection that calls for users carry, too. */
  readonly for_users: boolean;
  readonly scopes: readonly string[];
  readonly status: ConnectionRow['status'];
  readonly resource: string | null;
  readonly connected_at: string;
  readonly last_used_at: string | null;
}

/** The holder and the target of a connection, and who asked for it. */
export interface Owner extends Target {
  readonly tenantId: string;
  readonly userId: string;
  /** As in the table. */
  readonly askedBy: string | null;
}

/** A connection for its user's own page. */
export interface ShownConnection extends ConnectionInfo {
  /** Undefined if it is not known. */
  readonly asker: Asker | undefined;
}

/** The connection that a sign-in has made or renewed. */
export interface MadeBySignIn {
  readonly connectionId: string;
  /** Its sign-ins are counted; undefined for values, which always make a new connection. */
  readonly signIn?: number;
}

type Sealed = Parameters<typeof connectionBinding>[0] & Pick<ConnectionRow, 'sealed'>;

/** A sign-in returned a different account than the connected one, without permission to change it. */
export class AccountMismatch extends Error {
  override readonly name = 'AccountMismatch';
}

/** The accounts that users have connected, and their tokens. */
export class Connections {
  readonly #context: IdentityContext;

  constructor(context: IdentityContext) {
    this.#context = context;
  }

  /**
   * Lists a user's connections; empty for an unknown user, so that the existence of users is not revealed. @throws
   * SwitchboardError `invalid_request`
   */
  async list(tenantId: string, externalId: string): Promise<ConnectionInfo[]> {
    const user = await findUser(this.#context.db, tenantId, requireUserId(externalId));
    return user ? this.listOf(tenantId, user.id) : [];
  }

  async listOf(tenantId: string, userId: string): Promise<ConnectionInfo[]> {
    const rows = await this.#context.db
      .select()
      .from(connections)
      .where(and(eq(connections.userId, userId), eq(connections.tenantId, tenantId)))
      .orderBy(asc(connections.provider), asc(connections.resource));
    return rows.map(row => infoOf(row, this.#context.providers));
  }

  /** Lists a user's connections for the user's own page. */
  async listShown(tenantId: string, userId: string): Promise<ShownConnection[]> {
    const found = await this.#context.db
      .select({ row: connections, key: ASKING_KEY })
      .from(connections)
      .leftJoin(apiKeys, and(eq(apiKeys.id, connections.askedBy), eq(apiKeys.tenantId, connections.tenantId)))
      .where(and(eq(connections.userId, userId), eq(connections.tenantId, tenantId)))
      .orderBy(asc(connections.provider), asc(connections.resource));
    return found.map(({ row, key }) => {
      const asker = row.askedBy === null ? undefined : askerOf(row.askedBy, key, userId);
      return Object.assign(infoOf(row, this.#context.providers), { asker });
    });
  }

  /** Returns the holder of a connection. */
  async holderOf(id: string): Promise<{ tenantId: string; userId: string } | undefined> {
    const { tenantId, userId } = connections;
    const [row] = await this.#context.db
      .select({ tenantId, userId })
      .from(connections)
      .where(eq(connections.id, id));
    return row;
  }

  /**
   * Stores the outcome of a sign-in, within the transaction that completes its session; the user's row is locked. The same
   * account keeps its connection. A different account, if allowed, creates a new one, and the old tokens are revoked.
   * @throws AccountMismatch
   */
  async put(
    tx: Database,
    { forUsers, ...owner }: Owner & { forUsers?: boolean | undefined },
    { grant, account }: { grant: Grant; account: Account },
    allowAccountChange: boolean,
  ): Promise<MadeBySignIn> {
    const [existing] = await tx.select().from(connections).where(isConnectionOf(owner)).for('update');
    const issuer = grant.issuedTo?.issuer ?? null;
    const isSame = existing !== undefined && existing.issuer === issuer && !hasValues(existing);
    const shared = forUsers === undefined ? {} : { forUsers };
    if (isSame && existing.subject === account.subject)
      return this.#renew(tx, existing, { grant, account }, { ...shared, askedBy: owner.askedBy });
    if (isSame && !allowAccountChange) throw new AccountMismatch();
    if (existing) {
      await this.remove(tx, existing, 'replaced');
      const { tenantId, userId, provider } = existing;
      const who = { tenantId, userId, meta: { provider } };
      await this.#context.audit.record({}, { event: 'connection_replaced', outcome: 'ok', ...who }, tx);
    }
    const id = newId('con');
    const { accessToken, refreshToken, issuedTo } = grant;
    const columns = await this.columnsOf(
      { ...owner, id, issuer },
      { accessToken, refreshToken, issuedTo },
      grant,
    );
    const { subject, label = null } = account;
    await tx
      .insert(connections)
      .values({ ...owner, ...columns, ...shared, id, issuer, subject, account: label, version: 1 });
    await this.#context.events.connection(tx, { ...owner, id, issuer }, { event: 'created' });
    return { connectionId: id, signIn: 1 };
  }

  /**
   * Stores the values that a server requires and replaces older ones. The holder's row is locked. It is a new connection each time,
   * so that no session that was opened with an older key goes on with this one.
   * @param forUsers undefined: as before
   */
  async putValues(
    tx: Database,
    owner: Owner,
    { values, forUsers }: { values: CredentialValues; forUsers: boolean | undefined },
  ): Promise<ConnectionInfo> {
    const [existing] = await tx.select().from(connections).where(isConnectionOf(owner)).for('update');
    if (existing) await this.remove(tx, existing, 'replaced');
    const id = newId('con');
    const [row] = await tx
      .insert(connections)
      .values({
        ...owner,
        id,
        sealed: await this.#context.vault.sealJson(connectionBinding({ ...owner, id, issuer: null }), values),
        subject: fingerprintOf(id, values),
        forUsers: forUsers ?? existing?.forUsers ?? false,
        scopes: [],
        hasRefreshToken: false,
      })
      .returning();
    if (!row) throw new Error('INSERT … RETURNING returned no row');
    await this.#context.events.connection(tx, row, { event: 'created' });
    return infoOf(row, this.#context.providers);
  }

  /** Resolves to whether a different account is connected. */
  async isOther(owner: Parameters<typeof isConnectionOf>[0], account: Account): Promise<boolean> {
    const [existing] = await this.#context.db.select().from(connections).where(isConnectionOf(owner));
    return existing !== undefined && existing.subject !== account.subject;
  }

  async #renew(
    tx: Database,
    existing: ConnectionRow,
    { grant, account }: { grant: Grant; account: Account },
    more: { forUsers?: boolean; askedBy: string | null },
  ): Promise<MadeBySignIn> {
    const old = await this.tokensOf(existing);
    // A provider need not send a refresh token again for the same account. Without a subject, it is unknown whether the
    // account is the same.
    const kept = account.subject === '' ? undefined : old?.refreshToken;
    const { accessToken, refreshToken = kept, issuedTo } = grant;
    const current = { accessToken, refreshToken, issuedTo, superseded: old?.superseded ?? [] };
    const tokens = old ? await supersede(tx, this.#context.outbox, existing, current, old) : current;
    const columns = await this.columnsOf(existing, tokens, grant);
    const signIn = existing.signIn + 1;
    await tx
      .update(connections)
      .set({
        ...columns,
        ...more,
        signIn,
        account: account.label ?? null,
        failedAt: null,
        rejectedAt: null,
      })
      .where(eq(connections.id, existing.id));
    await this.#context.events.connection(tx, existing, { event: 'created' });
    return { connectionId: existing.id, signIn };
  }

  /** Returns the columns for writing tokens: sealed, with the lease released and the version incremented. */
  async columnsOf(owner: Parameters<typeof connectionBinding>[0], tokens: StoredTokens, grant: Grant) {
    const sealed = await this.#context.vault.sealJson(connectionBinding(owner), tokens);
    return {
      sealed,
      scopes: [...grant.scopes],
      clientRow: tokens.issuedTo?.rowId ?? null,
      status: 'active' as const,
      hasRefreshToken: tokens.refreshToken !== undefined,
      accessExpiresAt:
        grant.expiresInSec === undefined ? null : sql`now() + make_interval(secs => ${grant.expiresInSec})`,
      version: sql`${connections.version} + 1`,
      leaseId: null,
      leaseUntil: null,
      updatedAt: sql`now()`,
    };
  }

  /** Returns undefined if there are none (`needs_reauth`), or if they cannot be decrypted, which is logged. */
  tokensOf(row: Sealed): Promise<StoredTokens | undefined> {
    return this.#opened<StoredTokens>(row);
  }

  /** Returns the values of a connection with a server; undefined if they cannot be decrypted, which is logged. */
  valuesOf(row: Sealed): Promise<CredentialValues | undefined> {
    return this.#opened<CredentialValues>(row);
  }

  async #opened<T>(row: Sealed): Promise<T | undefined> {
    if (row.sealed === null) return undefined;
    try {
      return await this.#context.vault.openJson<T>(connectionBinding(row), row.sealed);
    } catch (error) {
      this.#context.log.error(
        { err: error, event: 'connection_unreadable', connectionId: row.id, tenantId: row.tenantId },
        "ALARM: a connection's secrets cannot be decrypted: the row was moved, changed, or encrypted with another key",
      );
      return undefined;
    }
  }

  /**
   * Deletes tokens that only the user can replace, if nobody has replaced them meanwhile.
   * @param why `revokes`: the tokens may still be valid, so their issuer is notified; `leaseId`: only under this lease
   * @returns whether they were deleted
   */
  async end(
    { id, version }: Pick<ConnectionRow, 'id' | 'version'>,
    {
      reason,
      leaseId,
      revokes = false,
    }: { reason: ReauthReason; leaseId?: string | undefined; revokes?: boolean },
  ): Promise<boolean> {
    const { db, audit, outbox } = this.#context;
    const ended = await db.transaction(async tx => {
      // Read again under a lock: a superseded pair may have been added in the meantime, which does not change the version.
      const [row] = await tx.select().from(connections).where(eq(connections.id, id)).for('update');
      if (row?.version !== version || row.status === 'needs_reauth') return false;
      if (leaseId !== undefined && row.leaseId !== leaseId) return false;
      const tokens = await this.tokensOf(row);
      await tx.update(connections).set(withoutTokens()).where(eq(connections.id, id));
      // Grants of earlier sign-ins may still be valid.
      const older = tokens?.superseded ?? [];
      for (const pair of tokens && revokes ? [tokens, ...older] : older) await outbox.add(tx, row, pair);
      await outbox.release(tx, row);
      const { tenantId, userId, provider } = row;
      const who = { tenantId, userId, meta: { provider, reason } };
      await audit.record({}, { event: 'connection_needs_reauth', outcome: 'failed', ...who }, tx);
      await this.#context.events.connection(tx, row, { event: 'needs_reauth', reason });
      return true;
    });
    if (ended) {
      outbox.kick();
      this.#context.events.kick();
    }
    return ended;
  }

  /** Deletes a connection. The outbox notifies a provider; for a key, nobody is notified. */
  async remove(tx: Database, row: ConnectionRow, reason: EndReason): Promise<void> {
    const tokens = hasValues(row) ? undefined : await this.tokensOf(row);
    // The newest first: if an account's tokens share a grant, it ends with them.
    const { outbox } = this.#context;
    for (const pair of tokens ? [tokens, ...(tokens.superseded ?? []).toReversed()] : [])
      await outbox.add(tx, row, pair);
    if (!hasValues(row)) await outbox.release(tx, row);
    await tx.delete(connections).where(eq(connections.id, row.id));
    await this.#context.events.connection(tx, row, { event: 'ended', reason });
  }
}

/** Shows a connection. */
export function infoOf(row: ConnectionRow, providers: IdentityContext['providers']): ConnectionInfo {
  const serverId = serverIdOf(row.provider);
  return {
    id: row.id,
    kind: kindOf(row),
    provider: serverId === undefined ? row.provider : null,
    server_id: serverId ?? null,
    issuer: row.issuer,
    title: serverId ?? providers.titleOf(row.provider),
    account: row.account,
    fingerprint: hasValues(row) ? row.subject : null,
    for_users: row.forUsers,
    scopes: row.scopes,
    status: row.status,
    resource: row.resource === '' ? null : readable(row.resource),
    connected_at: row.createdAt.toISOString(),
    last_used_at: row.lastUsedAt?.toISOString() ?? null,
  };
}

/** Selects the one connection that a holder has with a target, each of which may be a column or a placeholder. */
export const isConnectionOf = (owner: Record<'userId' | 'provider' | 'resource', string | SQLWrapper>) =>
  and(
    eq(connections.userId, owner.userId),
    eq(connections.provider, owner.provider),
    eq(connections.resource, owner.resource),
  );

/** Shows the variables of a server's address as its entry writes them. */
const readable = (resource: string): string => resource.replaceAll('%7B', '{').replaceAll('%7D', '}');

/** Tells one set of values from another of the same connection; the id keeps equal keys of two holders apart. */
const fingerprintOf = (id: string, { values, header }: CredentialValues): string =>
  Buffer.from(
    sha256(
      JSON.stringify([id, header, Object.entries(values).toSorted(([one], [two]) => (one < two ? -1 : 1))]),
    ),
  )
    .toString('hex')
    .slice(0, 8);
