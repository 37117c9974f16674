import { eq } from 'drizzle-orm';
import type { Database } from '../../../platform/database/database.ts';
import { settings } from '../../../platform/database/schema.ts';
import { keyIdOf, VaultError, type Binding, type Vault } from './vault.ts';

const CANARY = 'vault_canary';
const CANARY_TEXT = 'these are the keys of this database';
const canaryBinding: Binding = { table: 'settings', tenantId: '', userId: '', id: CANARY, purpose: 'canary' };

/** The keys given are not those that sealed this database: starting would make every token in it useless. */
export class WrongKeys extends Error {
  override readonly name = 'WrongKeys';
}

/** Whether the database has been sealed with a key before. */
export async function isSealed(db: Database): Promise<boolean> {
  const rows = await db.select({ key: settings.key }).from(settings).where(eq(settings.key, CANARY));
  return rows.length > 0;
}

/**
 * A sealed word in the database tells wrong keys from right ones before anything is served; it is made at the first start.
 * @throws WrongKeys
 */
export async function checkKeys(db: Database, vault: Vault): Promise<void> {
  const canary = await vault.seal(canaryBinding, CANARY_TEXT);
  await db.insert(settings).values({ key: CANARY, value: canary }).onConflictDoNothing();
  const [row] = await db.select().from(settings).where(eq(settings.key, CANARY));
  try {
    await vault.open(canaryBinding, row?.value ?? '');
  } catch (cause) {
    if (!(cause instanceof VaultError)) throw cause;
    throw new WrongKeys(
      `the vault of this database was sealed with the key ${JSON.stringify(keyIdOf(row?.value ?? ''))}, which is missing or different here. Add it, or, if it is lost, see SWITCHBOARD_VAULT_RESET in the README`,
      { cause },
    );
  }
}

/** Seals the word anew, once nothing else needs the old key. */
export async function renewCanary(db: Database, vault: Vault): Promise<void> {
  const canary = await vault.seal(canaryBinding, CANARY_TEXT);
  await db.update(settings).set({ value: canary }).where(eq(settings.key, CANARY));
}

/** Forgets it unless these keys open it by now, because another process began anew: false then. Locks it until the end. */
export async function forgetCanary(tx: Database, vault: Vault): Promise<boolean> {
  const [canary] = await tx.select().from(settings).where(eq(settings.key, CANARY)).for('update');
  const isNew = await vault.open(canaryBinding, canary?.value ?? '').then(
    () => true,
    () => false,
  );
  if (!isNew) await tx.delete(settings).where(eq(settings.key, CANARY));
  return !isNew;
}

/** Which key the next start must have. */
export async function keyIdOfCanary(db: Database): Promise<string> {
  const [canary] = await db.select().from(settings).where(eq(settings.key, CANARY));
  return keyIdOf(canary?.value ?? '');
}
