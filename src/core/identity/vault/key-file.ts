import { randomBytes } from 'node:crypto';
import { open, readFile, rename, stat } from 'node:fs/promises';
import path from 'node:path';
import type { Kek } from '../../../config/index.ts';
import type { Log } from '../../../platform/telemetry/log.ts';

const FILE = 'vault.key';

/** The key file cannot be used. The message says why, and never what is in it. */
export class KeyFileError extends Error {
  override readonly name = 'KeyFileError';
}

/**
 * The embedded default for the key-encryption key: a file in the data folder that only its owner can read, made at the
 * first start. It lies beside the data it protects: good against a copied database, not against a copied folder.
 * @param mayCreate false where something is sealed already: a new key would open none of it.
 * @throws KeyFileError
 */
export async function keyFromFile(dataDir: string, log: Log, mayCreate: boolean): Promise<Kek> {
  const file = path.join(dataDir, FILE);
  const existing = await readIfThere(file);
  if (existing !== undefined) return existing;
  if (!mayCreate)
    throw new KeyFileError(
      `${file} is missing, and the database was sealed with it; restore it from a copy, or, if there is none, see SWITCHBOARD_VAULT_RESET in the README`,
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
  return parse(text, file);
}

async function readIfThere(file: string): Promise<Kek | undefined> {
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
  return parse(text, file);
}

function parse(text: string, file: string): Kek {
  const match = /^([a-z0-9_-]+):([A-Za-z0-9+/]+={0,2})\s*$/.exec(text);
  const key = Buffer.from(match?.[2] ?? '', 'base64');
  if (!match?.[1] || key.length !== 32)
    throw new KeyFileError(
      `${file} is damaged; restore it from a copy, or, if there is none, move it away and see SWITCHBOARD_VAULT_RESET in the README`,
    );
  return { id: match[1], key: new Uint8Array(key) };
}
