import { readFileSync, writeFileSync } from 'node:fs';

/** Resident memory of a process, in MiB. */
export interface Memory {
  readonly rssMib: number;
  /** The highest since the start, or since `resetPeak`. */
  readonly peakMib: number;
}

export function memoryOf(pid: number): Memory {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const mib = (field: string) => Number(new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm').exec(status)?.[1]) / 1024;
  return { rssMib: mib('VmRSS'), peakMib: mib('VmHWM') };
}

/** Makes the kernel measure the peak (VmHWM) from now on. */
export const resetPeak = (pid: number): void => writeFileSync(`/proc/${pid}/clear_refs`, '5');
