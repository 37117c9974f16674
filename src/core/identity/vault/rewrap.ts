import { and, asc, eq, gt, isNotNull, not, sql } from 'drizzle-orm';
import type { PgColumn } from 'drizzle-orm/pg-core';
import { SwitchboardError } from '../../../errors.ts';
import type { Database } from '../../../platform/database/database.ts';
import { connectionBinding } from '../connections/stored-tokens.ts';
import { outboxBinding } from '../connections/revocation-outbox.ts';
import { recordBinding } from '../grants/records.ts';
import { clientBinding } from '../oauth/clients.ts';
import { forgetReplays } from '../retention.ts';
import {
  authorizationRecords,
  authSessions,
  connections,
  oauthClients,
  refreshTokens,
  revocationOutbox,
  signingKeys,
} from '../schema.ts';
import { sessionBinding, waitingBinding } from '../sign-in/session-store.ts';
import { bindingOf as signingBinding } from '../tokens/identity-token.ts';
import { secretBinding } from '../webhooks/message.ts';
import { webhookSecrets } from '../webhooks/schema.ts';
import { keyIdOfCanary, renewCanary } from './open.ts';
import { VaultError, type Binding, type Vault } from './vault.ts';

const BATCH = 100;
/** The approximate number of rows per call of `rewrap`. */
const SLICE = 1000;

type Table =
  | typeof authorizationRecords
  | typeof connections
  | typeof oauthClients
  | typeof revocationOutbox
  | typeof signingKeys
  | typeof authSessions
  | typeof webhookSecrets;
type Key = string | Uint8Array;
interface Batch {
  readonly sealed: number;
  /** The key after which the next batch starts; undefined: this was the last. */
  readonly after: Key | undefined;
}

/** Tables with sealed rows. Stored responses are left out, because they are deleted within a minute. */
const SEALED: readonly {
  readonly table: Table;
  readonly rewrap: (tx: Database, vault: Vault, after: Key | undefined) => Promise<Batch>;
}[] = [
  rewrapping(connections, connections.id, row => row.id, connectionBinding),
  rewrapping(oauthClients, oauthClients.id, row => row.id, clientBinding),
  rewrapping(
    revocationOutbox,
    revocationOutbox.id,
    row => row.id,
    row => outboxBinding(row.provider, row.id),
  ),
  rewrapping(
    signingKeys,
    signingKeys.kid,
    row => row.kid,
    row => signingBinding(row.kid),
  ),
  rewrapping(
    authSessions,
    authSessions.idHash,
    row => row.idHash,
    row => (row.status === 'confirm' ? waitingBinding(row) : sessionBinding(row)),
  ),
  rewrapping(authorizationRecords, authorizationRecords.idHash, row => row.idHash, recordBinding),
  rewrapping(webhookSecrets, webhookSecrets.id, row => row.id, secretBinding),
];

/**
 * Reseals rows that were sealed with another key, using the first key. It works in batches, each in its own transaction, and on
 * about `SLICE` rows per call, so that the caller can report progress. It can be interrupted at any time and continues where it
 * stopped. Rows that are locked or cannot be opened are skipped. Resolves to the number of resealed rows; 0: nothing is left to do.
 * @throws SwitchboardError `unavailable` if rows of another key remain and none of them could be resealed
 */
export async function rewrap(db: Database, vault: Vault): Promise<number> {
  await forgetReplays(db);
  let done = 0;
  for (const { rewrap: batch } of SEALED) {
    let after: Key | undefined;
    do {
      const from = after;
      const { sealed, after: next } = await db.transaction(tx => batch(tx, vault, from));
      done += sealed;
      after = next;
    } while (after !== undefined && done < SLICE);
    if (done >= SLICE) return done;
  }
  if (done > 0) return done;
  const left = await countSealed(db, column => sql`not starts_with(${column}, ${`${vault.activeKeyId}:`})`);
  if (left > 0) {
    throw new SwitchboardError(
      'unavailable',
      `${left} rows are not yet encrypted with ${vault.activeKeyId}: they are in use, expire within a minute, or their key is not configured. Run the command again.`,
      { retryAfterSec: 5 },
    );
  }
  await renewCanary(db, vault);
  return 0;
}

/** Checks that nothing needs this key any more. @throws SwitchboardError `invalid_request` if something does */
export async function requireUnused(db: Database, vault: Vault, keyId: string): Promise<void> {
  const refuse = (why: string) => new SwitchboardError('invalid_request', why);
  if (keyId === vault.activeKeyId)
    throw refuse(`${keyId} is the active key. Put another key first, then run \`switchboard keys rewrap\`.`);
  if (!vault.has(keyId)) throw refuse(`No key with the id ${JSON.stringify(keyId)} is configured.`);
  await forgetReplays(db);
  const sealed = await countSealed(db, column => sql`starts_with(${column}, ${`${keyId}:`})`);
  // Without the canary's key the next start would be refused.
  const used = sealed + ((await keyIdOfCanary(db)) === keyId ? 1 : 0);
  if (used > 0)
    throw refuse(`${used} rows are still encrypted with ${keyId}. Run \`switchboard keys rewrap\` first.`);
}

async function countSealed(
  db: Database,
  where: (column: PgColumn) => ReturnType<typeof sql>,
): Promise<number> {
  const columns = [
    ...SEALED.map(({ table }) => ({ table, column: table.sealed as PgColumn })),
    { table: refreshTokens, column: refreshTokens.replaySealed as PgColumn },
    { table: authSessions, column: authSessions.replaySealed as PgColumn },
  ];
  let total = 0;
  for (const { table, column } of columns) {
    const [row] = await db
      .select({ count: sql<number>`count(*)::int` })
      .from(table)
      .where(and(isNotNull(column), where(column)));
    total += row?.count ?? 0;
  }
  return total;
}

function rewrapping<T extends Table>(
  table: T,
  key: PgColumn,
  keyOf: (row: T['$inferSelect']) => Key,
  bindingOf: (row: T['$inferSelect']) => Binding,
) {
  // Drizzle's types need one table or a union of them, not a type parameter.
  const any: Table = table;
  const batch = async (tx: Database, vault: Vault, after: Key | undefined): Promise<Batch> => {
    const rows = (await tx
      .select()
      .from(any)
      .where(
        and(
          isNotNull(table.sealed),
          not(sql`starts_with(${table.sealed}, ${`${vault.activeKeyId}:`})`),
          after === undefined ? undefined : gt(key, after),
        ),
      )
      .orderBy(asc(key))
      .limit(BATCH)
      .for('update', { skipLocked: true })) as T['$inferSelect'][];
    let count = 0;
    for (const row of rows) {
      const sealed = await resealed(vault, bindingOf(row), row.sealed ?? '');
      if (sealed === undefined) continue;
      await tx
        .update(any)
        .set({ sealed })
        .where(eq(key, keyOf(row)));
      count++;
    }
    const last = rows.at(-1);
    return { sealed: count, after: last && keyOf(last) };
  };
  return { table, rewrap: batch };
}

/** Returns undefined for a row that cannot be opened; its user will report that. */
async function resealed(vault: Vault, binding: Binding, sealed: string): Promise<string | undefined> {
  try {
    return await vault.seal(binding, await vault.open(binding, sealed));
  } catch (error) {
    if (error instanceof VaultError) return undefined;
    throw error;
  }
}
