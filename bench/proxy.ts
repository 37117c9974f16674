/**
 * Measures the cost of a proxied call: npm run bench:proxy -- [--connections 1,16,64] [--sizes 1000,100000]
 * [--upstreams json,sse] [--ways NAME,…] [--rounds 5] [--seconds 2] [--quiet CORES] [--json]
 *
 * The same tool call is sent directly, through a bare byte passthrough (the baseline), and through Switchboard in several ways,
 * with keys, limits, log and usage on. The load comes from wrk, which must be installed. Upstream, passthrough and Switchboard
 * are a process each. In every round each way has its turn, so that all see the same machine; figures are compared within a
 * round, and printed as median [lowest, highest] over the rounds. CPU is the process's own user and system time per request,
 * from /proc (Linux).
 */
import path from 'node:path';
import { startAuthorizationServer } from '../test/support/authorization/server.ts';
import { temporaryFolder } from '../test/support/program.ts';
import { UserAgent } from '../test/support/user-agent.ts';
import { readOptions, requireProgram, refuse } from './command-line.ts';
import { MCP_HEADERS, openSession, type Load } from './load.ts';
import { startProcess, startProgram } from './processes.ts';
import { printResults, takeTurns, warmUp, type Rounds } from './rounds.ts';

const BASELINE = 'passthrough';
/** Turns that other work disturbed are taken again for so long, for each number of connections. */
const PATIENCE_MINUTES = 2;
const KEY = 'the-key-of-the-proxy-bench-of-32-characters';

interface Way extends Omit<Load, 'body'> {
  readonly bodyFor: (size: number) => string;
}

/** The same upstream as a server of its own, which is called with a key. */
function keyed(kind: string): string {
  return `${kind}-keyed`;
}
const call = (size: number) => ({ name: 'echo', arguments: { size } });
const mcpBody = (size: number) =>
  JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: call(size) });

const values = readOptions(
  'bench:proxy',
  {
    connections: { type: 'string', default: '1,16,64' },
    sizes: { type: 'string', default: '1000,100000' },
    upstreams: { type: 'string', default: 'json,sse' },
    ways: { type: 'string' },
    rounds: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '2' },
    quiet: { type: 'string', default: 'Infinity' },
    json: { type: 'boolean' },
  },
  { upstreams: ['json', 'sse'] },
);
requireProgram('wrk', 'Debian and Ubuntu have it as the package wrk.');
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

/** Creates a key with a monthly quota. Returns its headers. */
async function withQuota(headers: Readonly<Record<string, string>>) {
  const response = await fetch(`${switchboard.url}/v1/admin/keys`, {
    method: 'POST',
    headers,
    body: JSON.stringify({ name: 'bench', monthly_quota: { calls: 1_000_000_000 } }),
  });
  if (!response.ok) throw new Error(`no key: ${await response.text()}`);
  const { key } = (await response.json()) as { readonly key: string };
  return { ...headers, 'x-api-key': key };
}

/** Returns the ways to one upstream. */
async function waysTo(kind: string): Promise<Way[]> {
  const direct = `${upstream.origin}/${kind}`;
  const through = `${switchboard.url}/mcp/${kind}`;
  const key = { 'x-api-key': KEY };
  const rest = { ...key, 'content-type': 'application/json' };
  const { pid } = switchboard;
  const toolsCall = (name: string, server: string, headers: Readonly<Record<string, string>>) => ({
    name,
    pid,
    url: `${switchboard.url}/v1/mcp/tools/call`,
    headers,
    bodyFor: (size: number) => JSON.stringify({ server_id: server, ...call(size) }),
  });
  return [
    { name: 'direct', pid: upstream.pid, url: direct, headers: await openSession(direct), bodyFor: mcpBody },
    {
      name: BASELINE,
      pid: baseline.pid,
      url: `${baseline.origin}/${kind}`,
      headers: await openSession(direct),
      bodyFor: mcpBody,
    },
    {
      name: '/v1/mcp/call',
      pid,
      url: `${switchboard.url}/v1/mcp/call`,
      headers: rest,
      bodyFor: size => JSON.stringify({ server_id: kind, method: 'tools/call', params: call(size) }),
    },
    toolsCall('/v1/mcp/tools/call', kind, rest),
    toolsCall('tools/call with a quota', kind, await withQuota(rest)),
    toolsCall('tools/call with a key', keyed(kind), await connected(keyed(kind), rest)),
    toolsCall('tools/call with a token', signedIn(kind), await withToken(kind, rest)),
    {
      name: '/mcp/{server_id}',
      pid,
      url: through,
      headers: await openSession(through, key),
      bodyFor: mcpBody,
    },
    {
      name: '/mcp',
      pid,
      url: `${switchboard.url}/mcp`,
      headers: { ...MCP_HEADERS, ...key },
      bodyFor: size =>
        JSON.stringify({
          jsonrpc: '2.0',
          id: 1,
          method: 'tools/call',
          params: {
            name: 'call_remote_tool',
            arguments: { server_id: kind, tool_name: 'echo', arguments: { size } },
          },
        }),
    },
  ];
}

const loadOf = ({ bodyFor, ...way }: Way, size: number): Load => ({
  ...way,
  body: bodyFor(size),
  answerBytes: size,
});

const rounds: Rounds = {
  rounds: Number(values.rounds),
  seconds: Number(values.seconds),
  pauseSeconds: 0,
  othersCores: Number(values.quiet),
  patienceSeconds: PATIENCE_MINUTES * 60,
};
const chosen = values.ways?.split(',');
for (const kind of values.upstreams.split(',')) {
  const all = await waysTo(kind);
  const names = all.map(({ name }) => name);
  const unknown = chosen?.find(name => !names.includes(name));
  if (unknown !== undefined) refuse(`There is no way ${unknown}. The ways are ${names.join(', ')}.`);
  const ways = all.filter(({ name }) => name === BASELINE || (chosen?.includes(name) ?? true));
  for (const size of numbers(values.sizes)) {
    const loads = ways.map(way => loadOf(way, size));
    const base = loads.find(({ name }) => name === BASELINE);
    if (!base) throw new Error('There is no baseline.');
    await warmUp(loads, rounds);
    for (const connections of numbers(values.connections)) {
      const results = await takeTurns(loads, connections, rounds);
      printResults({ upstream: kind, characters: size, connections }, results, base, values.json ?? false);
    }
  }
}
