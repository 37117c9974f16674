import { execFile, execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, globSync } from 'node:fs';
import { chown, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Readable } from 'node:stream';
import { promisify } from 'node:util';
import { createDatabaseOn, type TestDatabase } from './temporary-database.ts';

export interface PostgresServer extends AsyncDisposable {
  /** The process whose descendants are the server's; of the last start. */
  readonly pid: number;
  url(database: string): string;
  createDatabase(): Promise<TestDatabase>;
  /** SIGINT ends every session and shuts down cleanly, SIGQUIT at once, SIGKILL is a crash. Waits for the end. */
  stop(signal?: 'SIGINT' | 'SIGQUIT' | 'SIGKILL'): Promise<void>;
  /** Again, on the same port. */
  start(): Promise<void>;
}

export const POSTGRES_PASSWORD = 'password-of-the-test-server';

/** The folder of the newest Postgres server on this machine, if any. Debian keeps it out of the PATH. */
export function findPostgres(): string | undefined {
  const installed = globSync('/usr/lib/postgresql/*/bin').sort((a, b) =>
    b.localeCompare(a, 'en', { numeric: true }),
  );
  const folders = [...installed, ...(process.env['PATH'] ?? '').split(path.delimiter)];
  return folders.find(folder => existsSync(path.join(folder, 'initdb')));
}

/** A Postgres server of its own on loopback, with a password. `fsync: false` is faster and survives all but a power cut. */
export async function startPostgres({ fsync = true } = {}): Promise<PostgresServer> {
  const bin = findPostgres();
  if (bin === undefined) throw new Error('no Postgres server is installed (apt-get install postgresql)');
  const folder = await mkdtemp(path.join(tmpdir(), 'sb-postgres-'));
  const data = path.join(folder, 'data');
  const passwordFile = path.join(folder, 'password');
  // Postgres refuses to run as root.
  const user = process.getuid?.() === 0 ? { uid: idOf('-u'), gid: idOf('-g') } : {};
  const options = { ...user, cwd: folder, env: { PATH: process.env['PATH'], PGDATA: data, LC_ALL: 'C' } };
  await writeFile(passwordFile, POSTGRES_PASSWORD);
  if (user.uid !== undefined) await chown(folder, user.uid, user.gid);
  await promisify(execFile)(
    path.join(bin, 'initdb'),
    // initdb's own syncing says nothing about a server that runs.
    ['-U', 'postgres', '-A', 'scram-sha-256', '--pwfile', passwordFile, '-E', 'UTF8', '--no-sync'],
    options,
  );

  const port = await freePort();
  const settings = { port, listen_addresses: '127.0.0.1', unix_socket_directories: '', fsync };
  const args = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  let running: ChildProcess | undefined;
  const start = async () => {
    const child = spawn('sh', ['-c', TIED_TO_US, 'sh', path.join(bin, 'postgres'), ...args], {
      ...options,
      // Ctrl-C must reach this process alone: the rest follows from its end.
      detached: true,
      stdio: ['pipe', 'ignore', 'pipe'],
    });
    running = child;
    await untilReady(child.stderr);
  };
  const stop = async (signal = 'SIGINT') => {
    if (!running) return;
    // Closed only when every backend has ended too.
    const closed = once(running, 'close');
    running.stdin?.end(`${signal.slice('SIG'.length)}\n`);
    running = undefined;
    await closed;
  };
  const server = `postgres://postgres:${POSTGRES_PASSWORD}@127.0.0.1:${port}`;
  await start();
  return {
    get pid() {
      return running?.pid ?? 0;
    },
    url: database => `${server}/${database}`,
    createDatabase: () => createDatabaseOn(server),
    start,
    stop,
    async [Symbol.asyncDispose]() {
      await stop('SIGQUIT');
      await rm(folder, { recursive: true });
    },
  };
}

/**
 * Runs its arguments until a line with a signal comes in. When its input ends without one, whoever started it is dead,
 * however that happened: then nothing may stay behind.
 */
const TIED_TO_US = `
"$@" &
exec 2>/dev/null
read -r signal
kill -s "\${signal:-QUIT}" $!
wait $!
[ -n "$signal" ] || rm -rf "\${PGDATA%/data}"`;

const idOf = (flag: '-u' | '-g') => Number(execFileSync('id', [flag, 'postgres'], { encoding: 'utf8' }));

async function untilReady(stderr: Readable): Promise<void> {
  let printed = '';
  await new Promise<void>((resolve, reject) => {
    stderr.on('data', (chunk: Buffer) => {
      printed += chunk.toString();
      if (printed.includes('ready to accept connections')) resolve();
    });
    stderr.once('end', () => reject(new Error(`Postgres did not start:\n${printed}`)));
  });
}

/** Below the ports that `listen(0)` gives away, so that a stopped server finds its own port free again. */
export async function freePort(): Promise<number> {
  const port = randomInt(20_000, 32_000);
  const probe = createServer().listen(port, '127.0.0.1');
  try {
    await once(probe, 'listening');
  } catch {
    return freePort();
  }
  probe.close();
  await once(probe, 'close');
  return port;
}
