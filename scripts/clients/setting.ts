import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { providerSettings, startIdentityProvider } from '../../test/support/identity-provider.ts';
import { run, serve, temporaryFolder } from '../../test/support/program.ts';
import { actingForUsers, startAuthorised } from '../../test/support/upstreams/authorised.ts';
import { startEverything } from '../../test/support/upstreams/everything.ts';
import { refusedPort } from '../../test/support/upstreams/http.ts';
import { startV2Server } from '../../test/support/upstreams/v2.ts';
import { UserAgent } from '../../test/support/user-agent.ts';
import { createBrowser, type Browser } from './browser.ts';
import { python, type Servers } from './client.ts';
import { startDocuments } from './documents.ts';
import { CannotInstall } from './install.ts';
import { startChild, unlessAborted } from './processes.ts';
import { directly, ENTRY_NAMES, type Upstream } from './scenarios.ts';

/** A Switchboard, and what it stands in front of. */
export interface Setting extends AsyncDisposable {
  readonly upstreams: ReadonlySet<Upstream>;
  /** Why an upstream is not there. */
  readonly missing: readonly string[];
  /** The address that clients are given, with a key that acts for the user in `switchboard_user`. */
  serversFor(user: string): Promise<Servers>;
  /** The instructions of Switchboard's own server, and the descriptions of its tools and their parameters. */
  readonly described: readonly string[];
  /** The address alone, and a browser of the user in which a client signs in there. */
  signInServerFor(user: string): Promise<{ readonly url: string; readonly browser: Browser }>;
  /** Signs in as the user, with a browser that begins at the address. */
  signIn(authUrl: string, user: string): Promise<void>;
}

const KEY = 'the-key-of-the-clients-run-of-32-characters';

/** @param unlisted ids of more entries, without tools, and their upstreams */
export async function startSetting(
  unlisted: ReadonlyMap<string, Upstream>,
  signal: AbortSignal,
): Promise<Setting> {
  await using opening = new AsyncDisposableStack();
  const folder = opening.use(temporaryFolder()).path;
  const { urls, missing } = await startUpstreams(opening, signal);
  const account = opening.use(await startAuthorised('legacy'));
  const idp = opening.use(await startIdentityProvider());
  const local = { ...providerSettings(idp), title: 'Harbour accounts', allowed_origins: [account.origin] };
  const catalogue = path.join(folder, 'catalogue.jsonl');
  const more = [
    { ...actingForUsers('account', account.url), description: 'Keeps the notes of a user.' },
    { id: 'down', description: 'Has sunk.', remote_url: `http://127.0.0.1:${await refusedPort()}/mcp` },
  ];
  await writeFile(catalogue, [...entriesOf(urls, unlisted), ...more].map(toLine).join('\n'));
  const documents = opening.use(await startDocuments());
  const port = await refusedPort();
  const url = `http://localhost:${port}`;
  const env = {
    ...documents.env,
    PORT: String(port),
    // Clients that know only the address can sign in, and nothing may change for those that send a key.
    PUBLIC_URL: url,
    SWITCHBOARD_DATA_DIR: path.join(folder, 'data'),
    SWITCHBOARD_CATALOGUE: catalogue,
    SWITCHBOARD_API_KEY: KEY,
    SWITCHBOARD_ALLOW_PRIVATE_NETWORK: 'true',
    SWITCHBOARD_RATE_LIMIT: 'off',
    SWITCHBOARD_PROVIDERS: JSON.stringify({ local }),
  };
  const { ready } = opening.use(await serve(env));
  await ready();
  idp.allowRedirect(`${url}/oauth/callback/local`);
  const command = async (...args: string[]) => {
    const { code, stdout, stderr } = await run(args, env);
    if (code !== 0) throw new Error(`switchboard ${args.join(' ')}: ${stderr}`);
    return stdout;
  };
  await command('catalogue', 'probe', ...urls.keys());
  const described = await descriptionsAt(`${url}/mcp`);
  const opened = opening.move();

  return {
    upstreams: new Set(urls.keys()),
    missing,
    described,
    async serversFor(user) {
      const created = await command('keys', 'create', '--user', user);
      const key = /sbk_\S+/.exec(created)?.[0] ?? '';
      const servers: Record<string, Servers[string]> = {
        switchboard: { url: `${url}/mcp`, key: KEY },
        switchboard_user: { url: `${url}/mcp`, key },
      };
      for (const [upstream, itsUrl] of urls) {
        servers[upstream] = { url: `${url}/mcp/${upstream}`, key: KEY };
        servers[directly(upstream)] = { url: itsUrl };
      }
      return servers;
    },
    async signInServerFor(user) {
      return { url: `${url}/mcp`, browser: await createBrowser({ origin: url, key: KEY, user }) };
    },
    async signIn(authUrl, user) {
      const agent = new UserAgent();
      const leaving = await agent.submit(await agent.get(authUrl));
      const toProvider = leaving.headers.get('location') ?? '';
      const isOurs = (address: string) => address.startsWith(`${url}/`);
      const confirm = await agent.signIn(toProvider, { login: user, stopAt: isOurs });
      await agent.follow(await agent.submit(confirm, { fields: { decision: 'connect' } }));
    },
    [Symbol.asyncDispose]: () => opened.disposeAsync(),
  };
}

const toLine = (entry: object) => JSON.stringify({ name: 'A server', ...entry });

interface Upstreams {
  readonly urls: ReadonlyMap<Upstream, string>;
  readonly missing: readonly string[];
}

/** Starts those that can be started here. */
async function startUpstreams(opening: AsyncDisposableStack, signal: AbortSignal): Promise<Upstreams> {
  const urls = new Map<Upstream, string>();
  urls.set('everything', opening.use(await startEverything()).url);
  urls.set('v2', opening.use(await startV2Server({ legacy: 'stateless' })).url);
  let interpreter: string;
  try {
    interpreter = await python(signal);
  } catch (error) {
    if (!(error instanceof CannotInstall)) throw error;
    return { urls, missing: [`the server built with FastMCP: ${error.message}`] };
  }
  const program = fileURLToPath(new URL('upstream.py', import.meta.url));
  const child = opening.use(startChild(interpreter, [program]));
  urls.set('fast', await unlessAborted(signal, child.line()));
  return { urls, missing: [] };
}

function entriesOf(urls: Upstreams['urls'], unlisted: ReadonlyMap<string, Upstream>): object[] {
  const descriptions = {
    everything: 'Echoes and sums.',
    fast: 'Ferries, weather and visitors.',
    v2: 'Echoes.',
  };
  const known = [...urls].map(([id, remote_url]) => {
    const description = descriptions[id];
    return { id, name: ENTRY_NAMES[id], description, remote_url };
  });
  const others = [...unlisted].flatMap(([id, upstream]) => {
    const remote_url = urls.get(upstream);
    const description = 'A server that nobody has visited yet.';
    return remote_url === undefined ? [] : [{ id, description, remote_url, tools: [] }];
  });
  return [...known, ...others];
}

async function descriptionsAt(url: string): Promise<string[]> {
  const client = new Client({ name: 'switchboard-test', version: '1.0.0' });
  const headers = { 'X-API-Key': KEY };
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
  const { tools } = await client.listTools();
  const parameters = tools.flatMap(({ inputSchema: { properties = {} } }) => Object.values(properties));
  const described = [...tools, ...(parameters as { description?: string }[])];
  const texts = [client.getInstructions(), ...described.map(({ description }) => description)];
  await client.close();
  return texts.filter(text => text !== undefined);
}
