import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { temporaryFolder } from '../../test/support/program.ts';
import type { Browser } from './browser.ts';
import { goProgram, npmProgram, pythonWith } from './install.ts';
import { startModel, textsIn, type Given, type Json } from './model.ts';
import { runToItsEnd, startChild, type Child } from './processes.ts';

/** An MCP server as a client is told of it. Without a key, and with a browser, it signs in. */
interface Server {
  readonly url: string;
  readonly key?: string;
  readonly browser?: Browser;
}

/** By their names there. */
export type Servers = Readonly<Record<string, Server>>;

/** A program that uses MCP servers on behalf of a model. */
export interface Client extends AsyncDisposable {
  /** Resolves to what the model knows of the server `switchboard` before its first call, and perhaps more. */
  shown(): Promise<string>;
  /** Calls a tool of a server. Resolves to what the model is given. */
  call(server: string, tool: string, input: Json): Promise<Given>;
}

export interface ClientKind {
  readonly title: string;
  /** Resolves to what starts it. @throws CannotInstall where it cannot be had */
  install(signal: AbortSignal): Promise<(servers: Servers) => Promise<Client>>;
}

const CLAUDE_CODE = '2.1.197';
const CODEX = '0.169.0';
const MCP = '2.3.0';
const FASTMCP = '4.1.2';

const fileOf = (name: string) => fileURLToPath(new URL(name, import.meta.url));

let interpreter: Promise<string> | undefined;

/** Resolves to an interpreter that has the packages. @throws CannotInstall */
export const python = (signal: AbortSignal): Promise<string> =>
  (interpreter ??= pythonWith({ mcp: MCP, fastmcp: FASTMCP }, signal));

export const CLIENT_KINDS: readonly ClientKind[] = [
  {
    title: `Claude Code ${CLAUDE_CODE}`,
    install: async signal => {
      const program = await npmProgram('@anthropic-ai/claude-code', CLAUDE_CODE, 'claude', signal);
      return servers => startClaudeCode(program, servers);
    },
  },
  {
    title: `Codex ${CODEX}`,
    install: async signal => {
      const program = await npmProgram('@openai/codex', CODEX, 'codex', signal);
      return servers => startCodex(program, servers);
    },
  },
  {
    title: `Python mcp ${MCP}`,
    install: async signal => {
      const program = await python(signal);
      return servers => startLibrary(program, [fileOf('client.py'), 'mcp'], servers);
    },
  },
  {
    title: `fastmcp ${FASTMCP}`,
    install: async signal => {
      const program = await python(signal);
      return servers => startLibrary(program, [fileOf('client.py'), 'fastmcp'], servers);
    },
  },
  {
    title: 'Go SDK 1.8.0',
    install: async signal => {
      const program = await goProgram(signal);
      return servers => startLibrary(program, [], servers);
    },
  },
];

/** An agent with the mock model behind it, and a home folder of its own. */
export async function startAgent(
  start: (home: string, model: string) => Promise<Child>,
  toolName: (server: string, tool: string) => string,
): Promise<Client> {
  await using opening = new AsyncDisposableStack();
  const { path: home } = opening.use(temporaryFolder());
  const model = opening.use(await startModel());
  const child = opening.use(await start(home, model.origin));
  const opened = opening.move();
  const died = child.ended.then(code => {
    throw new Error(`it ended with ${code}: ${child.output()}`);
  });
  died.catch(() => {});
  return {
    shown: () => Promise.race([model.shown, died]),
    call: (server, tool, input) => Promise.race([model.call(toolName(server, tool), input), died]),
    async [Symbol.asyncDispose]() {
      await opened.disposeAsync();
    },
  };
}

/** Nothing of the person who runs this reaches the agent: no login, no settings, no keys. */
export const bareEnvironment = (home: string, servers: Servers): NodeJS.ProcessEnv => ({
  PATH: process.env['PATH'],
  HOME: home,
  TMPDIR: home,
  ...Object.values(servers).find(({ browser }) => browser)?.browser?.env,
});

/** The names of the servers at which a client must sign in. */
export const signInsOf = (servers: Servers): readonly string[] =>
  Object.entries(servers).flatMap(([name, { browser }]) => (browser ? [name] : []));

/** The words of a command that has a terminal, as people have. */
export const inTerminal = (...command: readonly string[]): [string, ...string[]] => [
  'script',
  '-qefc',
  // One without a size shows nothing.
  `stty cols 150 rows 50; exec ${command.map(word => `'${word}'`).join(' ')}`,
  '/dev/null',
];

const startClaudeCode = (program: string, servers: Servers) =>
  startAgent(
    async (home, model) => {
      const config = path.join(home, 'mcp.json');
      const mcpServers = Object.entries(servers).map(([name, { url, key }]) => [
        name,
        { type: 'http', url, headers: key === undefined ? {} : { 'X-API-Key': key } },
      ]);
      await writeFile(config, JSON.stringify({ mcpServers: Object.fromEntries(mcpServers) }));
      const env = {
        ...bareEnvironment(home, servers),
        CLAUDE_CONFIG_DIR: home,
        ANTHROPIC_BASE_URL: model,
        ANTHROPIC_API_KEY: 'none',
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
        DISABLE_AUTOUPDATER: '1',
        // Otherwise it begins without servers that are slow to connect.
        MCP_CONNECTION_NONBLOCKING: 'false',
        MCP_CONNECT_TIMEOUT_MS: '60000',
      };
      for (const name of signInsOf(servers)) {
        const add = [program, 'mcp', 'add', '--transport', 'http', name, servers[name]?.url ?? ''] as const;
        await runToItsEnd(add, { cwd: home, env });
        await runToItsEnd(inTerminal(program, 'mcp', 'login', name), { cwd: home, env });
      }
      const allowed = Object.keys(servers).map(name => `mcp__${name}`);
      const args = ['-p', 'Go.', '--mcp-config', config, '--strict-mcp-config', '--allowedTools', ...allowed];
      const child = startChild(program, args, { cwd: home, env });
      child.close();
      return child;
    },
    (server, tool) => `mcp__${server}__${tool}`,
  );

const startCodex = (program: string, servers: Servers) =>
  startAgent(
    async (home, model) => {
      const keys = Object.entries(servers).map(([name, { key }]) => [`KEY_OF_${name}`, key]);
      const tables = Object.entries(servers).map(([name, { url, key }]) =>
        [
          `[mcp_servers.${name}]`,
          `url = "${url}"`,
          'startup_timeout_sec = 60',
          'default_tools_approval_mode = "approve"',
          ...(key === undefined ? [] : [`bearer_token_env_var = "KEY_OF_${name}"`]),
        ].join('\n'),
      );
      await writeFile(path.join(home, 'config.toml'), [CODEX_CONFIG(model), ...tables].join('\n\n'));
      const env = { ...bareEnvironment(home, servers), ...Object.fromEntries(keys), CODEX_HOME: home };
      for (const name of signInsOf(servers))
        await runToItsEnd([program, 'mcp', 'login', name], { cwd: home, env });
      const child = startChild(program, ['exec', '--skip-git-repo-check', 'Go.'], { cwd: home, env });
      child.close();
      return child;
    },
    // Its names of tools have no hyphens.
    (server, tool) => `mcp__${server}/${tool.replaceAll('-', '_')}`,
  );

/** All models that Codex knows by name get 10,000 tokens of a result; others get fewer. */
const CODEX_CONFIG = (model: string) => `
model = "mock"
model_provider = "mock"
tool_output_token_limit = 10000
check_for_update_on_startup = false
approval_policy = "never"
sandbox_mode = "read-only"

[analytics]
enabled = false

[model_providers.mock]
name = "mock"
base_url = "${model}/v1"
wire_api = "responses"`;

/** A small program around an SDK, which takes a call and gives its result, each as a line of JSON. */
async function startLibrary(command: string, args: readonly string[], servers: Servers): Promise<Client> {
  const described = Object.entries(servers).map(([name, { url, key, browser }]) => [
    name,
    { url, headers: key === undefined ? {} : { 'X-API-Key': key }, signIn: browser !== undefined },
  ]);
  await using opening = new AsyncDisposableStack();
  const folder = opening.use(temporaryFolder()).path;
  const env = { ...bareEnvironment(folder, servers), SERVERS: JSON.stringify(Object.fromEntries(described)) };
  const child = opening.use(startChild(command, args, { env }));
  const opened = opening.move();
  const connected = child.line().then(line => textsIn(JSON.parse(line)));
  connected.catch(() => {});
  return {
    shown: () => connected,
    async call(server, tool, input) {
      await connected;
      child.write(JSON.stringify({ server, tool, input }));
      return givenIn(JSON.parse(await child.line()));
    },
    async [Symbol.asyncDispose]() {
      await opened.disposeAsync();
    },
  };
}

/** Returns what an application is given with a result of a tool. */
export function givenIn({ content = [], structuredContent: structured, isError = false }: Json): Given {
  const blocks: Json[] = content;
  return {
    texts: blocks.filter(({ type }) => type !== 'image').map(block => block['text'] ?? JSON.stringify(block)),
    images: blocks.filter(({ type }) => type === 'image').map(({ data }) => data),
    ...(structured === undefined ? {} : { structured }),
    isError,
  };
}
