/**
 * Accounts for the microseconds of a proxied call: npm run bench:account -- [--path /v1/mcp/tools/call] [--connections 16]
 * [--seconds 5] [--functions 20] [--size 1000] [--upstream json|sse]
 *
 * Runs Switchboard with V8's sampling profiler under the load of `bench:proxy` (wrk, an answer of so many characters) and prints how
 * much of a call's processor time each part takes, and the functions that take most. The profiler sees the main thread only and
 * costs time itself, so the shares are exact and the sum is the processor time of the same load without it, measured first.
 */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { temporaryFolder } from '../test/support/program.ts';
import { readOptions, requireProgram } from './command-line.ts';
import { load, MCP_HEADERS, openSession, type Load } from './load.ts';
import { startProcess, startProgram } from './processes.ts';
import { warmUp } from './rounds.ts';

const KEY = 'the-key-of-the-account-bench-of-32-characters';
const INTERVAL_US = 200;

const values = readOptions(
  'bench:account',
  {
    path: { type: 'string', default: '/v1/mcp/tools/call' },
    connections: { type: 'string', default: '16' },
    seconds: { type: 'string', default: '5' },
    functions: { type: 'string', default: '20' },
    size: { type: 'string', default: '1000' },
    upstream: { type: 'string', default: 'json' },
  },
  { upstream: ['json', 'sse'], path: ['/v1/mcp/call', '/v1/mcp/tools/call', '/mcp', '/mcp/up'] },
);
requireProgram('wrk', 'Debian and Ubuntu have it as the package wrk.');

interface Frame {
  readonly functionName: string;
  readonly url: string;
  readonly lineNumber: number;
}

interface Profile {
  readonly nodes: readonly { readonly id: number; readonly callFrame: Frame; readonly children?: number[] }[];
  /** Microseconds of the machine's monotonic clock. */
  readonly startTime: number;
  readonly samples: readonly number[];
  readonly timeDeltas: readonly number[];
}

const IDLE = '(idle)';
const WRITES = new Set(['writev', 'writeBuffer', 'writeUtf8String', 'writeLatin1String']);
const NATIVE: Readonly<Record<string, string>> = {
  '(garbage collector)': 'garbage collection',
  '(program)': 'V8 and libuv outside of any function',
  runMicrotasks: 'promises',
};

/** Returns a source as it is known in the repository, or as `package/file`. */
function sourceOf({ url }: Frame): string {
  const modules = url.lastIndexOf('/node_modules/');
  if (modules >= 0) return url.slice(modules + '/node_modules/'.length);
  const own = url.indexOf('/src/');
  return own >= 0 ? url.slice(own + 1) : url;
}

/** Returns the part of the program that a function belongs to. */
function partOf(frame: Frame): string {
  const source = sourceOf(frame);
  if (source === '')
    return WRITES.has(frame.functionName)
      ? 'writes to sockets (kernel)'
      : (NATIVE[frame.functionName] ?? 'other native functions');
  if (source.startsWith('node:internal/deps/undici') || source.startsWith('undici/'))
    return 'undici: HTTP to the server';
  if (source.startsWith('node:')) return 'node:http, streams, timers, events';
  if (source.startsWith('src/')) return source.split('/').slice(0, 3).join('/');
  const [scope = '', name = ''] = source.split('/');
  return scope.startsWith('@') ? `${scope}/${name}` : scope;
}

/** Returns the frame of each node. WebAssembly counts for the function that called it: its own frames have no file. */
function framesOf({ nodes }: Profile): Map<number, Frame> {
  const frames = new Map(nodes.map(({ id, callFrame }) => [id, callFrame]));
  // A caller comes before the functions that it calls.
  for (const { id, children = [] } of nodes) {
    const caller = frames.get(id);
    for (const child of children)
      if (caller && frames.get(child)?.url.startsWith('wasm:')) frames.set(child, caller);
  }
  return frames;
}

/** Returns the microseconds that each name took between two times. */
function sumBy(
  profile: Profile,
  [from, to]: readonly [number, number],
  nameOf: (frame: Frame) => string,
): Map<string, number> {
  const frames = framesOf(profile);
  const sums = new Map<string, number>();
  let at = profile.startTime;
  for (const [index, id] of profile.samples.entries()) {
    const delta = profile.timeDeltas[index] ?? 0;
    at += delta;
    const frame = frames.get(id);
    if (!frame || at < from || at > to || frame.functionName === IDLE) continue;
    const name = nameOf(frame);
    sums.set(name, (sums.get(name) ?? 0) + delta);
  }
  return sums;
}

const size = Number(values.size);

/** Starts the program and returns its load. @param env more settings */
async function startLoad(stack: AsyncDisposableStack, origin: string, env: Readonly<Record<string, string>>) {
  const folder = stack.use(temporaryFolder());
  const settings = {
    SWITCHBOARD_API_KEY: KEY,
    SWITCHBOARD_RATE_LIMIT: 'proxy=10000000/60',
    LOG_LEVEL: 'info',
  };
  const { program } = stack.use(
    await startProgram(
      { up: `${origin}/${values.upstream}` },
      { ...settings, ...env },
      path.join(folder.path, 'log'),
    ),
  );
  const url = `${program.url}${values.path}`;
  const key = { 'x-api-key': KEY };
  const rpc = (name: string, args: object) =>
    JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: args } });
  const isRest = values.path.startsWith('/v1/');
  const restHeaders = { ...key, 'content-type': 'application/json' };
  const bodies: Readonly<Record<string, string>> = {
    '/v1/mcp/call': JSON.stringify({
      server_id: 'up',
      method: 'tools/call',
      params: { name: 'echo', arguments: { size } },
    }),
    '/v1/mcp/tools/call': JSON.stringify({ server_id: 'up', name: 'echo', arguments: { size } }),
    '/mcp': rpc('call_remote_tool', { server_id: 'up', tool_name: 'echo', arguments: { size } }),
    '/mcp/up': rpc('echo', { size }),
  };
  const body = bodies[values.path];
  if (body === undefined) throw new Error(`There is no request for ${values.path}.`);
  const headers =
    values.path === '/mcp/up'
      ? await openSession(url, key)
      : isRest
        ? restHeaders
        : { ...MCP_HEADERS, ...key };
  const way: Load = { name: values.path, pid: program.pid, url, headers, body, answerBytes: size };
  return { way, program };
}

/** Returns microseconds of the clock that profiles use. */
const nowUs = () => Number(process.hrtime.bigint() / 1000n);

const NO_PAUSE = { pauseSeconds: 0 };
const connections = Number(values.connections);
const seconds = Number(values.seconds);

await using stack = new AsyncDisposableStack();
const upstream = stack.use(await startProcess('bench/proxy/upstream.ts'));
const profiles = stack.use(temporaryFolder());

const { way: plain } = await startLoad(stack, upstream.origin, {});
await warmUp([plain], NO_PAUSE);
const { cpuUs } = await load(plain, connections, seconds);

const { way, program } = await startLoad(stack, upstream.origin, {
  NODE_OPTIONS: `--cpu-prof --cpu-prof-interval=${INTERVAL_US} --cpu-prof-dir=${profiles.path}`,
});
await warmUp([way], NO_PAUSE);
const from = nowUs();
await load(way, connections, seconds);
const to = nowUs();
await program.stop();

const file = readdirSync(profiles.path).find(name => name.includes(`.${program.pid}.0.`));
if (file === undefined) throw new Error('The program wrote no profile.');
const profile = JSON.parse(readFileSync(path.join(profiles.path, file), 'utf8')) as Profile;
const print = (sums: Map<string, number>, count: number) => {
  const total = [...sums.values()].reduce((sum, us) => sum + us, 0);
  for (const [name, us] of [...sums].toSorted(([, a], [, b]) => b - a).slice(0, count))
    console.log(
      `${((us / total) * cpuUs).toFixed(1).padStart(7)}  ${((100 * us) / total).toFixed(1).padStart(5)} %  ${name}`,
    );
};
console.log(`${values.path}, ${connections} connections: ${cpuUs.toFixed(0)} us of processor time a call\n`);
print(sumBy(profile, [from, to], partOf), 40);
console.log();
print(
  sumBy(
    profile,
    [from, to],
    frame => `${frame.functionName || '(anonymous)'} ${sourceOf(frame)}:${frame.lineNumber + 1}`,
  ),
  Number(values.functions),
);
