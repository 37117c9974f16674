import { mkdtempSync } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Writable } from 'node:stream';
import { readConfig } from '../../src/config/index.ts';
import type { Embedder } from '../../src/core/search/embed/embedder.ts';
import { createNgramEmbedder } from '../../src/core/search/embed/ngrams.ts';
import type { Clock } from '../../src/platform/time.ts';
import { openTestDatabase } from './database.ts';
import { createLog } from '../../src/platform/telemetry/log.ts';
import { controlSocketOf } from '../../src/platform/database/data-folder.ts';
import { startSwitchboard, type StartOptions } from '../../src/app.ts';
import { checkDocumented } from './documented.ts';
import { connectAdminSocket, type AdminSocket } from './admin-socket.ts';

export interface CatalogueLine {
  readonly id: string;
  readonly name?: string;
  readonly description?: string;
  readonly remote_url: string;
  readonly [field: string]: unknown;
}

export interface RunningSwitchboard extends AsyncDisposable {
  readonly url: string;
  readonly key: string;
  readonly dataDir: string;
  /** The operator's side: what the command line speaks to. */
  readonly admin: AdminSocket;
  /** Everything logged so far. */
  logged(): string;
  /** As `put` and `get`: an error that `/openapi.json` does not document fails the test. */
  post(path: string, body: unknown, headers?: Record<string, string>): Promise<Answer>;
  put(path: string, body: unknown, headers?: Record<string, string>): Promise<Answer>;
  get(path: string, headers?: Record<string, string>): Promise<Answer>;
}

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  // Tests look into answers freely.
  readonly json: any;
}

interface StartTest {
  readonly catalogue?: readonly CatalogueLine[];
  readonly env?: Record<string, string>;
  readonly clock?: Clock;
  readonly proxyLimits?: StartOptions['proxyLimits'];
  readonly faceLimits?: StartOptions['faceLimits'];
  readonly embeddingLimits?: StartOptions['embeddingLimits'];
  readonly embedder?: () => Promise<Embedder>;
  readonly database?: StartOptions['database'];
}

const TEST_KEY = 'a-key-for-tests-of-at-least-32-characters';

/**
 * The whole of Switchboard in this process: a database in memory, n-gram vectors (unless told otherwise, or `env` names an embedding API), a free
 * port, private networks allowed.
 */
export async function startTestSwitchboard({
  catalogue = [FILLER],
  env = {},
  clock,
  proxyLimits,
  faceLimits,
  embeddingLimits,
  embedder = () => Promise.resolve(createNgramEmbedder()),
  database = () => openTestDatabase(),
}: StartTest = {}): Promise<RunningSwitchboard> {
  const dataDir = mkdtempSync(path.join(tmpdir(), 'sb-'));
  const file = path.join(dataDir, 'catalogue.jsonl');
  await writeFile(file, catalogue.map(line => JSON.stringify(withDefaults(line))).join('\n'));
  const config = readConfig({
    PORT: '0',
    SWITCHBOARD_DATA_DIR: dataDir,
    SWITCHBOARD_API_KEY: TEST_KEY,
    SWITCHBOARD_CATALOGUE: file,
    SWITCHBOARD_ALLOW_PRIVATE_NETWORK: 'true',
    LOG_LEVEL: 'debug',
    ...env,
  });
  const lines: string[] = [];
  const log = createLog(
    config.log.level,
    new Writable({ write: (chunk: Buffer, _encoding, done) => (lines.push(chunk.toString()), done()) }),
  );
  const running = await startSwitchboard(config, {
    log,
    ...(clock === undefined ? {} : { clock }),
    ...(proxyLimits === undefined ? {} : { proxyLimits }),
    ...(faceLimits === undefined ? {} : { faceLimits }),
    ...(config.search.embedding ? {} : { embedder }),
    ...(embeddingLimits === undefined ? {} : { embeddingLimits }),
    database,
  });
  await running.indexed;
  const url = running.url ?? '';
  const admin = connectAdminSocket(controlSocketOf(dataDir));
  const ask = async (method: string, at: string, init: RequestInit): Promise<Answer> => {
    const answer = await exchange(url + at, { ...init, method });
    checkDocumented(method, at, answer);
    return answer;
  };
  const send =
    (method: 'POST' | 'PUT'): RunningSwitchboard['post'] =>
    (at, body, headers) =>
      ask(method, at, {
        body:
          typeof body === 'string' || body instanceof Uint8Array ? (body as string) : JSON.stringify(body),
        headers: { 'content-type': 'application/json', 'x-api-key': TEST_KEY, ...headers },
      });
  return {
    url,
    key: TEST_KEY,
    dataDir,
    admin,
    logged: () => lines.join(''),
    post: send('POST'),
    put: send('PUT'),
    get: (at, headers) => ask('GET', at, { headers: { 'x-api-key': TEST_KEY, ...headers } }),
    async [Symbol.asyncDispose]() {
      await admin.close();
      await running[Symbol.asyncDispose]();
      await rm(dataDir, { recursive: true });
    },
  };
}

const FILLER: CatalogueLine = { id: 'filler', remote_url: 'https://filler.example/mcp' };

const withDefaults = (line: CatalogueLine) => ({
  name: line.id,
  description: `The server ${line.id}.`,
  ...line,
});

export async function exchange(url: string, init: RequestInit): Promise<Answer> {
  const response = await fetch(url, init);
  const text = await response.text();
  const isJson = /[/+]json/.test(response.headers.get('content-type') ?? '');
  return {
    status: response.status,
    headers: response.headers,
    text,
    json: isJson && text !== '' ? JSON.parse(text) : undefined,
  };
}
