import type { Config } from '../../../config/index.ts';
import type { Database } from '../../../platform/database/database.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import { keyFromFile } from './key-file.ts';
import { checkKeys, isSealed, keyIdOfCanary, WrongKeys } from './key-check.ts';
import { dropSealed } from './reset.ts';
import { Vault } from './vault.ts';

interface VaultOptions {
  readonly db: Database;
  readonly log: Log;
  readonly config: Config['identity'];
  readonly dataDir: string;
}

/**
 * With the keys of this database; where they are lost and the operator says so, with new ones and without what they sealed.
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
    log.warn(
      { err: error },
      'the old vault key is lost: what it sealed is dropped, and users must sign in again',
    );
    await dropSealed(db, vault);
    await checkKeys(db, vault);
  }
  return { vault, keks };
}

/**
 * The id of the key that a next start must have, once it is known that the keys given open the vault; undefined where nothing
 * is sealed yet.
 * @throws WrongKeys, KeyFileError
 */
export async function requireKeys({ db, log, config, dataDir }: VaultOptions): Promise<string | undefined> {
  if (!(await isSealed(db))) return undefined;
  const keks = config.keks ?? [await keyFromFile(dataDir, log, false)];
  await checkKeys(db, await Vault.create(keks));
  return keyIdOfCanary(db);
}
