import { spawn, type ChildProcessByStdio } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, openSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import type { Readable } from 'node:stream';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';

/** The real program as a user runs it. This file and its users import nothing from src. */
const PROGRAM = path.resolve('bin/switchboard.js');

/** Halves the processor time of a start: Node keeps the sources without their types. */
const COMPILE_CACHE = path.resolve('node_modules/.cache/switchboard/compiled');

/** As the tests themselves run (vitest.config.ts): WebAssembly is not optimised. Benchmarks do not have it. */
const NODE_OPTIONS = process.execArgv.filter(option => option === '--liftoff-only');

/** A signal that arrives sooner after the first one counts as the same, which npm has passed on. With the error of a timer. */
export const SAME_SIGNAL_MS = 1_000 + 100;

export interface Finished {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Program extends AsyncDisposable {
  readonly url: string;
  readonly pid: number;
  /** The lines printed before it was serving. */
  readonly printed: readonly string[];
  /** Ends it with the signal and waits; the exit code, or null after SIGKILL. */
  stop(signal?: 'SIGTERM' | 'SIGINT' | 'SIGKILL'): Promise<number | null>;
  ready(): Promise<void>;
}

type Environment = Readonly<Record<string, string>>;

const environment = (env: Environment) => {
  const inherited = Object.entries(process.env).filter(
    ([name]) =>
      !/^(SWITCHBOARD_|GOOGLE_|OPENAI_|EMBEDDING_|MEILISEARCH_|DATABASE_|OTEL_|(PORT|HOST|PUBLIC_URL|LOG_LEVEL|LOG_FORMAT|REDIS_URL|NODE_ENV)$)/.test(
        name,
      ),
  );
  return { ...Object.fromEntries(inherited), LOG_LEVEL: 'warn', NODE_COMPILE_CACHE: COMPILE_CACHE, ...env };
};

/** Removed when disposed, also if a program that has just been killed still writes its last file there. */
export function temporaryFolder(): AsyncDisposable & { readonly path: string } {
  const folder = mkdtempSync(path.join(tmpdir(), 'sb-'));
  const remove = () => rm(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 });
  return { path: folder, [Symbol.asyncDispose]: remove };
}

/** Runs one command to its end. @param program that of another version */
export async function run(args: readonly string[], env: Environment, program = PROGRAM): Promise<Finished> {
  const child = spawn(process.execPath, [...NODE_OPTIONS, program, ...args], {
    env: environment(env),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const output = { stdout: '', stderr: '' };
  child.stdout.on('data', (chunk: Buffer) => (output.stdout += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (output.stderr += chunk.toString()));
  const [code] = (await once(child, 'close')) as [number | null];
  return { code, ...output };
}

export interface Running extends AsyncDisposable {
  readonly pid: number;
  /** The first match in what it has written to stderr, as soon as there is one. Rejects when it ends without one. */
  complaint(pattern: RegExp): Promise<RegExpExecArray>;
  kill(signal?: 'SIGKILL' | 'SIGINT' | 'SIGTERM'): void;
  /** Sends it and its children SIGINT, as Ctrl-C does; only where it has a group of its own. */
  interruptGroup(): void;
  readonly finished: Promise<Finished>;
}

/** Begins one command. @param ownGroup in a process group of its own */
export function begin(args: readonly string[], env: Environment, { ownGroup = false } = {}): Running {
  const child = spawn(process.execPath, [...NODE_OPTIONS, PROGRAM, ...args], {
    env: environment(env),
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: ownGroup,
  });
  const output = { stdout: '', stderr: '' };
  child.stdout.on('data', (chunk: Buffer) => (output.stdout += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (output.stderr += chunk.toString()));
  const finished = once(child, 'close').then(([code]) => ({ code: code as number | null, ...output }));
  const complaint = async (pattern: RegExp) => {
    for (;;) {
      const found = pattern.exec(output.stderr);
      if (found) return found;
      const more = once(child.stderr, 'data').then(() => true);
      if (!(await Promise.race([more, finished.then(() => false)])))
        throw new Error(`it ended without ${pattern}:\n${output.stderr}`);
    }
  };
  return {
    pid: child.pid ?? 0,
    complaint,
    kill: (signal = 'SIGKILL') => void child.kill(signal),
    interruptGroup: () => void process.kill(-(child.pid ?? Number.NaN), 'SIGINT'),
    finished,
    async [Symbol.asyncDispose]() {
      child.kill('SIGKILL');
      await finished;
    },
  };
}

/**
 * Starts the server and waits for its `Listening on` line. Without a file for it, its log is kept in memory.
 * @param program that of another version
 * @param maxFiles its limit of open files
 */
export async function serve(
  env: Environment,
  logFile?: string,
  program = PROGRAM,
  maxFiles: number | 'unchanged' = 'unchanged',
): Promise<Program> {
  const limited = maxFiles === 'unchanged' ? [] : ['sh', '-c', `ulimit -n ${maxFiles}; exec "$0" "$@"`];
  const [command, ...args] = [...limited, process.execPath, ...NODE_OPTIONS, program];
  const child = spawn(command, args, {
    env: environment({ PORT: '0', ...env }),
    stdio: ['ignore', 'pipe', logFile === undefined ? 'pipe' : openSync(logFile, 'w')],
  }) as ChildProcessByStdio<null, Readable, Readable | null>;
  let stderr = '';
  child.stderr?.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
  const exited = once(child, 'exit') as Promise<[number | null]>;
  const printed: string[] = [];
  const lines = createInterface({ input: child.stdout });
  const listening = new Promise<string>(resolve => {
    lines.on('line', line => {
      printed.push(line);
      // The introduction ends with the MCP client's line.
      if (line.includes('mcpServers')) resolve(/^Listening on (\S+)$/m.exec(printed.join('\n'))?.[1] ?? '');
    });
  });
  const died = exited.then(([code]) => {
    throw new Error(`switchboard ended with ${code} before it served:\n${stderr}`);
  });
  const url = await Promise.race([listening, died]);
  died.catch(() => {});
  const stop = async (signal: NodeJS.Signals = 'SIGTERM') => {
    child.kill(signal);
    return (await exited)[0];
  };
  return {
    url,
    pid: child.pid ?? 0,
    printed,
    stop,
    ready: () => untilReady(url),
    async [Symbol.asyncDispose]() {
      if (child.exitCode === null && child.signalCode === null) await stop('SIGKILL');
    },
  };
}

async function untilReady(url: string): Promise<void> {
  for (let attempt = 0; attempt < 3_000; attempt++) {
    if ((await fetch(`${url}/readyz`)).status === 200) return;
    await delay(20);
  }
  throw new Error('not ready after a minute');
}
