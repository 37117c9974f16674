/**
 * Compares Switchboard with other MCP gateways: npm run bench:peers -- --folder FOLDER [--install] [--rounds 5]
 * [--seconds 2] [--connections 1,16,64] [--pause 0] [--quiet CORES] [--json]
 *
 * With `--install` it installs the pinned versions into the folder, which must be outside this repository, with npm, pip and
 * go. Otherwise it measures the peers that are in the folder, in one run with a bare byte passthrough (the baseline) and
 * Switchboard. Each does the same work: a call of the tool `echo`, whose answer has 1,000 characters, by its own endpoint,
 * in a session, to the same upstream, which answers with JSON. Everything listens on 127.0.0.1. In every round each has its
 * turn, and figures are compared within a round. A peer that cannot be installed, started or called is reported with the
 * reason. On a machine that is shared, `--pause` leaves seconds between rounds, and with `--quiet 0.2` a turn during which
 * other work took more than so much of a core is taken again. Needs Linux and wrk.
 */
import { availableParallelism, cpus } from 'node:os';
import path from 'node:path';
import { temporaryFolder } from '../test/support/program.ts';
import { readOptions, requireProgram, refuse } from './command-line.ts';
import { openSession, type Load } from './load.ts';
import { contextForge } from './peers/context-forge.ts';
import { mcpHub } from './peers/mcp-hub.ts';
import { oneMcp } from './peers/one-mcp.ts';
import { mcpCall, startPeer, type Peer } from './peers/peer.ts';
import { toolHive } from './peers/tool-hive.ts';
import { startProcess, startProgram } from './processes.ts';
import { printResults, takeTurns, warmUp } from './rounds.ts';

const PEERS: readonly Peer[] = [mcpHub, oneMcp, contextForge, toolHive];
const KEY = 'the-key-of-the-peers-bench-of-32-characters';
const SIZE = 1000;
/** Turns that other work disturbed are taken again for so long, for each number of connections. */
const PATIENCE_MINUTES = 4;

const values = readOptions('bench:peers', {
  folder: { type: 'string' },
  install: { type: 'boolean', default: false },
  rounds: { type: 'string', default: '5' },
  seconds: { type: 'string', default: '2' },
  connections: { type: 'string', default: '1,16,64' },
  pause: { type: 'string', default: '0' },
  quiet: { type: 'string', default: 'Infinity' },
  json: { type: 'boolean', default: false },
});
requireProgram('wrk', 'Debian and Ubuntu have it as the package wrk.');

if (values.folder === undefined) refuse('Name the folder of the peers with --folder.');
const root = path.resolve(values.folder);
if (!path.relative(process.cwd(), root).startsWith('..'))
  refuse(`${root} is inside the repository. Name a folder outside it with --folder.`);
const folderOf = ({ id }: Peer) => path.join(root, id);

const reason = (error: unknown) => (error instanceof Error ? error.message : String(error));

/** Installs every peer, and says which could not be. */
async function install(): Promise<void> {
  for (const peer of PEERS) {
    const named = `${peer.name} ${peer.version}`;
    try {
      await peer.install(folderOf(peer));
      console.log(`${named}: installed`);
    } catch (error) {
      console.log(`${named}: not installed: ${reason(error)}`);
    }
  }
}

/** The baseline, in a session with the upstream. */
async function passthrough(origin: string, pid: number): Promise<Load> {
  const url = `${origin}/json`;
  return {
    name: 'passthrough',
    pid,
    url,
    headers: await openSession(url),
    body: mcpCall('echo', SIZE),
    answerBytes: SIZE,
  };
}

/** Switchboard with a key, limits, usage, metrics and the request log on. */
async function switchboardWays(origin: string, pid: number): Promise<Load[]> {
  const key = { 'x-api-key': KEY };
  const mcp = `${origin}/mcp/json`;
  return [
    {
      name: 'Switchboard tools/call',
      pid,
      url: `${origin}/v1/mcp/tools/call`,
      headers: { ...key, 'content-type': 'application/json' },
      body: JSON.stringify({ server_id: 'json', name: 'echo', arguments: { size: SIZE } }),
      answerBytes: SIZE,
    },
    {
      name: 'Switchboard /mcp/{id}',
      pid,
      url: mcp,
      headers: await openSession(mcp, key),
      body: mcpCall('echo', SIZE),
      answerBytes: SIZE,
    },
  ];
}

/** Starts what is installed, and says what is not and what does not start. */
async function startAll(upstream: string, stack: AsyncDisposableStack): Promise<Load[]> {
  const ways: Load[] = [];
  for (const peer of PEERS) {
    const folder = folderOf(peer);
    const version = await peer.installed(folder).catch(() => undefined);
    if (version === undefined) {
      console.log(`${peer.name}: not measured: it is not in ${folder}`);
      continue;
    }
    const name = `${peer.name} ${version}`;
    try {
      const { request, pid } = stack.use(await startPeer(peer, folder, upstream, SIZE));
      ways.push({ ...request, name: peer.name, pid, answerBytes: SIZE });
      console.log(`${name}: ${peer.how}`);
    } catch (error) {
      console.log(`${name}: not measured: ${reason(error)}`);
    }
  }
  return ways;
}

async function measure(): Promise<void> {
  await using stack = new AsyncDisposableStack();
  console.log(`Node ${process.version}, ${availableParallelism()} cores of ${cpus()[0]?.model ?? 'no name'}`);
  const upstream = stack.use(await startProcess('bench/proxy/upstream.ts'));
  const endpoint = `${upstream.origin}/json`;
  const bare = stack.use(await startProcess('bench/proxy/passthrough.ts', upstream.origin));
  const folder = stack.use(temporaryFolder());
  const settings = {
    SWITCHBOARD_API_KEY: KEY,
    SWITCHBOARD_RATE_LIMIT: 'proxy=10000000/60',
    LOG_LEVEL: 'info',
  };
  const { program } = stack.use(
    await startProgram({ json: endpoint }, settings, path.join(folder.path, 'log')),
  );
  const baseline = await passthrough(bare.origin, bare.pid);
  const ours = await switchboardWays(program.url, program.pid);
  const ways = [baseline, ...ours, ...(await startAll(endpoint, stack))];
  const rounds = {
    rounds: Number(values.rounds),
    seconds: Number(values.seconds),
    pauseSeconds: Number(values.pause),
    othersCores: Number(values.quiet),
    patienceSeconds: PATIENCE_MINUTES * 60,
  };
  await warmUp(ways, rounds);
  for (const connections of values.connections.split(',').map(Number)) {
    const results = await takeTurns(ways, connections, rounds);
    printResults({ connections }, results, baseline, values.json);
  }
}

for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1));
await (values.install ? install() : measure());
