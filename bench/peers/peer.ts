import { execFile as execFileWithCallback, spawn, type ChildProcess } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { mkdir, readFile } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { temporaryFolder } from '../../test/support/program.ts';
import { post, processTree, type Load } from '../load.ts';

const INSTALL_MINUTES = 15;
const START_SECONDS = 90;
const STOP_SECONDS = 5;
const execFile = promisify(execFileWithCallback);

type Request = Pick<Load, 'url' | 'headers' | 'body'>;

/** Another gateway in front of the same upstream. */
export interface Peer {
  /** The name of its folder. */
  readonly id: string;
  readonly name: string;
  /** The version that is installed by `install`. */
  readonly version: string;
  /** The endpoint and the settings it is measured with. */
  readonly how: string;
  /** Installs it into a folder of its own. */
  install(folder: string): Promise<void>;
  /** Returns the version that is in the folder. Rejects when there is none. */
  installed(folder: string): Promise<string>;
  /** Writes its configuration into the work folder and returns the command that serves on the port of 127.0.0.1. */
  command(setting: Setting): Promise<Command>;
  /** Returns the call of `echo`. It is asked again while it rejects, until the peer is ready. */
  connect(origin: string, upstream: string, size: number): Promise<Request>;
}

interface Setting {
  readonly folder: string;
  readonly work: string;
  readonly port: number;
  /** The MCP endpoint of the one server behind the gateway. */
  readonly upstream: string;
}

interface Command {
  readonly file: string;
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

export interface RunningPeer extends AsyncDisposable {
  readonly request: Request;
  readonly pid: number;
}

/** The parameters of the call that is measured. `tool` is the name under which the peer offers `echo`. */
const echo = (tool: string, size: number) => ({ name: tool, arguments: { size } });

export const mcpCall = (tool: string, size: number): string =>
  JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: echo(tool, size) });

/**
 * Runs one step of an install to its end, for a quarter of an hour at most.
 * @throws with the end of its output if it fails
 */
export async function step(
  file: string,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<void> {
  console.error(`$ ${[file, ...args].join(' ')}`);
  const options = { env: { ...process.env, ...env }, timeout: INSTALL_MINUTES * 60_000, maxBuffer: 2 ** 26 };
  try {
    await execFile(file, args, options);
  } catch (error) {
    const { stderr = '' } = error as { readonly stderr?: string };
    throw new Error(`${file} failed: ${stderr.trim().split('\n').slice(-8).join('; ')}`, { cause: error });
  }
}

/** Installs one version of an npm package. */
export async function installPackage(folder: string, name: string, version: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  const options = ['--no-audit', '--no-fund', '--loglevel', 'error', '--prefix', folder];
  await step('npm', ['install', ...options, `${name}@${version}`]);
}

/** Returns the version of an npm package in the folder. Rejects when it is not there. */
export async function installedPackage(folder: string, name: string): Promise<string> {
  const file = path.join(folder, 'node_modules', name, 'package.json');
  return (JSON.parse(await readFile(file, 'utf8')) as { readonly version: string }).version;
}

/** Returns a port of 127.0.0.1 on which nothing listens. */
async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>(resolve => void server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise(resolve => server.close(resolve));
  return port;
}

function signal(pids: readonly number[], name: 'SIGTERM' | 'SIGKILL'): void {
  for (const pid of pids) {
    try {
      process.kill(pid, name);
    } catch {
      // It has ended.
    }
  }
}

/** Ends a process and its descendants, by force when they take too long. */
async function stop(child: ChildProcess): Promise<void> {
  if (child.pid === undefined) return;
  const all = processTree(child.pid);
  const ended =
    child.exitCode === null && child.signalCode === null
      ? new Promise(resolve => child.once('exit', resolve))
      : Promise.resolve();
  signal([child.pid], 'SIGTERM');
  await Promise.race([ended, delay(STOP_SECONDS * 1000, undefined, { ref: false })]);
  signal(all, 'SIGKILL');
  await ended;
}

/** Sends one call, which must be answered with the text of that size. */
async function check({ url, headers, body }: Request, size: number): Promise<void> {
  const { status, text } = await post(url, headers, body);
  if (status !== 200 || !text.includes('x'.repeat(size)))
    throw new Error(`HTTP ${status}: ${text.slice(0, 300)}`);
}

/**
 * Starts a peer in front of the upstream and waits until it answers a call of `echo`.
 * @throws with the end of its log if it ends or does not answer in time
 */
export async function startPeer(
  peer: Peer,
  folder: string,
  upstream: string,
  size: number,
): Promise<RunningPeer> {
  await using stack = new AsyncDisposableStack();
  const work = stack.use(temporaryFolder()).path;
  const port = await freePort();
  const { file, args, env } = await peer.command({ folder, work, port, upstream });
  const log = path.join(work, 'log');
  const output = openSync(log, 'w');
  const child = spawn(file, args, {
    cwd: work,
    env: { PATH: process.env['PATH'], HOME: work, LANG: 'C.UTF-8', NODE_ENV: 'production', ...env },
    stdio: ['ignore', output, output],
  });
  closeSync(output);
  child.on('error', () => {});
  stack.defer(() => stop(child));
  const killed = () => signal(processTree(child.pid ?? 0), 'SIGKILL');
  process.once('exit', killed);
  stack.defer(() => void process.off('exit', killed));
  const request = await untilReady(peer, `http://127.0.0.1:${port}`, upstream, size, child).catch(
    async (error: unknown) => {
      const end = (await readFile(log, 'utf8')).trim().split('\n').slice(-5).join('\n');
      throw new Error(`${(error as Error).message}\n${end.slice(-1500)}`, { cause: error });
    },
  );
  const opened = stack.move();
  return { request, pid: child.pid ?? 0, [Symbol.asyncDispose]: () => opened.disposeAsync() };
}

async function untilReady(
  peer: Peer,
  origin: string,
  upstream: string,
  size: number,
  child: ChildProcess,
): Promise<Request> {
  const until = performance.now() + START_SECONDS * 1000;
  for (;;) {
    try {
      const request = await peer.connect(origin, upstream, size);
      await check(request, size);
      return request;
    } catch (error) {
      if (child.pid === undefined || child.exitCode !== null)
        throw new Error(`it ended with ${child.exitCode}`, { cause: error });
      if (performance.now() > until)
        throw new Error(`it was not ready in ${START_SECONDS} s: ${(error as Error).message}`, {
          cause: error,
        });
      await delay(250);
    }
  }
}
