import { spawn, type ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { stripVTControlCharacters } from 'node:util';

export interface ChildOptions {
  readonly cwd?: string;
  /** The whole of its environment. Default: that of this process. */
  readonly env?: NodeJS.ProcessEnv;
}

/** A process with all those it starts. Disposing kills them. */
export interface Child extends AsyncDisposable {
  /** Writes a line to its stdin. */
  write(line: string): void;
  /** Types into its terminal. */
  type(text: string): void;
  /** Resolves to the first match in what it writes from now on, without what colours it. Rejects when it ends without one. */
  said(pattern: RegExp): Promise<string>;
  /** Ends its stdin. */
  close(): void;
  /** Resolves to the next line of its stdout. Rejects when it ends without one. */
  line(): Promise<string>;
  /** Resolves to its exit code, or null after a signal. */
  readonly ended: Promise<number | null>;
  /** The end of all it has written so far, for a person to read. */
  output(): string;
}

const RUN_MS = 60_000;

/** Runs a command to its end. @throws Error with what it has written, if it fails or takes more than a minute */
export async function runToItsEnd(
  [program, ...args]: readonly [string, ...string[]],
  options: ChildOptions,
): Promise<void> {
  await using child = startChild(program, args, options);
  child.close();
  const code = await unlessAborted(AbortSignal.timeout(RUN_MS), child.ended).catch(() => 'no end');
  if (code !== 0) throw new Error(`${program} ${args.join(' ')}: ${code}: ${child.output()}`);
}

const KEPT_OUTPUT_CHARS = 2_000;

export function startChild(command: string, args: readonly string[], options: ChildOptions = {}): Child {
  // A group of its own, so that what it starts can be killed with it.
  const child = spawn(command, args, { ...options, stdio: 'pipe', detached: true });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => (output = (output + chunk.toString()).slice(-KEPT_OUTPUT_CHARS)));
  const ended = new Promise<number | null>(resolve => {
    child.once('close', resolve);
    child.once('error', error => {
      output += error.message;
      resolve(null);
    });
  });
  child.stdin.on('error', () => {});
  const said = async (pattern: RegExp) => {
    let heard = '';
    const found = Promise.withResolvers<string>();
    const hear = (chunk: Buffer) => {
      heard += chunk.toString();
      const [match] = pattern.exec(stripVTControlCharacters(heard)) ?? [];
      if (match !== undefined) found.resolve(match);
    };
    child.stdout.on('data', hear);
    void ended.then(() => found.reject(new Error(`${command} ended without ${pattern}: ${output.trim()}`)));
    try {
      const bounded = AbortSignal.timeout(RUN_MS);
      bounded.addEventListener('abort', () => {
        found.reject(new Error(`${command} has not written ${pattern}: ${stripVTControlCharacters(output)}`));
      });
      return await found.promise;
    } finally {
      child.stdout.off('data', hear);
    }
  };
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return {
    write: line => void child.stdin.write(`${line}\n`),
    type: text => void child.stdin.write(text),
    said,
    close: () => void child.stdin.end(),
    async line() {
      const { value, done } = await lines.next();
      if (done === true) throw new Error(`${command} ended: ${output.trim()}`);
      return value;
    },
    ended,
    output: () => output.trim(),
    async [Symbol.asyncDispose]() {
      killGroup(child);
      await ended;
    },
  };
}

/** Resolves or rejects as the promise does, but rejects once the signal is aborted. */
export async function unlessAborted<T>(signal: AbortSignal, promise: Promise<T>): Promise<T> {
  const aborted = Promise.withResolvers<never>();
  const abort = () => aborted.reject(signal.reason as Error);
  if (signal.aborted) abort();
  signal.addEventListener('abort', abort, { once: true });
  try {
    return await Promise.race([promise, aborted.promise]);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}

function killGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return;
  for (const group of [...childrenOf(pid), pid]) {
    try {
      process.kill(-group, 'SIGKILL');
    } catch {
      // It has ended, and all it started too; or it is in the group of its parent.
    }
  }
}

/** What runs in a terminal has a group of its own, and does not end with what has opened the terminal. */
function childrenOf(pid: number): number[] {
  try {
    return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8')
      .trim()
      .split(' ')
      .map(Number)
      .filter(Boolean);
  } catch {
    return [];
  }
}
