import type { Progress } from './admin-client.ts';
import type { Io } from './io.ts';

const BAR_CELLS = 30;
/** Lines in the place of a bar: one for each such share. */
const LINE_SHARE = 0.05;
/** The same where it is not known how many there are. */
const LINE_ENTRIES = 1_000;

export interface ProgressDisplay {
  /** How many entries of a listing have been read. */
  readonly listed: (entries: number) => void;
  /** How far what is counted is. */
  readonly show: (progress: Progress) => void;
  /** Takes the bar away. */
  readonly end: () => void;
}

interface ProgressOptions {
  /** What is counted, and done. */
  readonly what?: string;
  /** For the rate and the time left. */
  readonly nowMs?: () => number;
}

/** How far long work is: a count or a bar on a terminal, a line now and then elsewhere. */
export function workProgress(
  io: Io,
  { what = 'texts embedded', nowMs = () => performance.now() }: ProgressOptions = {},
): ProgressDisplay {
  let first: { readonly atMs: number; readonly done: number } | undefined;
  let lines = 0;
  let nextListed = 0;
  return {
    listed: entries => {
      const text = `${entries} entries read`;
      if (io.status) io.status(text);
      else if (entries >= nextListed) {
        io.complain(text);
        nextListed = entries + LINE_ENTRIES;
      }
    },
    show: progress => {
      first ??= { atMs: nowMs(), done: progress.done };
      const rate = (progress.done - first.done) / ((nowMs() - first.atMs) / 1000);
      const text = describe(progress, rate, what);
      if (io.status) {
        io.status(`${bar(progress)} ${text}`);
        return;
      }
      const share = progress.of === 0 ? 1 : progress.done / progress.of;
      if (share < lines * LINE_SHARE) return;
      lines = Math.floor(share / LINE_SHARE) + 1;
      io.complain(text);
    },
    end: () => io.status?.(''),
  };
}

/** @param rate a second; not a number before there is one */
function describe({ done, of }: Progress, rate: number, what: string): string {
  const counts = `${done} of ${of} ${what}`;
  if (!Number.isFinite(rate) || rate <= 0 || done === of) return counts;
  return `${counts}, ${rate.toFixed(0)} a second, ${duration((of - done) / rate)} left`;
}

const duration = (seconds: number) =>
  seconds < 90 ? `${Math.ceil(seconds)} s` : `${Math.ceil(seconds / 60)} min`;

function bar({ done, of }: Progress): string {
  const cells = Math.round((BAR_CELLS * done) / Math.max(of, 1));
  return `[${'#'.repeat(cells)}${'-'.repeat(BAR_CELLS - cells)}]`;
}
