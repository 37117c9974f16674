import { randomBytes } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { Client } from 'pg';
import {
  providerSettings,
  startIdentityProvider,
  type IdentityProvider,
} from '../../test/support/identity-provider.ts';
import { startPostgres, type PostgresServer } from '../../test/support/postgres-server.ts';
import { run, temporaryFolder } from '../../test/support/program.ts';
import { startRedis, type RedisServer } from '../../test/support/redis.ts';
import { startUpstream, type Upstream } from '../processes.ts';
import { NAMES, Replica } from './replicas.ts';
import { ERAS, startFailingUpstream, type FailingUpstream } from './upstreams.ts';

export const PUBLIC_URL = 'https://switchboard.test';
const SHIPPED = path.resolve('catalogue/servers.jsonl');
/** Twice as long as the balancer takes to notice, at least. */
const DRAIN_MS = 2_500;
/** So short that providers are asked for new tokens throughout the run. */
const PROVIDER_TOKEN_TTL_SEC = 120;

/** The server whose calls carry a user's token of the provider. */
export const ACTING_SERVER = 'acting';
/** A server on the upstream that never fails (`steady`), or on the one that does (`failing`). */
export const serversOn = (upstream: 'steady' | 'failing') => ERAS.map(era => `${upstream}-${era}`);

/** All parts, each real and on 127.0.0.1. Disposing of it ends every process and removes every folder. */
export interface Installation extends AsyncDisposable {
  readonly postgres: PostgresServer;
  readonly redis: RedisServer;
  readonly steady: Upstream;
  readonly failing: FailingUpstream;
  readonly idp: IdentityProvider;
  readonly replicas: readonly Replica[];
  readonly key: string;
  /** The rows of one statement, on a connection of its own. */
  sql(statement: string): Promise<Record<string, unknown>[]>;
}

export async function install(): Promise<Installation> {
  await using opened = new AsyncDisposableStack();
  const folder = opened.use(temporaryFolder());
  const postgres = opened.use(await startPostgres());
  const redis = opened.use(await startRedis());
  const steady = opened.use(await startUpstream());
  const failing = opened.use(await startFailingUpstream());
  const idp = opened.use(await startIdentityProvider({ accessTokenTtlSec: PROVIDER_TOKEN_TTL_SEC }));
  idp.allowRedirect(`${PUBLIC_URL}/oauth/callback/local`);
  const { url } = await postgres.createDatabase();
  const catalogue = path.join(folder.path, 'catalogue.jsonl');
  await writeFile(catalogue, await catalogueOf(steady.origin, failing.origin));
  const env = environment({ databaseUrl: url, redisUrl: redis.url, catalogue, idp, origin: steady.origin });
  const replicas = NAMES.map(name => new Replica(name, env, folder.path));
  opened.defer(async () => void (await Promise.all(replicas.map(replica => replica.stop('SIGKILL')))));
  for (const replica of replicas) await replica.start();
  const key = await createKey({ ...env, SWITCHBOARD_DATA_DIR: path.join(folder.path, 'command') });
  const all = opened.move();
  return {
    postgres,
    redis,
    steady,
    failing,
    idp,
    replicas,
    key,
    sql: statement => query(url, statement),
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
}

/** The shipped servers, to be searched, at an address that is here; and those that are called. */
async function catalogueOf(steady: string, failing: string): Promise<string> {
  const shipped = (await readFile(SHIPPED, 'utf8'))
    .split('\n')
    .filter(line => line !== '')
    .map(line => Object.assign(JSON.parse(line) as object, { remote_url: `${steady}/json` }));
  const tools = [{ name: 'echo', description: 'Echoes', input_schema: { type: 'object' } }];
  const entry = (id: string, url: string, auth: object) => ({
    id,
    name: id,
    description: `The server ${id}.`,
    remote_url: url,
    tools,
    auth,
  });
  const called = [
    ...serversOn('steady').map((id, at) => entry(id, `${steady}/${ERAS[at]}`, { kind: 'none' })),
    ...serversOn('failing').map((id, at) => entry(id, `${failing}/${ERAS[at]}`, { kind: 'none' })),
    entry(ACTING_SERVER, `${steady}/sse`, { kind: 'user_oauth', provider: 'local', scopes: ['email'] }),
  ];
  return [...shipped, ...called].map(line => JSON.stringify(line)).join('\n');
}

interface Parts {
  readonly databaseUrl: string;
  readonly redisUrl: string;
  readonly catalogue: string;
  readonly idp: IdentityProvider;
  /** Of the servers that may have the provider's tokens. */
  readonly origin: string;
}

const environment = ({ databaseUrl, redisUrl, catalogue, idp, origin }: Parts) => ({
  DATABASE_URL: databaseUrl,
  REDIS_URL: redisUrl,
  PUBLIC_URL,
  SWITCHBOARD_KEKS: `k1:${randomBytes(32).toString('base64')}`,
  // So that no start prints one; the load has a key of its own.
  SWITCHBOARD_API_KEY: randomBytes(24).toString('hex'),
  SWITCHBOARD_CATALOGUE: catalogue,
  SWITCHBOARD_PROVIDERS: JSON.stringify({
    local: { ...providerSettings(idp), title: 'Local', allowed_origins: [origin] },
  }),
  // Counted at every request, and never reached.
  SWITCHBOARD_RATE_LIMIT: 'search=1000000/60,proxy=1000000/60,refresh=1000000/60,sessions=1000000/60',
  SWITCHBOARD_DRAIN_MS: String(DRAIN_MS),
  SWITCHBOARD_ALLOWED_HOSTS: '*',
  SWITCHBOARD_ALLOW_PRIVATE_NETWORK: 'true',
  // As `npm start`.
  NODE_OPTIONS: '--max-semi-space-size=16',
});

async function createKey(env: Readonly<Record<string, string>>): Promise<string> {
  const made = await run(['keys', 'create', '--json', '--name', 'soak'], env);
  if (made.code !== 0) throw new Error(`no key: ${made.stderr}`);
  return (JSON.parse(made.stdout) as { key: string }).key;
}

async function query(url: string, statement: string): Promise<Record<string, unknown>[]> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    const { rows } = await client.query<Record<string, unknown>>(statement);
    return rows;
  } finally {
    await client.end();
  }
}
