import { randomBytes } from 'node:crypto';
import { readdirSync, rmSync, statSync } from 'node:fs';
import { rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';

const DAY_MS = 86_400_000;

/**
 * Returns a temporary path to write to before renaming it to `target`, in a folder that only one process uses. Leftovers of
 * dead processes are deleted, because they may be large. Other leftovers do no harm unless they have our process id.
 */
export function asideOf(target: string): string {
  deleteWhere(target, /^(\d+)$/, pid => !isOfOther(pid));
  return `${target}.new-${process.pid}`;
}

/**
 * Returns such a path if other processes may write at the same time, even in other containers, where process
 * ids may collide. Each path is therefore unique, and only leftovers older than a day are deleted.
 */
function asideOfShared(target: string): string {
  const isOld = (file: string) => Date.now() - statSync(file).mtimeMs > DAY_MS;
  deleteWhere(target, /^(\d+)-[0-9a-f]{16}$/, (pid, file) => !isOfOther(pid) && isOld(file));
  return `${target}.new-${process.pid}-${randomBytes(8).toString('hex')}`;
}

/**
 * Writes a file that only its owner can read. It is renamed when it is complete and replaces an existing file.
 * @throws Error that names the file
 */
export async function writeWhole(file: string, text: string): Promise<void> {
  const aside = asideOfShared(file);
  try {
    await writeFile(aside, text, { mode: 0o600, flag: 'wx', flush: true });
    await rename(aside, file);
  } catch (error) {
    await rm(aside, { force: true }).catch(() => {});
    throw new Error(`${file} cannot be written: ${(error as Error).message}`, { cause: error });
  }
}

/** @param named a pattern for the part after `.new-`; its first group is the process id */
function deleteWhere(target: string, named: RegExp, isLeft: (pid: number, file: string) => boolean): void {
  const start = `${path.basename(target)}.new-`;
  const folder = path.dirname(target);
  for (const name of namesIn(folder)) {
    const pid = name.startsWith(start) ? named.exec(name.slice(start.length))?.[1] : undefined;
    if (pid === undefined) continue;
    const file = path.join(folder, name);
    try {
      if (isLeft(Number(pid), file)) rmSync(file, { recursive: true, force: true });
    } catch {
      // Already deleted, or not ours to delete.
    }
  }
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    // Writing there will say why.
    return [];
  }
}

/** Returns whether another process has this id, even one of another user. */
function isOfOther(pid: number): boolean {
  if (pid === process.pid) return false;
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}
