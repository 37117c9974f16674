/**
 * Measures what a proxied call costs: npm run bench:proxy -- [--connections 1,16,64] [--sizes 1000,100000]
 * [--upstreams json,sse] [--rounds 5] [--seconds 1] [--json]
 *
 * The same tool call five ways: direct, through a bare byte passthrough (the baseline), and through Switchboard by
 * `/v1/mcp/call`, `/v1/mcp/tools/call` and `/mcp/{server_id}`, with keys, limits, log and usage on. Upstream, passthrough,
 * Switchboard and this load generator are a process each. In every round each way has its turn, so that all see the same
 * machine; figures are compared within a round, and printed as median [lowest, highest] over the rounds. CPU is the
 * process's own user and system time a request, from /proc (Linux).
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Pool } from 'undici';

const KEY = 'the-key-of-the-proxy-bench-of-32-characters';
const TICKS_PER_SECOND = 100;
const here = (file: string) => fileURLToPath(new URL(file, import.meta.url));

interface Way {
  readonly name: string;
  readonly process: ChildProcess;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: (size: number) => string;
}

interface Turn {
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly cpuMs: number;
}

/** Starts a process and waits for a line that names where it listens. */
async function start(args: readonly string[], env: Record<string, string> = {}, log?: number) {
  const child = spawn(process.execPath, args, {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', log ?? 'inherit'],
  });
  const { stdout } = child;
  if (!stdout) throw new Error('no pipe to the process');
  for await (const line of createInterface({ input: stdout })) {
    const origin = /http:\/\/127\.0\.0\.1:\d+/.exec(line)?.[0];
    if (origin !== undefined) {
      stdout.resume();
      return { child, origin };
    }
  }
  throw new Error(`${args.join(' ')} ended before it listened`);
}

/** Seconds of processor time the process has used. */
function cpuSeconds({ pid }: ChildProcess): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
}

/** Sends the request over so many connections, each as soon as its last answer is whole, for so long. */
async function load(way: Way, body: string, connections: number, seconds: number): Promise<Turn> {
  const { origin, pathname } = new URL(way.url);
  const pool = new Pool(origin, { connections, pipelining: 1 });
  const times: number[] = [];
  const post = () =>
    new Promise<void>((resolve, reject) => {
      const startedAt = performance.now();
      let status = 0;
      pool.dispatch(
        { path: pathname, method: 'POST', headers: way.headers, body },
        {
          onRequestStart() {},
          onResponseStart: (_controller, code) => (status = code),
          onResponseData() {},
          onResponseEnd() {
            times.push(performance.now() - startedAt);
            if (status === 200) resolve();
            else reject(new Error(`${way.name}: HTTP ${status}`));
          },
          onResponseError: (_controller, error) => reject(error),
        },
      );
    });
  // Each connection is opened, and the other side's buffers have grown, before the clock starts.
  await Promise.all(Array.from({ length: connections }, post));
  times.length = 0;
  const cpuBefore = cpuSeconds(way.process);
  const startedAt = performance.now();
  const endsAt = startedAt + seconds * 1000;
  const keepOn = async () => {
    while (performance.now() < endsAt) await post();
  };
  await Promise.all(Array.from({ length: connections }, keepOn));
  const elapsedMs = performance.now() - startedAt;
  const cpuMs = ((cpuSeconds(way.process) - cpuBefore) * 1000) / times.length;
  await pool.close();
  const sorted = times.toSorted((a, b) => a - b);
  const at = (share: number) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
  return { perSecond: (times.length * 1000) / elapsedMs, p50Ms: at(0.5), p99Ms: at(0.99), cpuMs };
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
const folder = mkdtempSync(path.join(tmpdir(), 'sb-'));
stack.defer(() => rmSync(folder, { recursive: true }));
const running = async (args: readonly string[], env?: Record<string, string>, log?: number) => {
  const started = await start(args, env, log);
  stack.defer(async () => {
    started.child.kill('SIGTERM');
    await once(started.child, 'exit');
  });
  return started;
};
const upstream = await running([here('proxy/upstream.ts')]);
const baseline = await running([here('proxy/passthrough.ts'), upstream.origin]);
const catalogue = path.join(folder, 'catalogue.jsonl');
const entry = (id: string) =>
  JSON.stringify({
    id,
    name: id,
    description: `The ${id} upstream.`,
    remote_url: `${upstream.origin}/${id}`,
  });
writeFileSync(catalogue, `${entry('json')}\n${entry('sse')}\n`);
const switchboard = await running(
  ['--max-semi-space-size=16', here('../bin/switchboard.js'), 'serve'],
  {
    PORT: '0',
    SWITCHBOARD_DATA_DIR: path.join(folder, 'data'),
    SWITCHBOARD_CATALOGUE: catalogue,
    SWITCHBOARD_API_KEY: KEY,
    SWITCHBOARD_ALLOW_PRIVATE_NETWORK: 'true',
    SWITCHBOARD_RATE_LIMIT: 'search=300/60,proxy=10000000/60,refresh=600/60,sessions=120/60,revoke=60/60',
  },
  openSync(path.join(folder, 'log'), 'w'),
);

/** The five ways to one upstream. */
async function waysTo(kind: string): Promise<Way[]> {
  const direct = `${upstream.origin}/${kind}`;
  const through = `${switchboard.origin}/mcp/${kind}`;
  const key = { 'x-api-key': KEY };
  const session = async (url: string, headers = {}) => ({
    ...MCP_HEADERS,
    ...headers,
    'mcp-session-id': await openSession(url, headers),
  });
  const rest = { ...key, 'content-type': 'application/json' };
  const sb = switchboard.child;
  return [
    { name: 'direct', process: upstream.child, url: direct, headers: await session(direct), body: mcpBody },
    {
      name: 'passthrough',
      process: baseline.child,
      url: `${baseline.origin}/${kind}`,
      headers: await session(direct),
      body: mcpBody,
    },
    {
      name: '/v1/mcp/call',
      process: sb,
      url: `${switchboard.origin}/v1/mcp/call`,
      headers: rest,
      body: size => JSON.stringify({ server_id: kind, method: 'tools/call', params: call(size) }),
    },
    {
      name: '/v1/mcp/tools/call',
      process: sb,
      url: `${switchboard.origin}/v1/mcp/tools/call`,
      headers: rest,
      body: size => JSON.stringify({ server_id: kind, ...call(size) }),
    },
    ...(process.env['NOPASS']
      ? []
      : [
          {
            name: '/mcp/{id}',
            process: sb,
            url: through,
            headers: await session(through, key),
            body: mcpBody,
          },
        ]),
  ];
}

const median = (list: readonly number[]) => list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)] ?? 0;
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
    `${title.padEnd(20)}${cells.map(text => text.padStart(20)).join('')}`;
  if (!values.json) {
    console.log(`\n${cell.kind}, ${cell.size} characters, ${cell.connections} connections`);
    console.log(row('', ['requests/s', 'p50 ms', 'p99 ms', 'CPU ms', 'rate', 'p50 ratio', 'CPU ratio']));
  }
  for (const [{ name }, own] of turns) {
    const ratio = (of: keyof Turn) => own.map((turn, at) => turn[of] / (base[at]?.[of] ?? Number.NaN));
    const of = (field: keyof Turn) => median(own.map(turn => turn[field]));
    const ratios = { rate: ratio('perSecond'), p50: ratio('p50Ms'), cpu: ratio('cpuMs') };
    if (values.json) {
      console.log(JSON.stringify({ ...cell, name, turns: own, ratios }));
      continue;
    }
    const absolute = [of('perSecond').toFixed(0), of('p50Ms').toFixed(2), of('p99Ms').toFixed(2)];
    console.log(
      row(name, [
        ...absolute,
        of('cpuMs').toFixed(3),
        spread(ratios.rate),
        spread(ratios.p50),
        spread(ratios.cpu),
      ]),
    );
  }
}
