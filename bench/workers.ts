/**
 * Whether more workers serve more: npm run bench:workers -- [--connections 16,64] [--rounds 5] [--seconds 2] [--others 0.1] [--json]
 *
 * `POST /v1/mcp/tools/call` with 1 KB of JSON, through one worker and through two, on Postgres, with keys, limits, log and usage on.
 * wrk, the upstream and Postgres share the cores with the workers, so the processor time of each is stated: with two cores the
 * rest takes part of the second one. Two figures show how the workers themselves scale: requests per second of their processor
 * time, and, in place of a machine of one core, everything pinned to one (`taskset`). In every round each setup has its turn.
 * A turn waits until the rest of the machine uses less than `--others` cores, and is repeated if it used more meanwhile.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { startPostgres } from '../test/support/postgres-server.ts';
import { temporaryFolder } from '../test/support/program.ts';
import { readOptions, requireProgram } from './command-line.ts';
import { cpuSeconds, load, processTree, untilQuiet, type Load, type Turn } from './load.ts';
import { startProcess, startProgram } from './processes.ts';
import { median, spread } from './rounds.ts';

const KEY = 'the-key-of-the-workers-bench-of-32-characters';

const values = readOptions('bench:workers', {
  connections: { type: 'string', default: '16,64' },
  rounds: { type: 'string', default: '5' },
  seconds: { type: 'string', default: '2' },
  others: { type: 'string', default: '0.1' },
  json: { type: 'boolean' },
});
requireProgram('wrk', 'Debian and Ubuntu have it as the package wrk.');
requireProgram('taskset', 'It is part of util-linux.');

await using stack = new AsyncDisposableStack();
const folder = stack.use(temporaryFolder());
const postgres = stack.use(await startPostgres());
const upstream = stack.use(await startProcess('bench/proxy/upstream.ts'));

/** Who uses processor time; `others` is the rest of the machine, which should use none. */
const USERS = ['workers', 'load', 'upstream', 'postgres', 'others'] as const;

interface Setup {
  readonly name: string;
  readonly cores: string;
  readonly way: Load;
}

/** The answers of a turn, and the cores that were used meanwhile. */
interface Measured {
  readonly turn: Turn;
  readonly cores: Readonly<Record<(typeof USERS)[number], number>>;
}

/** A program with so many workers, on a database of its own. */
async function startWith(workers: number): Promise<Load> {
  const database = stack.use(await postgres.createDatabase());
  const settings = {
    DATABASE_URL: database.url,
    PUBLIC_URL: 'http://localhost:8080',
    SWITCHBOARD_API_KEY: KEY,
    SWITCHBOARD_KEKS: `k1:${Buffer.alloc(32, 1).toString('base64')}`,
    SWITCHBOARD_RATE_LIMIT: 'proxy=100000000/60',
    SWITCHBOARD_WORKERS: String(workers),
    LOG_LEVEL: 'info',
  };
  const log = path.join(folder.path, `log-${workers}`);
  const { program } = stack.use(await startProgram({ json: `${upstream.origin}/json` }, settings, log));
  return {
    name: `${workers} ${workers === 1 ? 'worker' : 'workers'}`,
    pid: program.pid,
    url: `${program.url}/v1/mcp/tools/call`,
    headers: { 'x-api-key': KEY, 'content-type': 'application/json' },
    body: JSON.stringify({ server_id: 'json', name: 'echo', arguments: { size: 1000 } }),
    answerBytes: 1000,
  };
}

/** Lets this process, its load and all others run on these cores only. */
function pinAll(cores: string): void {
  for (const pid of processTree(process.pid))
    execFileSync('taskset', ['-a', '-p', '-c', cores, String(pid)], { stdio: 'ignore' });
}

/** Returns the processor time of children that have ended, of which wrk is the only one under way. */
function secondsOfEnded(): number {
  const fields = readFileSync('/proc/self/stat', 'utf8').split(') ').at(-1)?.split(' ') ?? [];
  return (Number(fields[13]) + Number(fields[14])) / 100;
}

const used = (way: Load) => ({
  workers: cpuSeconds(way.pid),
  load: secondsOfEnded(),
  upstream: cpuSeconds(upstream.pid),
  postgres: cpuSeconds(postgres.pid),
});

const maxOthers = Number(values.others);
const MAX_TRIES = 60;
const QUIET_WITHIN_SECONDS = 10;

async function measureQuietly(setup: Setup, connections: number, seconds: number): Promise<Measured> {
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    await untilQuiet(maxOthers, QUIET_WITHIN_SECONDS);
    const measured = await measure(setup, connections, seconds);
    if (measured.cores.others <= maxOthers) return measured;
  }
  throw new Error(`others used more than ${maxOthers} cores in each of ${MAX_TRIES} turns`);
}

async function measure({ way, cores }: Setup, connections: number, seconds: number): Promise<Measured> {
  pinAll(cores);
  const before = used(way);
  const turn = await load(way, connections, seconds);
  const after = used(way);
  const of = (who: keyof typeof before) => (after[who] - before[who]) / seconds;
  const own = {
    workers: of('workers'),
    load: of('load'),
    upstream: of('upstream'),
    postgres: of('postgres'),
  };
  return { turn, cores: { ...own, others: turn.othersCores } };
}

const one = await startWith(1);
const two = await startWith(2);
const setups: readonly Setup[] = [
  { name: '1 worker, all on 1 core', cores: '0', way: one },
  { name: '1 worker, all on 2 cores', cores: '0,1', way: one },
  { name: '2 workers, all on 2 cores', cores: '0,1', way: two },
];
// Each worker's code has to become as fast as that of the one that works alone.
for (const [setup, seconds] of [
  [setups[1], 4],
  [setups[2], 8],
] as const)
  if (setup) await measure(setup, 64, seconds);
for (const connections of values.connections.split(',').map(Number)) {
  const measured = new Map<Setup, Measured[]>(setups.map(setup => [setup, []]));
  for (let round = 0; round < Number(values.rounds); round++)
    for (const setup of round % 2 === 0 ? setups : setups.toReversed())
      measured.get(setup)?.push(await measureQuietly(setup, connections, Number(values.seconds)));
  report(connections, measured);
}

function report(connections: number, measured: ReadonlyMap<Setup, readonly Measured[]>): void {
  const rate = ({ turn }: Measured) => turn.perSecond;
  const perWorkerSecond = ({ turn }: Measured) => 1e6 / turn.cpuUs;
  const ratios = (own: readonly Measured[], base: Setup | undefined, of: (one: Measured) => number) =>
    own.map((turn, at) => {
      const other = base && measured.get(base)?.[at];
      return of(turn) / (other ? of(other) : Number.NaN);
    });
  if (!values.json)
    console.log(`\n${connections} connections, median [lowest, highest] of ${values.rounds} rounds`);
  for (const [setup, own] of measured) {
    const [onOneCore, oneWorker] = setups;
    const result = {
      connections,
      setup: setup.name,
      perSecond: own.map(rate),
      p50Ms: own.map(({ turn }) => turn.p50Ms),
      p99Ms: own.map(({ turn }) => turn.p99Ms),
      cores: Object.fromEntries(USERS.map(who => [who, median(own.map(({ cores }) => cores[who]))])),
      toOneCore: ratios(own, onOneCore, rate),
      toOneWorker: ratios(own, oneWorker, rate),
      perWorkerSecond: own.map(perWorkerSecond),
      efficiency: ratios(own, oneWorker, perWorkerSecond),
    };
    if (values.json) {
      console.log(JSON.stringify(result));
      continue;
    }
    const cores = Object.entries(result.cores).map(([who, share]) => `${who} ${share.toFixed(2)}`);
    console.log(
      [
        `\n${setup.name}: ${median(result.perSecond).toFixed(0)} requests/s, p50 ${median(result.p50Ms).toFixed(2)} ms, p99 ${median(result.p99Ms).toFixed(2)} ms`,
        `  cores used: ${cores.join(', ')}`,
        `  rate to all on 1 core ${spread(result.toOneCore)}, to 1 worker on 2 cores ${spread(result.toOneWorker)}`,
        `  requests per second of the workers' processor time: ${median(result.perWorkerSecond).toFixed(0)}, to 1 worker on 2 cores ${spread(result.efficiency)}`,
      ].join('\n'),
    );
  }
}
