/** Clients that are tried with the address of Switchboard alone, and with a key. */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import * as current from '@modelcontextprotocol/client';
import type { OAuthClientProvider } from '@modelcontextprotocol/sdk/client/auth.js';
import { Client as LegacyClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { temporaryFolder } from '../../test/support/program.ts';
import type { Browser } from './browser.ts';
import {
  bareEnvironment,
  CLIENT_KINDS,
  givenIn,
  inTerminal,
  signInsOf,
  startAgent,
  type Client,
  type ClientKind,
  type Servers,
} from './client.ts';
import { npmProgram } from './install.ts';
import type { Json } from './model.ts';
import { runToItsEnd, startChild } from './processes.ts';

const GEMINI = '0.61.0';
const OPENCODE = '1.18.33';
const MCP_REMOTE = '0.15.1';
const INSPECTOR = '2.12.0';

/** An address that is the client's own. */
const REDIRECT_URI = 'http://127.0.0.1:8765/callback';
const ENTER_MS = 2_000;
const AUTH_URL = /http:\/\/localhost:\d+\/auth\/authorize\?[\w%&=.~+-]+/;

export const SIGN_IN_KINDS: readonly ClientKind[] = [
  ...CLIENT_KINDS,
  {
    title: `Gemini CLI ${GEMINI}`,
    install: async signal => {
      const program = await npmProgram('@google/gemini-cli', GEMINI, 'gemini', signal);
      return servers => startGemini(program, servers);
    },
  },
  {
    title: `opencode ${OPENCODE}`,
    install: async signal => {
      const program = await npmProgram('opencode-ai', OPENCODE, 'opencode', signal);
      return servers => startOpencode(program, servers);
    },
  },
  {
    title: `mcp-remote ${MCP_REMOTE}`,
    install: async signal => {
      const program = await npmProgram('mcp-remote', MCP_REMOTE, 'mcp-remote', signal);
      return servers => startMcpRemote(program, servers);
    },
  },
  {
    title: `MCP Inspector ${INSPECTOR}`,
    install: async signal => {
      const program = await npmProgram('@modelcontextprotocol/inspector', INSPECTOR, 'mcp-inspector', signal);
      return servers => startInspector(program, servers);
    },
  },
  { title: 'TypeScript SDK 1.32.2', install: () => Promise.resolve(startLegacy) },
  { title: 'TypeScript SDK 2.4.0', install: () => Promise.resolve(startCurrent) },
];

/** Keeps its settings, with the servers, in a file of its home. It signs in within a session. */
const startGemini = (program: string, servers: Servers) =>
  startAgent(
    async (home, model) => {
      const folder = path.join(home, '.gemini');
      await mkdir(folder);
      const mcpServers = Object.entries(servers).map(([name, { url, key }]) => [
        name,
        { httpUrl: url, trust: true, ...(key === undefined ? {} : { headers: { 'X-API-Key': key } }) },
      ]);
      const settings = {
        security: { auth: { selectedType: 'gemini-api-key' }, folderTrust: { enabled: false } },
        privacy: { usageStatisticsEnabled: false },
        general: { enableAutoUpdate: false },
        mcpServers: Object.fromEntries(mcpServers),
      };
      await writeFile(path.join(folder, 'settings.json'), JSON.stringify(settings));
      const env = {
        ...bareEnvironment(home, servers),
        GEMINI_API_KEY: 'none',
        GOOGLE_GEMINI_BASE_URL: model,
        GEMINI_CLI_NO_RELAUNCH: 'true',
      };
      for (const name of signInsOf(servers)) await geminiSignIn(program, name, { cwd: home, env });
      const child = startChild(program, ['--approval-mode', 'yolo', '-m', 'gemini-2.5-flash', '-p', 'Go.'], {
        cwd: home,
        env,
      });
      child.close();
      return child;
    },
    (server, tool) => `mcp_${server}_${tool}`,
  );

async function geminiSignIn(
  program: string,
  name: string,
  options: { readonly cwd: string; readonly env: NodeJS.ProcessEnv },
): Promise<void> {
  const [command, ...args] = inTerminal(program);
  await using child = startChild(command, args, {
    ...options,
    env: { ...options.env, TERM: 'xterm-256color' },
  });
  await child.said(/Type your message/);
  child.type(`/mcp auth ${name}`);
  const done = child.said(/Successfully authenticated and reloaded/);
  // Enter takes what it suggests, sends the command, and lets it open the browser.
  const pressing = setInterval(() => child.type('\r'), ENTER_MS);
  try {
    await done;
  } finally {
    clearInterval(pressing);
  }
}

const startOpencode = (program: string, servers: Servers) =>
  startAgent(
    async (home, model) => {
      const mcp = Object.entries(servers).map(([name, { url, key }]) => [
        `mcp_${name}`,
        { type: 'remote', url, ...(key === undefined ? {} : { headers: { 'X-API-Key': key } }) },
      ]);
      const settings = {
        autoupdate: false,
        share: 'disabled',
        model: 'mock/mock',
        provider: {
          mock: {
            npm: '@ai-sdk/anthropic',
            options: { baseURL: `${model}/v1`, apiKey: 'none' },
            models: { mock: { name: 'mock' } },
          },
        },
        mcp: Object.fromEntries(mcp),
      };
      await writeFile(path.join(home, 'opencode.json'), JSON.stringify(settings));
      const env = { ...bareEnvironment(home, servers), OPENCODE_DISABLE_MODELS_FETCH: '1' };
      for (const name of signInsOf(servers))
        await runToItsEnd(inTerminal(program, 'mcp', 'auth', `mcp_${name}`), { cwd: home, env });
      const child = startChild(program, ['run', 'Go.'], { cwd: home, env });
      child.close();
      return child;
    },
    (server, tool) => `mcp_${server}_${tool}`,
  );

/** Is itself a server, of which a client with the SDK makes use. */
async function startMcpRemote(program: string, servers: Servers): Promise<Client> {
  await using opening = new AsyncDisposableStack();
  const { path: home } = opening.use(temporaryFolder());
  const env = Object.entries(bareEnvironment(home, servers)).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, value] as const],
  );
  const clients = new Map<string, LegacyClient>();
  for (const [name, { url, key, browser }] of Object.entries(servers)) {
    const args = [url, ...(key === undefined ? [] : ['--header', `X-API-Key:${key}`])];
    const transport = new StdioClientTransport({
      command: program,
      args,
      env: Object.fromEntries(env),
      stderr: 'pipe',
    });
    if (browser) visitWhenAsked(browser, transport.stderr);
    const client = new LegacyClient({ name: 'switchboard-test', version: '1.0.0' });
    opening.defer(() => client.close());
    await client.connect(transport);
    clients.set(name, client);
  }
  return clientOf(clients, opening.move());
}

/** Its own browser does not open where there is no desktop; it prints the address, too. */
function visitWhenAsked(browser: Browser, stderr: StdioClientTransport['stderr']): void {
  let output = '';
  let isOpened = false;
  stderr?.on('data', (chunk: Buffer) => {
    output += chunk.toString();
    const [authUrl] = new RegExp(`${AUTH_URL.source}(?=\\s)`).exec(output) ?? [];
    if (authUrl === undefined || isOpened) return;
    isOpened = true;
    browser.visit(authUrl).catch((error: unknown) => console.error('browser:', error));
  });
}

/** A process for each call. It signs in at the first, and keeps the tokens. */
async function startInspector(program: string, servers: Servers): Promise<Client> {
  await using opening = new AsyncDisposableStack();
  const { path: home } = opening.use(temporaryFolder());
  const env = { ...bareEnvironment(home, servers), MCP_INSPECTOR_SECRET_STORE: 'file' };
  const opened = opening.move();
  const ask = async (server: string, ...args: readonly string[]): Promise<any> => {
    const { url = '', key, browser } = servers[server] ?? {};
    const output = path.join(home, 'output.json');
    const header = key === undefined ? [] : ['--header', `X-API-Key: ${key}`];
    const target = ['--cli', url, '--transport', 'http', ...header, '--output', output, ...args];
    const [command, ...words] = inTerminal(program, ...target);
    await using child = startChild(command, words, { env });
    const asked = browser ? child.said(AUTH_URL).then(authUrl => browser.visit(authUrl)) : undefined;
    await Promise.race([child.ended, ...(asked ? [asked.then(() => child.ended)] : [])]);
    const text = await readFile(output, 'utf8').catch(() => {
      throw new Error(`it gave no result: ${child.output()}`);
    });
    return JSON.parse(text);
  };
  return {
    shown: async () => JSON.stringify(await ask('switchboard', '--method', 'tools/list')),
    async call(server, tool, input) {
      const args = ['--tool-name', tool, '--tool-args-json', JSON.stringify(input)];
      return givenIn(await ask(server, '--method', 'tools/call', ...args));
    },
    [Symbol.asyncDispose]: () => opened.disposeAsync(),
  };
}

/** What a program with an SDK keeps of a sign-in. */
class Memory implements OAuthClientProvider {
  readonly redirectUrl = REDIRECT_URI;
  readonly clientMetadata = { client_name: 'TypeScript SDK', redirect_uris: [REDIRECT_URI] };
  readonly #browser: Browser;
  readonly #kept: Record<string, any> = {};
  /** The address that led back from the browser. */
  back: URL | undefined;

  constructor(browser: Browser) {
    this.#browser = browser;
  }

  clientInformation = () => this.#kept['client'];
  saveClientInformation = (client: object) => void (this.#kept['client'] = client);
  tokens = () => this.#kept['tokens'];
  saveTokens = (tokens: object) => void (this.#kept['tokens'] = tokens);
  codeVerifier = () => this.#kept['verifier'];
  saveCodeVerifier = (verifier: string) => void (this.#kept['verifier'] = verifier);
  discoveryState = () => this.#kept['discovery'];
  saveDiscoveryState = (state: object) => void (this.#kept['discovery'] = state);

  async redirectToAuthorization(authUrl: URL): Promise<void> {
    this.back = new URL(await this.#browser.visit(authUrl.href));
  }
}

interface Caller {
  listTools(): Promise<object>;
  callTool(call: { name: string; arguments: Record<string, unknown> }): Promise<object>;
  close(): Promise<void>;
}

interface Options {
  readonly requestInit?: { readonly headers: Record<string, string> };
  readonly authProvider?: Memory;
}

/** One connection that an SDK can make, to which it returns after a sign-in. */
interface Attempt {
  readonly client: Caller;
  connect(): Promise<void>;
  finishAuth(back: URLSearchParams): Promise<void>;
}

/** Connects with an SDK. A server that wants a sign-in refuses the first connection. */
async function startSdk(servers: Servers, attempt: (url: URL, options: Options) => Attempt): Promise<Client> {
  const clients = new Map<string, Caller>();
  await using opening = new AsyncDisposableStack();
  for (const [name, { url, key, browser }] of Object.entries(servers)) {
    const memory = browser && new Memory(browser);
    const options = {
      ...(key === undefined ? {} : { requestInit: { headers: { 'X-API-Key': key } } }),
      ...(memory ? { authProvider: memory } : {}),
    };
    const begin = () => {
      const begun = attempt(new URL(url), options);
      opening.defer(() => begun.client.close());
      return begun;
    };
    let begun = begin();
    try {
      await begun.connect();
    } catch (error) {
      if (!memory?.back) throw error;
      await begun.finishAuth(memory.back.searchParams);
      begun = begin();
      await begun.connect();
    }
    clients.set(name, begun.client);
  }
  return clientOf(clients, opening.move());
}

const startLegacy = (servers: Servers) =>
  startSdk(servers, (url, options) => {
    const transport = new StreamableHTTPClientTransport(url, options);
    const client = new LegacyClient({ name: 'switchboard-test', version: '1.0.0' });
    return {
      client,
      connect: () => client.connect(transport),
      finishAuth: back => transport.finishAuth(back.get('code') ?? ''),
    };
  });

const startCurrent = (servers: Servers) =>
  startSdk(servers, (url, options) => {
    const transport = new current.StreamableHTTPClientTransport(url, options);
    const client = new current.Client({ name: 'switchboard-test', version: '1.0.0' });
    return {
      client,
      connect: () => client.connect(transport),
      finishAuth: back => transport.finishAuth(back),
    };
  });

const clientOf = (clients: ReadonlyMap<string, Caller>, opened: AsyncDisposableStack): Client => ({
  shown: async () => JSON.stringify(await clients.get('switchboard')?.listTools()),
  async call(server, tool, input: Json) {
    return givenIn((await clients.get(server)?.callTool({ name: tool, arguments: { ...input } })) ?? {});
  },
  [Symbol.asyncDispose]: () => opened.disposeAsync(),
});
