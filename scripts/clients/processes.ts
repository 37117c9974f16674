import { spawn, type ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';

export interface ChildOptions {
  readonly cwd?: string;
  /** The whole of its environment. Default: that of this process. */
  readonly env?: NodeJS.ProcessEnv;
}

/** A process with all those it starts. Disposing kills them. */
export interface Child extends AsyncDisposable {
  /** Writes a line to its stdin. */
  write(line: string): void;
  /** Ends its stdin. */
  close(): void;
  /** Resolves to the next line of its stdout. Rejects when it ends without one. */
  line(): Promise<string>;
  /** Resolves to its exit code, or null after a signal. */
  readonly ended: Promise<number | null>;
  /** The end of all it has written so far, for a person to read. */
  output(): string;
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
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return {
    write: line => void child.stdin.write(`${line}\n`),
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
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // It has ended, and all it started too.
  }
}
