import { and, eq, gt, isNull, lt, or, sql } from 'drizzle-orm';
import type { Database } from '../../../platform/database/database.ts';
import { sha256 } from '../../../platform/ids.ts';
import { isLiveKey } from '../../access/api-key.ts';
import { apiKeys, users } from '../../access/schema.ts';
import { authorizationRecords as table } from '../schema.ts';
import type { Binding, Vault } from '../vault/vault.ts';

type Row = typeof table.$inferSelect;

/** What is stored of one record. */
export interface StoredRecord {
  readonly payload: Readonly<Record<string, unknown>>;
  /** How long ago it was used first, in milliseconds; undefined: it was not used. */
  readonly usedForMs: number | undefined;
}

interface NewRecord {
  readonly payload: object;
  readonly ttlSec: number;
  /** The API key that stands for the grant. The record is gone once that key is revoked, or its user. */
  readonly grantId?: string | undefined;
  /** Another id to find it by. */
  readonly uid?: string | undefined;
}

/**
 * The storage of the authorization server: anything with an id, of which the id is kept as a hash and the rest sealed. All processes
 * of a database share it.
 */
export class AuthorizationRecords {
  readonly #db: Database;
  readonly #vault: Vault;

  constructor(db: Database, vault: Vault) {
    this.#db = db;
    this.#vault = vault;
  }

  /** Writes a record. An existing one keeps the time of its use. */
  async put(kind: string, id: string, { payload, ttlSec, grantId, uid }: NewRecord): Promise<void> {
    const idHash = hashOf(kind, id);
    const values = {
      kind,
      grantId: grantId ?? null,
      uidHash: uid === undefined ? null : hashOf(kind, uid),
      sealed: await this.#vault.seal(recordBinding({ kind, idHash }), JSON.stringify(payload)),
      expiresAt: sql`now() + make_interval(secs => ${ttlSec})`,
    };
    await this.#db
      .insert(table)
      .values({ idHash, ...values })
      .onConflictDoUpdate({ target: table.idHash, set: values });
  }

  /** Returns undefined if it does not exist, has expired, or belongs to a grant that has ended. */
  find(kind: string, id: string): Promise<StoredRecord | undefined> {
    return this.#read(eq(table.idHash, hashOf(kind, id)));
  }

  findByUid(kind: string, uid: string): Promise<StoredRecord | undefined> {
    return this.#read(eq(table.uidHash, hashOf(kind, uid)));
  }

  /** Marks a record as used. Resolves to false if it was used before, whose time it keeps. */
  async use(kind: string, id: string): Promise<boolean> {
    const used = await this.#db
      .update(table)
      .set({ usedAt: sql`now()` })
      .where(and(eq(table.idHash, hashOf(kind, id)), isNull(table.usedAt)))
      .returning({ kind: table.kind });
    return used.length > 0;
  }

  async drop(kind: string, id: string): Promise<void> {
    await this.#db.delete(table).where(eq(table.idHash, hashOf(kind, id)));
  }

  /** Lets a record live longer, if less than half of that time is left. */
  async prolong(kind: string, id: string, ttlSec: number): Promise<void> {
    await this.#db
      .update(table)
      .set({ expiresAt: sql`now() + make_interval(secs => ${ttlSec})` })
      .where(
        and(
          eq(table.idHash, hashOf(kind, id)),
          lt(table.expiresAt, sql`now() + make_interval(secs => ${ttlSec / 2})`),
        ),
      );
  }

  async #read(where: ReturnType<typeof eq>): Promise<StoredRecord | undefined> {
    const [found] = await this.#db
      .select({
        row: table,
        usedForMs: sql<number | null>`(extract(epoch from now() - ${table.usedAt}) * 1000)::float8`,
      })
      .from(table)
      .leftJoin(apiKeys, and(eq(apiKeys.id, table.grantId), isLiveKey))
      .leftJoin(users, and(eq(users.id, apiKeys.userId), eq(users.tokenEpoch, apiKeys.userEpoch)))
      .where(
        and(where, gt(table.expiresAt, sql`now()`), or(isNull(table.grantId), sql`${users.id} is not null`)),
      );
    if (!found) return undefined;
    const { row, usedForMs } = found;
    const payload = await this.#vault.openJson<Record<string, unknown>>(recordBinding(row), row.sealed);
    return { payload, usedForMs: usedForMs ?? undefined };
  }
}

const hashOf = (kind: string, id: string): Uint8Array => sha256(`${kind}|${id}`);

export const recordBinding = ({ kind, idHash }: Pick<Row, 'kind' | 'idHash'>): Binding => ({
  table: 'authorization_records',
  tenantId: '',
  userId: '',
  id: Buffer.from(idHash).toString('base64url'),
  purpose: kind,
});
