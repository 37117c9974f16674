import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { PGlite } from '@electric-sql/pglite';
import { Client, type QueryResult } from 'pg';
import { environmentFor, type TokenSet } from './identity.ts';
import {
  startIdentityProvider,
  type IdentityProvider,
  type IdentityProviderOptions,
} from './identity-provider.ts';
import { createDatabase } from './postgres.ts';
import { makeDataDir } from './data-dir.ts';
import { run, serve, temporaryFolder, type Finished, type Program } from './program.ts';
import { startV2Server, type V2Server } from './upstreams/v2.ts';
import { UserAgent } from './user-agent.ts';

/** One name for all processes, as behind a load balancer; requests go to the process that a test means. */
export const PUBLIC_URL = 'https://switchboard.test';
/** The catalogue's one server: takes the user's token of the provider `local`. */
const SERVER = 'mail';

type Headers = Readonly<Record<string, string>>;

export interface Reply {
  readonly status: number;
  readonly headers: globalThis.Headers;
  readonly text: string;
  // Tests look into answers freely.
  readonly json: any;
}

/** A process of the real program, and what a caller does with it. */
export interface Process extends Program {
  get(at: string, headers?: Headers): Promise<Reply>;
  post(at: string, body: unknown, headers?: Headers): Promise<Reply>;
  createSession(userId: string): Promise<{ session_id: string; auth_url: string }>;
  poll(sessionId: string): Promise<Reply>;
  token(sessionId: string, headers?: Headers): Promise<Reply>;
  refresh(refreshToken: string, headers?: Headers): Promise<Reply>;
  revoke(userId: string): Promise<Reply>;
  /** Fetches a callback URL from this process; its redirect is the answer. */
  callback(url: string): Promise<Reply>;
  /** Session, sign-in, first tokens. */
  connect(userId: string): Promise<TokenSet>;
  /** A tool call for the user, whose provider token the server gets. */
  callTool(tokens: Pick<TokenSet, 'access_token'>): Promise<Reply>;
  /** A command of the command line, over this process's control socket. */
  command(...args: string[]): Promise<Finished>;
}

export interface Installation extends AsyncDisposable {
  readonly idp: IdentityProvider;
  readonly key: string;
  /** The server behind `callTool`. */
  readonly upstream: V2Server;
  /** Where the embedded database is, or would be. */
  readonly dataDir: string;
  /**
   * The same name again is the same data folder: a restart. On an embedded database there is one.
   * @param env settings in place of those of the others
   * @param program that of another version
   */
  start(name?: string, env?: Readonly<Record<string, string>>, program?: string): Promise<Process>;
  /** A command with the settings of a process of that name, whether or not it runs. */
  command(args: readonly string[], name?: string, env?: Readonly<Record<string, string>>): Promise<Finished>;
  /** Statements on the database; on an embedded one while no process runs. Resolves with the last one's rows. */
  sql(statements: string): Promise<Record<string, unknown>[]>;
  /** A new browser signs in; resolves with the callback URL, not fetched. */
  authorize(authUrl: string, login?: string): Promise<string>;
}

export interface InstallationOptions {
  /** A Postgres database; without it each process would have an embedded one in its data folder. */
  readonly databaseUrl?: string | undefined;
  readonly idp?: IdentityProviderOptions;
  readonly env?: Readonly<Record<string, string>>;
  /** Where the process that was started last writes its log. */
  readonly logFile?: string;
  /** More lines of the catalogue. */
  readonly servers?: readonly object[];
}

/** What processes of the real program share: a database, an identity provider, an MCP server, a public URL and keys. */
export async function install({
  databaseUrl,
  idp: idpOptions = {},
  env = {},
  logFile,
  servers = [],
}: InstallationOptions = {}): Promise<Installation> {
  await using opened = new AsyncDisposableStack();
  const idp = opened.use(await startIdentityProvider(idpOptions));
  idp.allowRedirect(`${PUBLIC_URL}/oauth/callback/local`);
  const upstream = opened.use(await startV2Server());
  const folder = opened.use(temporaryFolder());
  const catalogue = path.join(folder.path, 'catalogue.jsonl');
  await writeFile(catalogue, [entryOf(upstream), ...servers].map(line => JSON.stringify(line)).join('\n'));
  const key = randomBytes(24).toString('hex');
  const shared = {
    ...environmentFor(idp, { allowedOrigins: [new URL(upstream.url).origin] }),
    ...(databaseUrl === undefined ? {} : { DATABASE_URL: databaseUrl }),
    PUBLIC_URL,
    SWITCHBOARD_KEKS: `k1:${randomBytes(32).toString('base64')}`,
    SWITCHBOARD_API_KEY: key,
    SWITCHBOARD_CATALOGUE: catalogue,
    SWITCHBOARD_ALLOWED_HOSTS: '*',
    SWITCHBOARD_ALLOW_PRIVATE_NETWORK: 'true',
    ...env,
  };
  const folderOf = (name: string) => path.join(folder.path, name);
  const authorize = (authUrl: string, login = 'alice') =>
    new UserAgent().authorize(authUrl, { login, stopAt: url => url.startsWith(`${PUBLIC_URL}/`) });
  if (databaseUrl === undefined) await makeDataDir(folderOf('a'));
  const processes = opened.use(new AsyncDisposableStack());
  const installed = opened.move();
  return {
    idp,
    key,
    upstream,
    dataDir: folderOf('a'),
    authorize,
    sql: statements =>
      databaseUrl === undefined ? onEmbedded(folderOf('a'), statements) : onPostgres(databaseUrl, statements),
    command: (args, name = 'a', more = {}) =>
      run(args, { ...shared, SWITCHBOARD_DATA_DIR: folderOf(name), ...more }),
    async start(name = 'a', more = {}, version) {
      const own = { ...shared, SWITCHBOARD_DATA_DIR: folderOf(name), ...more };
      const program = processes.use(await serve(own, logFile, version));
      return {
        ...program,
        ...actions(program, key, authorize),
        command: (...args) => run(args, own, version),
      };
    },
    [Symbol.asyncDispose]: () => installed.disposeAsync(),
  };
}

/** As `install`, on a Postgres database of its own. */
export async function installOnPostgres(
  options: Omit<InstallationOptions, 'databaseUrl'> = {},
): Promise<Installation & { readonly databaseUrl: string }> {
  await using opened = new AsyncDisposableStack();
  const database = opened.use(await createDatabase());
  const installation = opened.use(await install({ ...options, databaseUrl: database.url }));
  const all = opened.move();
  return {
    ...installation,
    databaseUrl: database.url,
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
}

const entryOf = (upstream: V2Server) => ({
  id: SERVER,
  name: 'Mail',
  description: 'Reads and sends mail.',
  remote_url: upstream.url,
  auth: { kind: 'user_oauth', provider: 'local', scopes: ['email'] },
});

function actions(
  { url: base }: Program,
  key: string,
  authorize: Installation['authorize'],
): Omit<Process, keyof Program | 'command'> {
  const get: Process['get'] = (at, headers) =>
    request(base + at, { headers: { 'x-api-key': key, ...headers } });
  const post: Process['post'] = (at, body, headers) =>
    request(base + at, {
      method: 'POST',
      body: JSON.stringify(body),
      headers: { 'x-api-key': key, 'content-type': 'application/json', ...headers },
    });
  const createSession: Process['createSession'] = async userId => {
    const created = await post('/v1/identity/sessions', { user_id: userId, provider: 'local' });
    if (created.status !== 200) throw new Error(`no session: ${created.text}`);
    return created.json;
  };
  const token: Process['token'] = (session_id, headers) =>
    post('/v1/identity/token', { session_id }, headers);
  const callback: Process['callback'] = url => request(url.replace(PUBLIC_URL, base));
  return {
    get,
    post,
    createSession,
    token,
    callback,
    poll: sessionId => get(`/v1/identity/sessions/${sessionId}`),
    refresh: (refresh_token, headers) => post('/v1/identity/refresh', { refresh_token }, headers),
    revoke: user_id => post('/v1/identity/revoke', { user_id }),
    async connect(userId) {
      const { session_id, auth_url } = await createSession(userId);
      await callback(await authorize(auth_url, userId));
      const tokens = await token(session_id);
      if (tokens.status !== 200) throw new Error(`no tokens: ${tokens.text}`);
      return tokens.json;
    },
    callTool: ({ access_token }) =>
      post(
        '/v1/mcp/call',
        { server_id: SERVER, method: 'tools/call', params: { name: 'echo', arguments: { message: 'hi' } } },
        { authorization: `Bearer ${access_token}` },
      ),
  };
}

async function request(url: string, init: RequestInit = {}): Promise<Reply> {
  const response = await fetch(url, { ...init, redirect: 'manual' });
  const { status, headers } = response;
  const text = await response.text();
  const isJson = /json/.test(headers.get('content-type') ?? '') && text !== '';
  return { status, headers, text, json: isJson ? JSON.parse(text) : undefined };
}

export async function onPostgres(url: string, statements: string): Promise<Record<string, unknown>[]> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    // Of several statements pg gives a list of results.
    const results: QueryResult<Record<string, unknown>>[] = [await client.query(statements)].flat();
    return results.at(-1)?.rows ?? [];
  } finally {
    await client.end();
  }
}

export async function onEmbedded(dataDir: string, statements: string): Promise<Record<string, unknown>[]> {
  const client = await PGlite.create(path.join(dataDir, 'pglite'));
  try {
    return (await client.exec(statements)).at(-1)?.rows ?? [];
  } finally {
    await client.close();
  }
}

/** The process ids of the workers that a process has started and that still run, by number. */
export const workersBelow = (primary: number): Map<number, number> =>
  new Map(
    execFileSync('ps', ['-A', '-o', 'pid=,ppid=,args='], { encoding: 'utf8' })
      .split('\n')
      .map(line => /^ *(\d+) +(\d+) .* worker (\d+)$/.exec(line) ?? [])
      .filter(([, , parent]) => Number(parent) === primary)
      .map(([, pid, , worker]) => [Number(worker), Number(pid)]),
  );

/** Looks until it is so. The bound only ends what hangs. */
export async function eventually(
  what: string,
  isSo: () => boolean | Promise<boolean>,
  withinMs = 60_000,
): Promise<void> {
  const deadline = performance.now() + withinMs;
  while (!(await isSo())) {
    if (performance.now() > deadline) throw new Error(`not within ${withinMs} ms: ${what}`);
    await new Promise(resolve => setTimeout(resolve, 20));
  }
}

/** All at once. */
export const parallel = <T>(count: number, act: (index: number) => Promise<T>): Promise<T[]> =>
  Promise.all(Array.from({ length: count }, (_, index) => act(index)));

/** How often each status came. */
export const statusesOf = (replies: readonly { readonly status: number }[]): Record<number, number> => {
  const counts: Record<number, number> = {};
  for (const { status } of replies) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
};
