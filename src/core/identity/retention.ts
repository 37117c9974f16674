import { getTableName, inArray, lt, or, sql, type SQL } from 'drizzle-orm';
import type { PgColumn, PgTable } from 'drizzle-orm/pg-core';
import { isDatabaseUnavailable, whyFailed, type Database } from '../../platform/database/database.ts';
import { apiKeys, auditLog, consoleSessions, users } from '../access/schema.ts';
import { Repeat } from '../../platform/time.ts';
import type { IdentityContext } from './context.ts';
import {
  authorizationRecords,
  authSessions,
  manageLinks,
  oauthClients,
  refreshTokens,
  tokenFamilies,
} from './schema.ts';
import { expireSessions } from './sign-in/session-store.ts';
import type { SigningKeys } from './tokens/identity-token.ts';
import { webhookSecrets } from './webhooks/schema.ts';

const EVERY_MS = 60_000;
const BATCH = 500;

/** The rows to delete, with their age. Dependent rows are deleted too. */
const RULES: readonly {
  readonly table: PgTable;
  readonly key: PgColumn;
  readonly when: SQL;
  readonly batch?: number;
}[] = [
  {
    table: authSessions,
    key: authSessions.idHash,
    when: sql`${authSessions.finishedAt} < now() - interval '24 hours'`,
  },
  {
    table: manageLinks,
    key: manageLinks.hash,
    when: sql`${manageLinks.expiresAt} < now() - interval '24 hours'`,
  },
  {
    // Used refresh tokens stay as long as their family: without its row, a stolen one would be unknown instead of reused.
    table: tokenFamilies,
    key: tokenFamilies.id,
    // A family may have thousands of tokens.
    batch: 20,
    when: sql`${or(
      sql`${tokenFamilies.expiresAt} < now()`,
      sql`${tokenFamilies.revokedAt} < now() - interval '30 days'`,
    )}`,
  },
  {
    table: consoleSessions,
    key: consoleSessions.hash,
    when: sql`least(${consoleSessions.expiresAt}, ${consoleSessions.idleUntil}) < now()`,
  },
  {
    table: authorizationRecords,
    key: authorizationRecords.idHash,
    when: sql`${authorizationRecords.expiresAt} < now()`,
  },
  { table: webhookSecrets, key: webhookSecrets.id, when: sql`${webhookSecrets.expiresAt} < now()` },
  {
    // The outbox may need any of them to revoke tokens.
    table: oauthClients,
    key: oauthClients.id,
    when: sql`${oauthClients.createdAt} < now() - interval '90 days'
      and (not ${oauthClients.byOperator} or ${oauthClients.retiredAt} is not null)
      and (${oauthClients.leaseUntil} is null or ${oauthClients.leaseUntil} < now())
      and not exists (select from connections c where c.client_row = ${oauthClients.id})
      and not exists (select from revocation_outbox)`,
  },
  {
    // The sign-ins of MCP clients. Usage and calls name their keys for some time.
    table: apiKeys,
    key: apiKeys.id,
    when: sql`${apiKeys.clientId} is not null
      and least(${apiKeys.revokedAt}, ${apiKeys.expiresAt}) < now() - interval '90 days'`,
  },
  { table: auditLog, key: auditLog.id, when: sql`${auditLog.at} < now() - interval '90 days'` },
  {
    table: users,
    key: users.id,
    when: sql`${users.lastSeenAt} < now() - interval '180 days'
      and not exists (select from connections c where c.user_id = ${users.id})
      and not exists (select from token_families f where f.user_id = ${users.id})
      and not exists (select from api_keys k where k.user_id = ${users.id} and k.revoked_at is null)`,
  },
];

/** Deletes expired rows in batches, so that locks are short and replicas do not wait for each other. */
export class Retention {
  readonly #context: IdentityContext;
  readonly #keys: SigningKeys;
  readonly #repeat = new Repeat(EVERY_MS, () => this.purge());
  #stopped = false;

  constructor(context: IdentityContext, keys: SigningKeys) {
    this.#context = context;
    this.#keys = keys;
  }

  start(): void {
    this.#repeat.start(EVERY_MS);
  }

  async close(): Promise<void> {
    this.#stopped = true;
    await this.#repeat.stop();
  }

  /**
   * Resolves to the number of deleted rows, without dependent ones. A failing rule does not stop the others, unless the
   * database is unavailable.
   */
  async purge(): Promise<number> {
    let deleted = 0;
    const { log, outbox } = this.#context;
    let isAway = false;
    const attempt = async (what: string, work: () => Promise<unknown>) => {
      if (isAway) return;
      await work().catch((error: unknown) => {
        isAway = isDatabaseUnavailable(error);
        log.warn({ ...whyFailed(error), what }, 'failed to delete old identity rows');
      });
    };
    await attempt('overdue sessions', async () => {
      while (!this.#stopped && (await expireSessions(this.#context, undefined, BATCH)) === BATCH);
    });
    outbox.kick();
    await attempt('replays', () => forgetReplays(this.#context.db));
    for (const rule of RULES)
      await attempt(getTableName(rule.table), async () => (deleted += await this.#purge(rule)));
    await attempt('signing keys', () => this.#keys.purge());
    return deleted;
  }

  async #purge({ table, key, when, batch = BATCH }: (typeof RULES)[number]): Promise<number> {
    const { db } = this.#context;
    for (let deleted = 0; ;) {
      const due = db.select({ key }).from(table).where(when).limit(batch).for('update', { skipLocked: true });
      const gone = await db.delete(table).where(inArray(key, due)).returning({ key });
      deleted += gone.length;
      if (this.#stopped || gone.length < batch) return deleted;
    }
  }
}

/** Deletes stored responses as soon as their minute is over, because they contain live tokens. */
export async function forgetReplays(db: Database): Promise<void> {
  const forgotten = { replaySealed: null, replayUntil: null };
  await db
    .update(refreshTokens)
    .set(forgotten)
    .where(lt(refreshTokens.replayUntil, sql`now()`));
  await db
    .update(authSessions)
    .set(forgotten)
    .where(lt(authSessions.replayUntil, sql`now()`));
}
