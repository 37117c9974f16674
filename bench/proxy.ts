/**
 * Measures what a proxied call costs: npm run bench:proxy -- [--connections 1,16,64] [--sizes 1000,100000]
 * [--upstreams json,sse] [--rounds 5] [--seconds 1] [--json]
 *
 * The same tool call six ways: direct, through a bare byte passthrough (the baseline), and through Switchboard by
 * `/v1/mcp/call`, `/v1/mcp/tools/call` (without, with a key, and with a token of the server's own sign-in) and `/mcp/{server_id}`, with keys, limits, log and usage on. Upstream, passthrough,
 * Switchboard and this load generator are a process each. In every round each way has its turn, so that all see the same
 * machine; figures are compared within a round, and printed as median [lowest, highest] over the rounds. CPU is the
 * process's own user and system time a request, from /proc (Linux).
 */
import { execFile as execFileWithCallback } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { parseArgs, promisify } from 'node:util';
import { temporaryFolder } from '../test/support/program.ts';
import { startAuthorizationServer } from '../test/support/authorization/server.ts';
import { UserAgent } from '../test/support/user-agent.ts';
import { percentile, startProcess, startProgram } from './processes.ts';

const KEY = 'the-key-of-the-proxy-bench-of-32-characters';
const TICKS_PER_SECOND = 100;
const execFile = promisify(execFileWithCallback);

interface Way {
  readonly name: string;
  readonly pid: number;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: (size: number) => string;
}

interface Turn {
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** Microseconds of processor time a request. */
  readonly cpuUs: number;
}

/** The last line of `load.lua`. Times are in microseconds. */
interface Seen {
  readonly requests: number;
  readonly us: number;
  readonly failed: number;
  readonly p50: number;
  readonly p99: number;
}

/** Seconds of processor time the process has used. */
function cpuSeconds(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
}

/** Sends the request over so many connections with wrk, each as soon as its last answer is whole, for so many seconds. */
async function load(way: Way, body: string, connections: number, seconds: number): Promise<Turn> {
  const files = { WRK_HEADERS: path.join(folder.path, 'headers'), WRK_BODY: path.join(folder.path, 'body') };
  const headers = Object.entries(way.headers).map(([name, value]) => `${name}: ${value}`);
  await Promise.all([writeFile(files.WRK_HEADERS, headers.join('\n')), writeFile(files.WRK_BODY, body)]);
  const cpuBefore = cpuSeconds(way.pid);
  const args = ['-t1', `-c${connections}`, `-d${seconds}s`, '--timeout', '10s', '-s', 'bench/proxy/load.lua', way.url];
  const { stdout } = await execFile('wrk', args, { env: { ...process.env, ...files } });
  const cpuUs = (cpuSeconds(way.pid) - cpuBefore) * 1e6;
  const seen = JSON.parse(stdout.slice(stdout.lastIndexOf('{'))) as Seen;
  if (seen.failed > 0) throw new Error(`${way.name}: ${seen.failed} of ${seen.requests} requests failed`);
  return {
    perSecond: seen.requests / (seen.us / 1e6),
    p50Ms: seen.p50 / 1000,
    p99Ms: seen.p99 / 1000,
    cpuUs: cpuUs / seen.requests,
  };
}

/** The id of a new session (2025-06-18), from whoever answers at this URL. */
async function openSession(url: string, headers: Readonly<Record<string, string>>): Promise<string> {
  const response = await fetch(url, {
    method: 'POST',
    headers: { ...headers, ...MCP_HEADERS },
    body: JSON.stringify({
      jsonrpc: '2.0',
      id: 1,
      method: 'initialize',
      params: {
        protocolVersion: '2025-06-18',
        capabilities: {},
        clientInfo: { name: 'bench', version: '1' },
      },
    }),
  });
  await response.arrayBuffer();
  const id = response.headers.get('mcp-session-id');
  if (id === null) throw new Error(`${url} opened no session: HTTP ${response.status}`);
  return id;
}

const MCP_HEADERS = {
  'content-type': 'application/json',
  accept: 'application/json, text/event-stream',
  'mcp-protocol-version': '2025-06-18',
};
/** The same upstream as a server of its own, which is called with a key. */
function keyed(kind: string): string {
  return `${kind}-keyed`;
}
const call = (size: number) => ({ name: 'echo', arguments: { size } });
const mcpBody = (size: number) =>
  JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: call(size) });

const { values } = parseArgs({
  options: {
    connections: { type: 'string', default: '1,16,64' },
    sizes: { type: 'string', default: '1000,100000' },
    upstreams: { type: 'string', default: 'json,sse' },
    rounds: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '1' },
    json: { type: 'boolean' },
  },
});
const numbers = (list: string) => list.split(',').map(Number);

await using stack = new AsyncDisposableStack();
const upstream = stack.use(await startProcess('bench/proxy/upstream.ts'));
const baseline = stack.use(await startProcess('bench/proxy/passthrough.ts', upstream.origin));
const authorizationServer = stack.use(await startAuthorizationServer());
const folder = stack.use(temporaryFolder());
const switchboard = stack.use(
  await startProgram(
    Object.fromEntries(
      ['json', 'sse'].flatMap(kind => [kind, keyed(kind)].map(id => [id, `${upstream.origin}/${kind}`])),
    ),
    { SWITCHBOARD_API_KEY: KEY, SWITCHBOARD_RATE_LIMIT: 'proxy=10000000/60', LOG_LEVEL: 'info' },
    path.join(folder.path, 'log'),
  ),
).program;

/** Stores a key that calls to a server carry from then on. Returns the headers. */
async function connected(serverId: string, headers: Readonly<Record<string, string>>) {
  const response = await fetch(`${switchboard.url}/v1/admin/connections`, {
    method: 'PUT',
    headers,
    body: JSON.stringify({ server_id: serverId, values: { token: 'the-key-of-the-upstream-of-the-bench' } }),
  });
  if (!response.ok) throw new Error(`no connection: ${await response.text()}`);
  return headers;
}

/** The same upstream as a server with a sign-in of its own, which is called with a token. */
const signedIn = (kind: string) => `${kind}-signed-in`;

/** Signs in at a server's authorization server. Returns the headers of calls that carry its token. */
async function withToken(kind: string, headers: Readonly<Record<string, string>>) {
  const serverId = signedIn(kind);
  const auth = { kind: 'oauth', issuer: authorizationServer.issuer };
  const entry = {
    id: serverId,
    name: serverId,
    description: serverId,
    remote_url: `${upstream.origin}/${kind}`,
    auth,
  };
  const admin = async (endpoint: string, body: string, type = 'application/json') => {
    const init = { method: 'POST', headers: { ...headers, 'content-type': type }, body };
    const response = await fetch(`${switchboard.url}/v1/admin${endpoint}`, init);
    if (!response.ok) throw new Error(`${endpoint}: ${await response.text()}`);
    return (await response.json()) as { readonly auth_url: string };
  };
  await admin('/catalogue/import', JSON.stringify(entry), 'application/x-ndjson');
  const agent = new UserAgent();
  const { auth_url: link } = await admin('/connections/session', JSON.stringify({ server_id: serverId }));
  const done = await agent.follow(await agent.submit(await agent.get(link)));
  if (done.status !== 200) throw new Error(`no sign-in: ${done.html}`);
  return headers;
}

/** The seven ways to one upstream. */
async function waysTo(kind: string): Promise<Way[]> {
  const direct = `${upstream.origin}/${kind}`;
  const through = `${switchboard.url}/mcp/${kind}`;
  const key = { 'x-api-key': KEY };
  const session = async (url: string, headers = {}) => ({
    ...MCP_HEADERS,
    ...headers,
    'mcp-session-id': await openSession(url, headers),
  });
  const rest = { ...key, 'content-type': 'application/json' };
  const { pid } = switchboard;
  return [
    { name: 'direct', pid: upstream.pid, url: direct, headers: await session(direct), body: mcpBody },
    {
      name: 'passthrough',
      pid: baseline.pid,
      url: `${baseline.origin}/${kind}`,
      headers: await session(direct),
      body: mcpBody,
    },
    {
      name: '/v1/mcp/call',
      pid,
      url: `${switchboard.url}/v1/mcp/call`,
      headers: rest,
      body: size => JSON.stringify({ server_id: kind, method: 'tools/call', params: call(size) }),
    },
    {
      name: '/v1/mcp/tools/call',
      pid,
      url: `${switchboard.url}/v1/mcp/tools/call`,
      headers: rest,
      body: size => JSON.stringify({ server_id: kind, ...call(size) }),
    },
    {
      name: 'tools/call with a key',
      pid,
      url: `${switchboard.url}/v1/mcp/tools/call`,
      headers: await connected(keyed(kind), rest),
      body: size => JSON.stringify({ server_id: keyed(kind), ...call(size) }),
    },
    {
      name: 'tools/call with a token',
      pid,
      url: `${switchboard.url}/v1/mcp/tools/call`,
      headers: await withToken(kind, rest),
      body: size => JSON.stringify({ server_id: signedIn(kind), ...call(size) }),
    },
    {
      name: '/mcp/{id}',
      pid,
      url: through,
      headers: await session(through, key),
      body: mcpBody,
    },
  ];
}

const median = (list: readonly number[]) => percentile(list, 0.5);
const spread = (list: readonly number[]) =>
  `${median(list).toFixed(2)} [${Math.min(...list).toFixed(2)}, ${Math.max(...list).toFixed(2)}]`;

const seconds = Number(values.seconds);
for (const kind of values.upstreams.split(',')) {
  const ways = await waysTo(kind);
  for (const way of ways) await load(way, way.body(1000), 16, 2);
  for (const size of numbers(values.sizes)) {
    for (const connections of numbers(values.connections)) {
      const turns = new Map<Way, Turn[]>(ways.map(way => [way, []]));
      for (let round = 0; round < Number(values.rounds); round++) {
        for (const way of round % 2 === 0 ? ways : ways.toReversed())
          turns.get(way)?.push(await load(way, way.body(size), connections, seconds));
      }
      report({ kind, size, connections }, turns);
    }
  }
}

function report(cell: { kind: string; size: number; connections: number }, turns: Map<Way, Turn[]>): void {
  const base = [...turns].find(([way]) => way.name === 'passthrough')?.[1] ?? [];
  const row = (title: string, cells: readonly string[]) =>
    `${title.padEnd(24)}${cells.map(text => text.padStart(20)).join('')}`;
  if (!values.json) {
    console.log(`\n${cell.kind}, ${cell.size} characters, ${cell.connections} connections`);
    console.log(row('', ['requests/s', 'p50 ms', 'p99 ms', 'CPU us', 'rate', 'p50 ratio', 'CPU ratio']));
  }
  for (const [{ name }, own] of turns) {
    const ratio = (of: keyof Turn) => own.map((turn, at) => turn[of] / (base[at]?.[of] ?? Number.NaN));
    const of = (field: keyof Turn) => median(own.map(turn => turn[field]));
    const ratios = { rate: ratio('perSecond'), p50: ratio('p50Ms'), cpu: ratio('cpuUs') };
    if (values.json) {
      console.log(JSON.stringify({ ...cell, name, turns: own, ratios }));
      continue;
    }
    const absolute = [of('perSecond').toFixed(0), of('p50Ms').toFixed(2), of('p99Ms').toFixed(2)];
    console.log(
      row(name, [
        ...absolute,
        of('cpuUs').toFixed(0),
        spread(ratios.rate),
        spread(ratios.p50),
        spread(ratios.cpu),
      ]),
    );
  }
}
