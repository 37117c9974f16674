import { readFileSync } from 'node:fs';

/** The process, or the whole machine, has no file descriptor left. */
const OUT_OF_FILES: ReadonlySet<unknown> = new Set(['EMFILE', 'ENFILE']);

/** Returns whether an error says that no file or connection can be opened, because too many are open. */
export const isOutOfFiles = (error: unknown): boolean =>
  error instanceof Error && 'code' in error && OUT_OF_FILES.has(error.code);

/**
 * Returns how many files and connections this process may have open. Undefined if the system does not say (only Linux does) or
 * has no limit.
 * @param file for tests
 */
export function openFilesLimit(file = '/proc/self/limits'): number | undefined {
  try {
    // Soft limit, hard limit. Node raises the soft one to the hard one when it starts.
    const found = /^Max open files +(\d+)/m.exec(readFileSync(file, 'utf8'));
    return found ? Number(found[1]) : undefined;
  } catch {
    return undefined;
  }
}
