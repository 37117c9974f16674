import { createInterface } from 'node:readline/promises';
import { addAbortSignal, Writable } from 'node:stream';
import { text as readText } from 'node:stream/consumers';
import { cleanText } from '../platform/sanitize.ts';

/** Returns JSON in which characters that a terminal would obey, or not show, are escaped: servers choose the texts. */
export const jsonLine = (value: unknown): string =>
  JSON.stringify(value).replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, character =>
    Array.from(
      { length: character.length },
      (_, at) => String.raw`\u` + character.charCodeAt(at).toString(16).padStart(4, '0'),
    ).join(''),
  );

/** Returns the noun as it follows the number: `1 server`, `2 servers`. */
export const plural = (count: number, noun: string): string => (count === 1 ? noun : `${noun}s`);

/** The streams of a command. What is written to a terminal is cleaned first: most of it comes from servers. */
export interface Io {
  /** Writes one or more lines to stdout: the result. */
  print(text: string): void;
  /** Writes a line to stderr: errors and notices. */
  complain(text: string): void;
  /** Replaces the last line of stderr; an empty text clears it. Undefined if stderr is not a terminal. */
  readonly status: ((text: string) => void) | undefined;
  /** Asks a question; what is typed is not shown if it is secret. Undefined where stdin or stderr is no terminal. */
  readonly ask: ((question: string, isSecret: boolean) => Promise<string>) | undefined;
  /** Reads stdin to its end. @param signal lets go of stdin */
  input(signal: AbortSignal): Promise<string>;
}

const ERASE_LINE = '\r\u001B[K';

export const processIo: Io = {
  print: text => void process.stdout.write(`${process.stdout.isTTY ? cleanText(text) : text}\n`),
  complain: text => void process.stderr.write(`${process.stderr.isTTY ? cleanText(text) : text}\n`),
  status: process.stderr.isTTY
    ? text => void process.stderr.write(`${ERASE_LINE}${text.slice(0, process.stderr.columns - 1)}`)
    : undefined,
  ask: process.stdin.isTTY && process.stderr.isTTY ? ask : undefined,
  input: signal => readText(addAbortSignal(signal, process.stdin)),
};

/** @throws Error when the user presses Ctrl-C */
async function ask(question: string, isSecret: boolean): Promise<string> {
  // As a terminal, the interface turns the terminal's own echo off; what it echoes itself goes nowhere.
  const output = isSecret ? new Writable({ write: (_chunk, _encoding, done) => done() }) : process.stderr;
  const lines = createInterface({ input: process.stdin, output, terminal: true });
  // Only now, as somebody, or a script, may answer at once.
  process.stderr.write(question);
  const left = new AbortController();
  lines.once('SIGINT', () => left.abort(new Error('Cancelled. Nothing was stored.')));
  lines.once('close', () => left.abort(new Error('Cancelled. Nothing was stored.')));
  try {
    return await lines.question('', { signal: left.signal });
  } catch {
    throw left.signal.reason;
  } finally {
    lines.close();
    if (isSecret) process.stderr.write('\n');
  }
}

/**
 * Returns rows as aligned columns. Names come from end users and identity providers, so characters that move
 * the cursor, colour the terminal or reverse text become question marks.
 */
export function table(cells: readonly (readonly string[])[]): string {
  const rows = cells.map(row => row.map(cell => cell.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, '?')));
  const widths = rows.reduce<number[]>(
    (max, row) => row.map((cell, at) => Math.max(max[at] ?? 0, cell.length)),
    [],
  );
  const line = (row: string[]) => row.map((cell, at) => cell.padEnd(widths[at] ?? 0)).join('  ');
  return rows.map(row => line(row).trimEnd()).join('\n');
}

const BAR_CELLS = 30;
/** The share of the work between two progress lines if stderr is not a terminal. */
const LINE_SHARE = 0.05;
/** The number of entries between two such lines if the total is unknown. */
const LINE_ENTRIES = 1_000;

export interface Progress {
  readonly done: number;
  readonly of: number;
}

export interface ProgressDisplay {
  /** Shows how many entries of a listing were read. */
  readonly listed: (entries: number) => void;
  readonly show: (progress: Progress) => void;
  /** Removes the progress bar. */
  readonly end: () => void;
}

interface ProgressOptions {
  /** Names the counted items, such as `texts embedded`. */
  readonly what?: string;
  /** The clock for the rate and the remaining time. */
  readonly nowMs?: () => number;
}

/** Shows progress: a count or a bar on a terminal, and occasional lines elsewhere. */
export function workProgress(
  io: Pick<Io, 'complain' | 'status'>,
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

/** @param rate per second; NaN before it is known */
function describe({ done, of }: Progress, rate: number, what: string): string {
  const counts = `${done} of ${of} ${what}`;
  if (!Number.isFinite(rate) || rate <= 0 || done === of) return counts;
  return `${counts}, ${rate.toFixed(0)}/s, ${duration((of - done) / rate)} left`;
}

const duration = (seconds: number) =>
  seconds < 90 ? `${Math.ceil(seconds)} s` : `${Math.ceil(seconds / 60)} min`;

function bar({ done, of }: Progress): string {
  const cells = Math.round((BAR_CELLS * done) / Math.max(of, 1));
  return `[${'#'.repeat(cells)}${'-'.repeat(BAR_CELLS - cells)}]`;
}
