import { randomBytes } from 'node:crypto';
import { open, readFile, rename, stat } from 'node:fs/promises';
import path from 'node:path';
import { isNotNull, sql } from 'drizzle-orm';
import type { Config, Kek } from '../../../config/index.ts';
import type { Database } from '../../../platform/database/database.ts';
import {
  claimSetting,
  deleteSetting,
  readSetting,
  writeSetting,
} from '../../../platform/database/settings.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import { withoutTokens } from '../connections/connections.ts';
import {
  authorizationRecords,
  authSessions,
  connections,
  oauthClients,
  refreshTokens,
  revocationOutbox,
  signingKeys,
} from '../schema.ts';
import { Events } from '../webhooks/events.ts';
import { webhookSecrets } from '../webhooks/schema.ts';
import { keyIdOf, Vault, VaultError, type Binding } from './vault.ts';

const KEY_FILE = 'vault.key';
/** A sealed word in the database that detects wrong keys before anything is served. */
const CANARY = 'vault_canary';
const CANARY_TEXT = 'these are the keys of this database';
const canaryBinding: Binding = { table: 'settings', tenantId: '', userId: '', id: CANARY, purpose: 'canary' };

/** The keys do not match this database: starting would make every token in it useless. */
export class WrongKeys extends Error {
  override readonly name = 'WrongKeys';
}

/** The key file is unusable. The message says why, and never contains the key. */
export class KeyFileError extends Error {
  override readonly name = 'KeyFileError';
}

/** The vault has sealed data, but there is no key file. */
export class KeyFileMissing extends KeyFileError {}

interface VaultOptions {
  readonly db: Database;
  readonly log: Log;
  readonly config: Config['identity'];
  readonly dataDir: string;
}

/**
 * Opens the vault with the keys of this database. If they are lost and the operator says so, it starts with new keys and
 * deletes what the old ones sealed.
 * @throws WrongKeys, KeyFileError
 */
export async function openVault({ db, log, config, dataDir }: VaultOptions) {
  const mayLose = config.mayLoseStoredTokens;
  const keks = config.keks ?? [await keyFromFile(dataDir, log, mayLose || !(await isSealed(db)))];
  const vault = await Vault.create(keks);
  try {
    await checkKeys(db, vault);
  } catch (error) {
    if (!mayLose || !(error instanceof WrongKeys)) throw error;
    log.warn({ err: error }, 'deleted all data encrypted with the lost vault key: users must sign in again');
    await dropSealed(db, vault);
    await checkKeys(db, vault);
  }
  return { vault, keks };
}

/**
 * Checks that the configured keys open the vault. Returns the id of the key that the next start requires; undefined if
 * nothing is sealed yet.
 * @throws WrongKeys, KeyFileError
 */
export async function requireKeys({ db, log, config, dataDir }: VaultOptions): Promise<string | undefined> {
  if (!(await isSealed(db))) return undefined;
  const keks = config.keks ?? [await keyFromFile(dataDir, log, false)];
  await checkKeys(db, await Vault.create(keks));
  return keyIdOfCanary(db);
}

/** Returns whether a key has already sealed data in this database. */
export const isSealed = async (db: Database): Promise<boolean> =>
  (await readSetting(db, CANARY)) !== undefined;

/** Returns the id of the key that the next start requires. */
export const keyIdOfCanary = async (db: Database): Promise<string> =>
  keyIdOf((await readSetting(db, CANARY)) ?? '');

/** Seals the canary with the new key, once nothing else needs the old one. */
export const renewCanary = async (db: Database, vault: Vault): Promise<void> =>
  writeSetting(db, CANARY, await vault.seal(canaryBinding, CANARY_TEXT));

/** Creates the canary at the first start, and opens it at all others. @throws WrongKeys */
async function checkKeys(db: Database, vault: Vault): Promise<void> {
  const canary = await claimSetting(db, CANARY, await vault.seal(canaryBinding, CANARY_TEXT));
  try {
    await vault.open(canaryBinding, canary);
  } catch (cause) {
    if (!(cause instanceof VaultError)) throw cause;
    throw new WrongKeys(
      `this database's vault was encrypted with the key ${JSON.stringify(keyIdOf(canary))}, which is missing or different here. Add the key, or, if it is lost, see SWITCHBOARD_VAULT_RESET in docs/identity.md`,
      { cause },
    );
  }
}

/**
 * Deletes everything sealed with a lost key, so that a new key can be used. Connections must be renewed, and pending sign-ins
 * end. Providers are not notified about tokens that can no longer be read. Identity tokens become invalid with their signing
 * keys, until they are refreshed; webhooks need a new secret. Users, refresh tokens, API keys and the catalogue stay.
 */
async function dropSealed(db: Database, vault: Vault): Promise<void> {
  await db.transaction(async tx => {
    const canary = await readSetting(tx, CANARY, { lock: true });
    const opened = await vault.open(canaryBinding, canary ?? '').catch(() => undefined);
    // Another process has already reset the vault with these keys.
    if (opened !== undefined) return;
    await deleteSetting(tx, CANARY);
    const noReplay = { replaySealed: null, replayUntil: null };
    const ended = await tx
      .update(connections)
      .set(withoutTokens())
      .where(isNotNull(connections.sealed))
      .returning();
    const events = new Events(() => {});
    for (const row of ended)
      await events.connection(tx, row, { event: 'needs_reauth', reason: 'vault_reset' });
    await tx
      .update(authSessions)
      .set({ status: 'error', errorCode: 'interrupted', finishedAt: sql`now()`, sealed: null })
      .where(isNotNull(authSessions.sealed));
    await tx.update(authSessions).set(noReplay).where(isNotNull(authSessions.replaySealed));
    await tx.update(refreshTokens).set(noReplay).where(isNotNull(refreshTokens.replaySealed));
    await tx.delete(revocationOutbox);
    await tx.delete(oauthClients);
    await tx.delete(signingKeys);
    await tx.delete(authorizationRecords);
    await tx.delete(webhookSecrets);
  });
}

/**
 * Returns the default key-encryption key of the embedded database: a file in the data folder that only its owner can read,
 * created at the first start. It is stored next to the data it protects, so it protects against a copied database but not
 * against a copied folder.
 * @param mayCreate false if something is already sealed: a new key could not open it
 * @throws KeyFileError
 */
async function keyFromFile(dataDir: string, log: Log, mayCreate: boolean): Promise<Kek> {
  const file = path.join(dataDir, KEY_FILE);
  const existing = await readKeyFile(file);
  if (existing !== undefined) return existing;
  if (!mayCreate)
    throw new KeyFileMissing(
      `${file} is missing, but the vault of the database was encrypted with a key. Restore the file from a backup, or set SWITCHBOARD_KEKS to its original value. If both are lost, see SWITCHBOARD_VAULT_RESET in docs/identity.md`,
    );
  const text = `k1:${randomBytes(32).toString('base64')}\n`;
  // Written to a temporary file and renamed when complete, so that a kill leaves no partial key. The data folder's lock is held.
  const aside = `${file}.new-${process.pid}`;
  const handle = await open(aside, 'w', 0o600);
  try {
    await handle.writeFile(text);
    await handle.sync();
  } finally {
    await handle.close();
  }
  await rename(aside, file);
  log.warn(
    { file },
    'created a key for the token vault in the data folder: back it up; for production, set SWITCHBOARD_KEKS',
  );
  return parseKey(text, file);
}

async function readKeyFile(file: string): Promise<Kek | undefined> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
    const { mode } = await stat(file);
    if ((mode & 0o077) !== 0)
      throw new KeyFileError(
        `${file} can be read by others: run chmod 600 on it, and treat its key as compromised`,
      );
  } catch (error) {
    if (error instanceof KeyFileError) throw error;
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unreadable';
    if (code === 'ENOENT') return undefined;
    throw new KeyFileError(`${file} cannot be read (${code})`);
  }
  return parseKey(text, file);
}

function parseKey(text: string, file: string): Kek {
  const match = /^([a-z0-9_-]+):([A-Za-z0-9+/]+={0,2})\s*$/.exec(text);
  const key = Buffer.from(match?.[2] ?? '', 'base64');
  if (!match?.[1] || key.length !== 32)
    throw new KeyFileError(
      `${file} is damaged; restore it from a backup, or, if there is none, move it away and see SWITCHBOARD_VAULT_RESET in docs/identity.md`,
    );
  return { id: match[1], key: new Uint8Array(key) };
}
