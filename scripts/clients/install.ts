import { mkdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { startChild, unlessAborted } from './processes.ts';

/** Kept between runs. */
const CACHE = path.join(tmpdir(), 'switchboard-clients');
const TIMEOUT_MS = 240_000;

type Command = readonly [program: string, ...args: string[]];

/** A client that cannot be had here, as its tool or its packages cannot: there is no Go, or no network. */
export class CannotInstall extends Error {}

/** Installs a package of npm. Resolves to its program. @throws CannotInstall */
export async function npmProgram(
  name: string,
  version: string,
  program: string,
  signal: AbortSignal,
): Promise<string> {
  const install = (folder: string): Command[] => [
    ['npm', 'install', '--no-audit', '--no-fund', '--prefix', folder, `${name}@${version}`],
  ];
  const folder = await installed(`${program}-${version}`, install, signal);
  const file = path.join(folder, 'node_modules', '.bin', program);
  // Without its own install script, which npm may not have run, it does not start.
  await runToEnd([file, '--version'], signal);
  return file;
}

/** Makes a virtual environment with packages of Python. Resolves to its interpreter. @throws CannotInstall */
export async function pythonWith(
  versions: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<string> {
  const packages = Object.entries(versions).map(([name, version]) => `${name}==${version}`);
  const interpreterIn = (folder: string) => path.join(folder, 'bin', 'python');
  const install = (folder: string): Command[] => [
    ['python3', '-m', 'venv', folder],
    [interpreterIn(folder), '-m', 'pip', 'install', ...packages],
  ];
  return interpreterIn(await installed(`python-${packages.join('-')}`, install, signal));
}

/** Builds the client in go/. Resolves to its program. @throws CannotInstall, but Error where it does not compile */
export async function goProgram(signal: AbortSignal): Promise<string> {
  const program = path.join(CACHE, 'go-client');
  const source = fileURLToPath(new URL('go', import.meta.url));
  await runToEnd(['go', 'mod', 'download', '-C', source], signal, CannotInstall);
  // Go itself knows what it has built, and what has changed since.
  await runToEnd(['go', 'build', '-C', source, '-o', program, '.'], signal);
  return program;
}

/** Resolves to a folder in which the commands have been run, now or in an earlier run. @throws CannotInstall */
async function installed(
  name: string,
  install: (folder: string) => readonly Command[],
  signal: AbortSignal,
): Promise<string> {
  const folder = path.join(CACHE, name);
  const done = path.join(folder, '.installed');
  const isDone = await stat(done).catch(() => undefined);
  if (isDone) return folder;
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  for (const command of install(folder)) await runToEnd(command, signal, CannotInstall);
  await writeFile(done, '');
  return folder;
}

/** @param Failure what is thrown where the command does not exist, fails or takes too long */
async function runToEnd(
  [program, ...args]: Command,
  signal: AbortSignal,
  Failure: new (message: string) => Error = Error,
): Promise<void> {
  await using child = startChild(program, args);
  const bounded = AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]);
  const code = await unlessAborted(bounded, child.ended).catch(() => signal.throwIfAborted());
  if (code === 0) return;
  const lines = child.output().split('\n');
  throw new Failure(lines.find(line => /\berror\b/i.test(line)) ?? (lines.at(-1) || `${program} failed`));
}
