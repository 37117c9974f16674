import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { setTimeout } from 'node:timers/promises';

export interface MeilisearchServer extends AsyncDisposable {
  readonly url: string;
  /** A key with the rights docs/operations/meilisearch.md says are needed, and no others. */
  readonly apiKey: string | undefined;
  readonly version: string;
  /** SIGKILL; absent where the server is not ours to stop. */
  readonly kill: (() => Promise<void>) | undefined;
  /** Again, on the same port, with the data it had. */
  readonly restart: (() => Promise<void>) | undefined;
}

const MASTER_KEY = 'master-key-of-the-test-server';
const SKIPPED =
  'SKIPPED: the tests on a real Meilisearch. Set MEILISEARCH_TEST_BINARY to a meilisearch program (1.13 or later), or MEILISEARCH_TEST_URL (with MEILISEARCH_TEST_KEY) to a server that may be written to.';

/** The server the environment names, or one started from the program it names; undefined, said aloud, without either. */
export async function openMeilisearch(): Promise<MeilisearchServer | undefined> {
  const {
    MEILISEARCH_TEST_URL: url,
    MEILISEARCH_TEST_KEY: key,
    MEILISEARCH_TEST_BINARY: binary,
  } = process.env;
  if (url) {
    const version = await versionOf(url, key);
    return {
      url,
      apiKey: key,
      version,
      kill: undefined,
      restart: undefined,
      [Symbol.asyncDispose]: async () => {},
    };
  }
  if (binary) return startMeilisearch(binary);
  console.warn(SKIPPED);
  return undefined;
}

async function startMeilisearch(binary: string): Promise<MeilisearchServer> {
  const folder = await mkdtemp(path.join(tmpdir(), 'sb-meilisearch-'));
  const address = `127.0.0.1:${await freePort()}`;
  const url = `http://${address}`;
  const start = async () => {
    const child = spawn(
      binary,
      [
        '--http-addr',
        address,
        '--db-path',
        path.join(folder, 'data'),
        '--master-key',
        MASTER_KEY,
        '--no-analytics',
        '--env',
        'development',
      ],
      { cwd: folder, stdio: 'ignore', env: {} },
    );
    const ended = once(child, 'exit');
    // For when the tests end without having disposed of it.
    process.on('exit', () => child.kill('SIGKILL'));
    while (!(await isHealthy(url))) {
      if (child.exitCode !== null) throw new Error(`${binary} ended with ${child.exitCode}`);
      await setTimeout(50);
    }
    return { child, ended };
  };
  let running = await start();
  const kill = async () => {
    running.child.kill('SIGKILL');
    await running.ended;
  };
  return {
    url,
    apiKey: await documentedKey(url),
    version: await versionOf(url, MASTER_KEY),
    kill,
    async restart() {
      running = await start();
    },
    async [Symbol.asyncDispose]() {
      await kill();
      await rm(folder, { recursive: true });
    },
  };
}

/** What the lines of the documentation print, run by a shell as they stand there. */
async function documentedKey(url: string): Promise<string> {
  const documentation = await readFile('docs/operations/meilisearch.md', 'utf8');
  const [, lines] = /^```sh\n(MEILISEARCH_API_KEY=[\s\S]*?)^```$/m.exec(documentation) ?? [];
  if (lines === undefined)
    throw new Error('docs/operations/meilisearch.md: it does not say how a key is made');
  const env = { PATH: process.env['PATH'], MEILISEARCH_URL: url, MASTER_KEY };
  const { stdout } = await promisify(execFile)('sh', ['-eu', '-c', lines], { env });
  const key = stdout.trim();
  if (!/^\S{20,}$/.test(key))
    throw new Error(`docs/operations/meilisearch.md: its lines print no key: ${stdout}`);
  return key;
}

const isHealthy = (url: string) =>
  fetch(`${url}/health`).then(
    ({ ok }) => ok,
    () => false,
  );

async function versionOf(url: string, key: string | undefined): Promise<string> {
  const response = await fetch(new URL('version', `${url}/`), {
    headers: key ? { authorization: `Bearer ${key}` } : {},
  });
  const { pkgVersion } = (await response.json()) as { pkgVersion: string };
  return pkgVersion;
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise(resolve => server.close(resolve));
  return port;
}
