import { randomBytes } from 'node:crypto';
import { readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';

const DAY_MS = 86_400_000;

/**
 * Returns a path to write to before it is renamed to `target`, in a folder that one process has at a time. Leftovers of dead
 * processes are deleted, as they may be large. One that cannot be deleted is in nobody's way, unless it has our process id.
 */
export async function asideOf(target: string): Promise<string> {
  await deleteWhere(target, /^(\d+)$/, pid => !isOfOther(pid));
  return `${target}.new-${process.pid}`;
}

/**
 * Returns such a path where other processes may write at the same time, also of other containers: there all have one process
 * id, or seem to be dead. So each has a name of its own, and only leftovers that are a day old are deleted.
 */
async function asideOfShared(target: string): Promise<string> {
  await deleteWhere(target, /^(\d+)-[0-9a-f]{16}$/, async (pid, file) => {
    const { mtimeMs } = await stat(file);
    return !isOfOther(pid) && Date.now() - mtimeMs > DAY_MS;
  });
  return `${target}.new-${process.pid}-${randomBytes(8).toString('hex')}`;
}

/**
 * Writes a file that only its owner can read. It takes its name when it is whole, in the place of one that had it.
 * @throws Error that names the file
 */
export async function writeWhole(file: string, text: string): Promise<void> {
  const aside = await asideOfShared(file);
  try {
    await writeFile(aside, text, { mode: 0o600, flag: 'wx', flush: true });
    await rename(aside, file);
  } catch (error) {
    await rm(aside, { force: true }).catch(() => {});
    throw new Error(`${file} cannot be written: ${(error as Error).message}`, { cause: error });
  }
}

/** @param named what follows `.new-`; its first group is the number of the process */
async function deleteWhere(
  target: string,
  named: RegExp,
  isLeft: (pid: number, file: string) => boolean | Promise<boolean>,
): Promise<void> {
  const start = `${path.basename(target)}.new-`;
  const folder = path.dirname(target);
  const names = await readdir(folder).catch(() => []);
  for (const name of names) {
    const pid = name.startsWith(start) ? named.exec(name.slice(start.length))?.[1] : undefined;
    if (pid === undefined) continue;
    const file = path.join(folder, name);
    try {
      if (await isLeft(Number(pid), file)) await rm(file, { recursive: true, force: true });
    } catch {
      // Gone meanwhile, or not ours to delete.
    }
  }
}

/** Tells whether another process has this id, be it another user's. */
function isOfOther(pid: number): boolean {
  if (pid === process.pid) return false;
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}
