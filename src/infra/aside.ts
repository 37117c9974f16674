import { readdir, rm } from 'node:fs/promises';
import path from 'node:path';

/**
 * Where to write what is to be renamed to `target` once it is whole. What processes that are dead left there is deleted: it may
 * be large, and holds what the whole would. What cannot be deleted is in nobody's way, unless it has our own number.
 */
export async function asideOf(target: string): Promise<string> {
  const start = `${path.basename(target)}.new-`;
  const folder = path.dirname(target);
  const names = await readdir(folder).catch(() => []);
  for (const name of names) {
    const pid = name.startsWith(start) ? name.slice(start.length) : '';
    if (/^\d+$/.test(pid) && !isOfOther(Number(pid)))
      await rm(path.join(folder, name), { recursive: true, force: true }).catch(() => {});
  }
  return `${target}.new-${process.pid}`;
}

/** Whether another process has this number, which may be that of somebody else's. */
function isOfOther(pid: number): boolean {
  if (pid === process.pid) return false;
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}
