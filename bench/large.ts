/**
 * Measures whether large answers hold up others: npm run bench:large -- [--sizes 100000,1000000,8000000] [--upstreams json,sse]
 * [--shapes text,objects] [--calls 5] [--json]
 *
 * One call after another, of a tool that answers so many characters, through a bare byte passthrough (the baseline) and four
 * doors of Switchboard, each side a process of its own. For every call: the longest time in which the event loop did nothing
 * else (monitorEventLoopDelay in the process), and the longest wait of a small request that is sent every few milliseconds
 * beside it. Both are printed as the median and the worst of the calls; `at rest` is the same time without a call.
 */
import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { Pool } from 'undici';
import { readOptions } from './command-line.ts';
import { openSession } from './load.ts';
import { startProcess, startProcessWith, startProgram } from './processes.ts';
import { percentile } from './measures.ts';
import { Probe } from './probe.ts';

const KEY = 'the-key-of-the-large-bench-of-32-characters';
/** A pause before each way: others may use the machine. */
const REST_MS = 500;

interface Way {
  readonly name: string;
  readonly pid: number;
  readonly probe: Probe;
  readonly pinger: Worker;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: (args: object) => object;
}

interface Turn {
  readonly ms: number;
  readonly bytes: number;
  readonly heldMs: number;
  readonly pingMs: number;
}

async function longestPing(pinger: Worker): Promise<number> {
  // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread has no origin
  pinger.postMessage('read');
  const [ms] = (await once(pinger, 'message')) as [number];
  return ms;
}

/** Sends the request and reads the response, without keeping it. */
function exchange(pool: Pool, way: Way, body: string): Promise<number> {
  return new Promise((resolve, reject) => {
    let status = 0;
    let bytes = 0;
    pool.dispatch(
      { path: new URL(way.url).pathname, method: 'POST', headers: way.headers, body },
      {
        onRequestStart() {},
        onResponseStart: (_controller, code) => (status = code),
        onResponseData: (_controller, chunk) => (bytes += chunk.length),
        onResponseEnd() {
          if (status === 200) resolve(bytes);
          else reject(new Error(`${way.name}: HTTP ${status}`));
        },
        onResponseError: (_controller, error) => reject(error),
      },
    );
  });
}

/** Makes the action the only load between two readings. */
async function measured(way: Way, action: () => Promise<number>): Promise<Turn> {
  await way.probe.read(way.pid);
  // No small request waits for that any more.
  await delay(20);
  await longestPing(way.pinger);
  const startedAt = performance.now();
  const bytes = await action();
  const ms = performance.now() - startedAt;
  // The rest of the work, and the delay of the timer that measures it.
  await delay(20);
  const pingMs = await longestPing(way.pinger);
  const { heldMs } = await way.probe.read(way.pid);
  return { ms, bytes, heldMs, pingMs };
}

const values = readOptions(
  'bench:large',
  {
    sizes: { type: 'string', default: '100000,1000000,8000000' },
    upstreams: { type: 'string', default: 'json,sse' },
    shapes: { type: 'string', default: 'text,objects' },
    calls: { type: 'string', default: '5' },
    json: { type: 'boolean' },
  },
  { upstreams: ['json', 'sse'], shapes: ['text', 'objects'] },
);
const calls = Number(values.calls);

await using stack = new AsyncDisposableStack();
const upstream = stack.use(await startProcess('bench/proxy/upstream.ts'));
const probes = { passthrough: new Probe('large-passthrough'), switchboard: new Probe('large-switchboard') };
const baseline = stack.use(
  await startProcessWith(
    { NODE_OPTIONS: probes.passthrough.nodeOptions },
    'bench/proxy/passthrough.ts',
    upstream.origin,
  ),
);
const { program } = stack.use(
  await startProgram(
    Object.fromEntries(values.upstreams.split(',').map(kind => [kind, `${upstream.origin}/${kind}`])),
    {
      SWITCHBOARD_API_KEY: KEY,
      SWITCHBOARD_RATE_LIMIT: 'off',
      NODE_OPTIONS: probes.switchboard.nodeOptions,
    },
  ),
);
const startPinger = (url: string) => {
  const pinger = new Worker(new URL('large/pinger.ts', import.meta.url), { workerData: url });
  stack.defer(async () => void (await pinger.terminate()));
  return pinger;
};
const pingers = {
  passthrough: startPinger(`${baseline.origin}/json`),
  switchboard: startPinger(`${program.url}/healthz`),
};

const message = (params: object) => ({ jsonrpc: '2.0', id: 1, method: 'tools/call', params });

async function waysTo(kind: string): Promise<Way[]> {
  const key = { 'x-api-key': KEY };
  const rest = { ...key, 'content-type': 'application/json' };
  const through = `${program.url}/mcp/${kind}`;
  const bare = `${baseline.origin}/${kind}`;
  const ours = { pid: program.pid, probe: probes.switchboard, pinger: pingers.switchboard };
  return [
    {
      name: 'passthrough',
      pid: baseline.pid,
      probe: probes.passthrough,
      pinger: pingers.passthrough,
      url: bare,
      headers: await openSession(bare),
      body: args => message({ name: 'echo', arguments: args }),
    },
    {
      ...ours,
      name: '/mcp/{id}',
      url: through,
      headers: await openSession(through, key),
      body: args => message({ name: 'echo', arguments: args }),
    },
    {
      ...ours,
      name: '/v1/mcp/call',
      url: `${program.url}/v1/mcp/call`,
      headers: rest,
      body: args => ({
        server_id: kind,
        method: 'tools/call',
        params: { name: 'echo', arguments: args },
      }),
    },
    {
      ...ours,
      name: '/v1/mcp/tools/call',
      url: `${program.url}/v1/mcp/tools/call`,
      headers: rest,
      body: args => ({ server_id: kind, name: 'echo', arguments: args }),
    },
    {
      ...ours,
      name: '/mcp',
      url: `${program.url}/mcp`,
      headers: { ...rest, accept: 'application/json, text/event-stream' },
      body: args =>
        message({
          name: 'call_remote_tool',
          arguments: { server_id: kind, tool_name: 'echo', arguments: args },
        }),
    },
  ];
}

async function measure(way: Way, args: { shape: string; size: number }): Promise<Turn[]> {
  const pool = new Pool(new URL(way.url).origin, { connections: 1, pipelining: 1 });
  const body = JSON.stringify(way.body(args));
  await delay(REST_MS);
  // Sessions, listings and the heap's growth are not measured.
  for (let warm = 0; warm < 3; warm++) {
    const bytes = await exchange(pool, way, body);
    // `/mcp` cuts long results.
    if (way.name !== '/mcp' && bytes < args.size * 0.8) throw new Error(`${way.name}: only ${bytes} bytes`);
  }
  const turns: Turn[] = [];
  for (let call = 0; call < calls; call++) turns.push(await measured(way, () => exchange(pool, way, body)));
  await pool.close();
  return turns;
}

const WIDTHS = [24, 12, 12, 20, 20];
const print = (cells: readonly string[]) =>
  console.log(
    cells.map((cell, at) => (at === 0 ? cell.padEnd(24) : cell.padStart(WIDTHS[at] ?? 12))).join(''),
  );
const both = (turns: readonly Turn[], field: 'heldMs' | 'pingMs') => {
  const list = turns.map(turn => turn[field]);
  return `${percentile(list, 0.5).toFixed(1)} (${Math.max(...list).toFixed(1)})`;
};

function report(name: string, turns: readonly Turn[], cell: object): void {
  if (values.json) {
    console.log(JSON.stringify({ ...cell, name, turns }));
    return;
  }
  const ms = percentile(
    turns.map(turn => turn.ms),
    0.5,
  );
  const rate = (turns[0]?.bytes ?? 0) / 1000 / ms;
  print([name, ms.toFixed(1), rate.toFixed(1), both(turns, 'heldMs'), both(turns, 'pingMs')]);
}

for (const kind of values.upstreams.split(',')) {
  const ways = await waysTo(kind);
  for (const shape of values.shapes.split(',')) {
    for (const size of values.sizes.split(',').map(Number)) {
      if (!values.json) {
        console.log(`\n${kind}, ${shape}, ${size} characters`);
        print(['', 'ms', 'MB/s', 'loop held ms', 'small request ms']);
      }
      for (const way of ways) report(way.name, await measure(way, { size, shape }), { kind, shape, size });
    }
  }
  for (const way of ways.slice(0, 2)) {
    const turns: Turn[] = [];
    for (let call = 0; call < calls; call++) turns.push(await measured(way, () => delay(50, 0)));
    report(`${way.name}, at rest`, turns, { kind });
  }
}
