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
import { authSessions, connections, refreshTokens, revocationOutbox, signingKeys } from '../schema.ts';
import { keyIdOf, Vault, VaultError, type Binding } from './vault.ts';

const KEY_FILE = 'vault.key';
/** A sealed word in the database tells wrong keys from right ones before anything is served. */
const CANARY = 'vault_canary';
const CANARY_TEXT = 'these are the keys of this database';
const canaryBinding: Binding = { table: 'settings', tenantId: '', userId: '', id: CANARY, purpose: 'canary' };

/** The keys given are not those that sealed this database: starting would make every token in it useless. */
export class WrongKeys extends Error {
  override readonly name = 'WrongKeys';
}

/** The key file cannot be used. The message says why, and never what is in it. */
export class KeyFileError extends Error {
  override readonly name = 'KeyFileError';
}

/** The database is sealed, and there is no key file. */
export class KeyFileMissing extends KeyFileError {}

interface VaultOptions {
  readonly db: Database;
  readonly log: Log;
  readonly config: Config['identity'];
  readonly dataDir: string;
}

/**
 * Opens the vault with the keys of this database. Where they are lost and the operator says so, it begins with new keys and
 * drops what the old ones sealed.
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
    log.warn({ err: error }, 'dropped what the lost vault key had sealed: users must sign in again');
    await dropSealed(db, vault);
    await checkKeys(db, vault);
  }
  return { vault, keks };
}

/**
 * Checks that the configured keys open the vault. Returns the id of the key that a next start must have; undefined where nothing
 * is sealed yet.
 * @throws WrongKeys, KeyFileError
 */
export async function requireKeys({ db, log, config, dataDir }: VaultOptions): Promise<string | undefined> {
  if (!(await isSealed(db))) return undefined;
  const keks = config.keks ?? [await keyFromFile(dataDir, log, false)];
  await checkKeys(db, await Vault.create(keks));
  return keyIdOfCanary(db);
}

/** Returns whether a key has sealed this database before. */
export const isSealed = async (db: Database): Promise<boolean> =>
  (await readSetting(db, CANARY)) !== undefined;

/** Returns the id of the key that the next start must have. */
export const keyIdOfCanary = async (db: Database): Promise<string> =>
  keyIdOf((await readSetting(db, CANARY)) ?? '');

/** Seals the canary anew, once nothing else needs the old key. */
export const renewCanary = async (db: Database, vault: Vault): Promise<void> =>
  writeSetting(db, CANARY, await vault.seal(canaryBinding, CANARY_TEXT));

/** Makes the canary at the first start, and opens it at all others. @throws WrongKeys */
async function checkKeys(db: Database, vault: Vault): Promise<void> {
  const canary = await claimSetting(db, CANARY, await vault.seal(canaryBinding, CANARY_TEXT));
  try {
    await vault.open(canaryBinding, canary);
  } catch (cause) {
    if (!(cause instanceof VaultError)) throw cause;
    throw new WrongKeys(
      `the vault of this database was sealed with the key ${JSON.stringify(keyIdOf(canary))}, which is missing or different here. Add it, or, if it is lost, see SWITCHBOARD_VAULT_RESET in docs/identity.md`,
      { cause },
    );
  }
}

/**
 * Drops everything that a lost key has sealed, so that a new key can begin. Connections must be made again, and sign-ins under way
 * end. Providers are not told of tokens that can no longer be read. Identity tokens end with their signing keys, until they
 * are refreshed. Users, refresh tokens, API keys and the catalogue stay.
 */
async function dropSealed(db: Database, vault: Vault): Promise<void> {
  await db.transaction(async tx => {
    const canary = await readSetting(tx, CANARY, { lock: true });
    const opened = await vault.open(canaryBinding, canary ?? '').catch(() => undefined);
    // Another process has begun anew with these keys meanwhile.
    if (opened !== undefined) return;
    await deleteSetting(tx, CANARY);
    const noReplay = { replaySealed: null, replayUntil: null };
    await tx.update(connections).set(withoutTokens()).where(isNotNull(connections.sealed));
    await tx
      .update(authSessions)
      .set({ status: 'error', errorCode: 'interrupted', finishedAt: sql`now()`, sealed: null })
      .where(isNotNull(authSessions.sealed));
    await tx.update(authSessions).set(noReplay).where(isNotNull(authSessions.replaySealed));
    await tx.update(refreshTokens).set(noReplay).where(isNotNull(refreshTokens.replaySealed));
    await tx.delete(revocationOutbox);
    await tx.delete(signingKeys);
  });
}

/**
 * Returns the embedded default for the key-encryption key: a file in the data folder that only its owner can read, made at the
 * first start. It lies beside the data it protects: good against a copied database, not against a copied folder.
 * @param mayCreate false where something is sealed already: a new key would open none of it
 * @throws KeyFileError
 */
async function keyFromFile(dataDir: string, log: Log, mayCreate: boolean): Promise<Kek> {
  const file = path.join(dataDir, KEY_FILE);
  const existing = await readKeyFile(file);
  if (existing !== undefined) return existing;
  if (!mayCreate)
    throw new KeyFileMissing(
      `${file} is missing, and the database was sealed with a key. Restore the file from a copy, or set SWITCHBOARD_KEKS as it was. If both are lost, see SWITCHBOARD_VAULT_RESET in docs/identity.md`,
    );
  const text = `k1:${randomBytes(32).toString('base64')}\n`;
  // Written aside and renamed when whole: a kill half-way leaves no half key. The data folder's lock is held.
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
    'made a key for the token vault in the data folder: keep a copy of it; for production set SWITCHBOARD_KEKS',
  );
  return parseKey(text, file);
}

async function readKeyFile(file: string): Promise<Kek | undefined> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
    const { mode } = await stat(file);
    if ((mode & 0o077) !== 0)
      throw new KeyFileError(`${file} can be read by others: chmod 600 it, and consider its key known`);
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
      `${file} is damaged; restore it from a copy, or, if there is none, move it away and see SWITCHBOARD_VAULT_RESET in docs/identity.md`,
    );
  return { id: match[1], key: new Uint8Array(key) };
}
