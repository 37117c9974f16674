import { and, desc, eq, isNotNull, isNull, sql } from 'drizzle-orm';
import { SwitchboardError } from '../../errors.ts';
import type { Database } from '../../platform/database/database.ts';
import { isLiveKey, USER_SCOPES } from './api-key.ts';
import type { Actor, Audit } from './audit.ts';
import type { Scope } from './caller.ts';
import { generateApiKey } from './key-text.ts';
import { apiKeys } from './schema.ts';
import { ensureTenant, ensureUser, lockUser, type User } from './tenants.ts';

/** Refuses an access token, with one text for every reason. */
export const invalidAccessToken = (cause?: unknown): SwitchboardError =>
  new SwitchboardError(
    'unauthorized',
    'The access token is invalid, has expired, was revoked, or is for another address. Sign in again.',
    { cause },
  );

/** An MCP client that a user has signed in. */
interface Client {
  readonly tenantId: string;
  /** Its name for itself. */
  readonly name: string;
  /** Its OAuth client id. */
  readonly clientId: string;
  /** The address that its tokens are for; for one signed in at another authorization server, the issuer. */
  readonly resource: string;
}

interface NewClientKey extends Client {
  readonly user: User;
  readonly scopes: readonly Scope[];
  readonly expiresAt: Date;
}

interface ExternalClientKey extends Client {
  /** The caller's own id for the user. */
  readonly userId: string;
  /** When the token was issued. */
  readonly signedInAt: Date;
}

/** A signed-in client for its user. */
export interface SignedInClient extends Omit<Client, 'tenantId'> {
  /** The id of the key that stands for it. */
  readonly id: string;
  readonly createdAt: Date;
  readonly lastUsedAt: Date | undefined;
}

interface Parts {
  readonly db: Database;
  readonly audit: Audit;
  /** Called after the key with this id has changed. */
  readonly onChange: (id: string) => void;
}

/**
 * API keys that stand for the sign-ins of MCP clients. Nobody has their secrets: a client sends access tokens that name the key.
 * Scopes, quota, limits, lists and revocation are those of any key.
 */
export class ClientKeys {
  readonly #parts: Parts;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** Creates a key. Resolves to its id; undefined if the user was revoked meanwhile. */
  async create({ user, ...client }: NewClientKey, actor: Partial<Actor>): Promise<string | undefined> {
    const { db, onChange } = this.#parts;
    const id = await db.transaction(async tx => {
      const now = await lockUser(tx, client.tenantId, user.id);
      return now?.tokenEpoch === user.tokenEpoch ? this.#insert(tx, user, client, actor) : undefined;
    });
    if (id !== undefined) onChange(id);
    return id;
  }

  /**
   * Returns the id of the key for a user's sign-ins with a client at another authorization server; creates it, and the user, if
   * there is none. Undefined if one was revoked after the sign-in, or the user was.
   */
  async ensure({ userId, signedInAt, ...client }: ExternalClientKey): Promise<string | undefined> {
    const { tenantId, clientId, resource } = client;
    return this.#parts.db.transaction(async tx => {
      await ensureTenant(tx, tenantId);
      const user = await ensureUser(tx, tenantId, userId);
      const isOfIssuer = and(eq(apiKeys.userId, user.id), eq(apiKeys.resource, resource));
      const rows = await tx.select().from(apiKeys).where(isOfIssuer);
      const ofClient = rows.filter(row => row.clientId === clientId);
      // Keys of an earlier epoch ended with the user.
      const ended = [...ofClient, ...rows.filter(({ userEpoch }) => (userEpoch ?? 0) < user.tokenEpoch)];
      if (ended.some(({ revokedAt }) => revokedAt !== null && revokedAt >= signedInAt)) return undefined;
      const live = ofClient.find(({ revokedAt }) => revokedAt === null);
      if (live) return live.id;
      return this.#insert(tx, user, { ...client, scopes: USER_SCOPES, expiresAt: null });
    });
  }

  /** Lets a sign-in last at least until a time, unless it has ended. */
  async prolong(id: string, expiresAt: Date): Promise<void> {
    const { db, onChange } = this.#parts;
    const later = sql`greatest(${apiKeys.expiresAt}, ${expiresAt.toISOString()}::timestamptz)`;
    const isClients = and(eq(apiKeys.id, id), isNotNull(apiKeys.clientId), isNull(apiKeys.revokedAt));
    await db.update(apiKeys).set({ expiresAt: later }).where(isClients);
    onChange(id);
  }

  /** Returns the clients that a user has signed in, the latest first. */
  async list(userId: string): Promise<readonly SignedInClient[]> {
    const rows = await this.#parts.db
      .select()
      .from(apiKeys)
      .where(and(eq(apiKeys.userId, userId), isNotNull(apiKeys.clientId), isLiveKey))
      .orderBy(desc(apiKeys.createdAt));
    return rows.map(({ id, name, clientId, resource, createdAt, lastUsedAt }) => ({
      id,
      name,
      clientId: clientId ?? '',
      resource: resource ?? '',
      createdAt,
      lastUsedAt: lastUsedAt ?? undefined,
    }));
  }

  /** Returns the quota of the user's last sign-in, and what it is counted under: signing in again must lift no limit. */
  async #limitsBefore(tx: Database, userId: string) {
    const [last] = await tx
      .select()
      .from(apiKeys)
      .where(and(eq(apiKeys.userId, userId), isNotNull(apiKeys.clientId)))
      .orderBy(desc(apiKeys.createdAt))
      .limit(1);
    if (!last) return {};
    const { id, countedAs, monthlyCalls, monthlySearches } = last;
    return { countedAs: countedAs ?? id, monthlyCalls, monthlySearches };
  }

  async #insert(
    tx: Database,
    user: User,
    client: Client & { readonly scopes: readonly Scope[]; readonly expiresAt: Date | null },
    actor: Partial<Actor> = {},
  ): Promise<string> {
    const { key: _secret, id, hash } = generateApiKey();
    const scopes = [...client.scopes];
    const before = await this.#limitsBefore(tx, user.id);
    await tx
      .insert(apiKeys)
      .values({ ...client, ...before, id, hash, scopes, userId: user.id, userEpoch: user.tokenEpoch });
    const { tenantId, clientId } = client;
    const meta = { key: id, scopes: scopes.join(','), client: clientId };
    const entry = { event: 'client_signed_in', outcome: 'ok', tenantId, userId: user.id, meta } as const;
    await this.#parts.audit.record(actor, entry, tx);
    return id;
  }
}
