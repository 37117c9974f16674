/**
 * Measures a large catalogue: npm run bench:scale -- --source FILE --vectors FILE --database URL [--meilisearch URL [--key KEY]]
 * [--servers 100000] [--registry 10000] [--requests FILE] [--skip-import] [--json]
 *
 * Recombines the catalogue FILE (JSON Lines, also .gz) into so many servers (`scale/catalogue.ts`), and imports them in files of
 * 5,000 into the real program, on a Postgres database of its own. Then it restarts the program, searches, each request once and
 * one at a time, imports 100 changed servers, and syncs with a registry that lists more servers, twice. For each step: time, and
 * resident memory of the process at the end and at its peak. Without Meilisearch, the process searches itself.
 * The vectors of the new texts are not embedded but made of those of the source, in the file `--vectors` (`scale/vectors.ts`).
 * `--skip-import` takes a database that an earlier run has filled.
 */
import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Entry } from '../src/core/catalogue/entry.ts';
import { openPostgres } from '../src/platform/database/postgres.ts';
import { run, serve, temporaryFolder, type Program } from '../test/support/program.ts';
import { readOptions, refuse } from './command-line.ts';
import { readCatalogue } from './latency/texts.ts';
import { latencyOf, timesOf } from './latency/timing.ts';
import { untilQuiet } from './load.ts';
import { Poster } from './processes.ts';
import { readQueries } from './query-sets.ts';
import { randomFrom, shuffled } from './random.ts';
import { RecombinedCatalogue } from './scale/catalogue.ts';
import { memoryOf, resetPeak, type Memory } from './scale/memory.ts';
import { startRegistry } from './scale/registry.ts';
import { MixedVectors } from './scale/vectors.ts';

const FILE_SERVERS = 5_000;
const CHANGED_SERVERS = 100;
const SEARCHES = 500;
/** Asked before: the first searches run code that is not optimized yet. */
const WARM_SEARCHES = 20;
const READY_WITHIN_MS = 3_600_000;
/** What `npm start` and the image set. */
const AS_STARTED = {
  NODE_OPTIONS: '--max-semi-space-size=16',
  MALLOC_ARENA_MAX: '2',
  MALLOC_MMAP_THRESHOLD_: '1048576',
  MALLOC_TRIM_THRESHOLD_: '16777216',
};

const values = readOptions('bench:scale', {
  source: { type: 'string' },
  vectors: { type: 'string' },
  database: { type: 'string' },
  meilisearch: { type: 'string' },
  key: { type: 'string' },
  servers: { type: 'string', default: '100000' },
  registry: { type: 'string', default: '10000' },
  requests: { type: 'string', default: 'bench/requests.jsonl' },
  'skip-import': { type: 'boolean' },
  json: { type: 'boolean' },
});
const source = values.source ?? refuse('--source must name a catalogue');
const vectorFile = values.vectors ?? refuse('--vectors must name a file of `npm run build:vectors`');
const database = values.database ?? refuse('--database must be the URL of a Postgres database');
const count = Number(values.servers);

interface Step extends Memory {
  readonly name: string;
  readonly seconds: number;
  /** Texts that were new to the database. */
  readonly embedded?: number;
}

const steps: Step[] = [];
await using stack = new AsyncDisposableStack();
const folder = stack.use(temporaryFolder());
const poster = new Poster();
stack.defer(() => poster.close());
const apiKey = randomBytes(24).toString('hex');
const env = {
  SWITCHBOARD_DATA_DIR: path.join(folder.path, 'data'),
  // The first file replaces its only server.
  SWITCHBOARD_CATALOGUE: 'test/support/one-server.jsonl',
  SWITCHBOARD_API_KEY: apiKey,
  SWITCHBOARD_KEKS: `k1:${Buffer.alloc(32, 1).toString('base64')}`,
  SWITCHBOARD_RATE_LIMIT: 'off',
  // The registry listens on loopback.
  SWITCHBOARD_ALLOW_PRIVATE_NETWORK: 'true',
  PUBLIC_URL: 'http://localhost:8080',
  DATABASE_URL: database,
  MEILISEARCH_URL: values.meilisearch ?? '',
  MEILISEARCH_API_KEY: values.key ?? '',
};
let program = await start('start');
stack.defer(() => program[Symbol.asyncDispose]());

/** Starts the program as `npm start` does, and waits until it has everything. */
async function start(name: string): Promise<Program> {
  const startedAt = performance.now();
  const started = await serve({ ...env, ...AS_STARTED });
  await untilComplete(started.url);
  add(name, started.pid, startedAt);
  return started;
}

/** Waits until `/readyz` says that nothing is missing. */
async function untilComplete(url: string): Promise<void> {
  const until = performance.now() + READY_WITHIN_MS;
  for (let answer = ''; performance.now() < until; await delay(100)) {
    const response = await fetch(`${url}/readyz`);
    answer = await response.text();
    if (answer === '{"status":"ready","degraded":[]}') return;
  }
  throw new Error('not ready after an hour');
}

function add(name: string, pid: number, startedAt: number, embedded?: number): void {
  const seconds = (performance.now() - startedAt) / 1000;
  const step = { name, seconds, ...(embedded === undefined ? {} : { embedded }), ...memoryOf(pid) };
  steps.push(step);
  console.error(`${name}: ${seconds.toFixed(1)} s, ${step.rssMib.toFixed(0)} MiB`);
}

/** Does one step and notes it. @param work resolves with the number of texts that it embedded, if it embeds */
async function measure(name: string, work: () => Promise<number | undefined>): Promise<void> {
  resetPeak(program.pid);
  const startedAt = performance.now();
  const embedded = await work();
  await untilComplete(program.url);
  add(name, program.pid, startedAt, embedded);
}

/** Runs a command beside the program. Returns the number of texts that it embedded. */
async function command(...args: readonly string[]): Promise<number> {
  const { code, stdout, stderr } = await run(args, env);
  if (code !== 0) throw new Error(`${args.join(' ')} failed: ${stderr.slice(-1_000)}`);
  console.error(stdout.trimEnd());
  return Number(/^0 of (\d+) texts embedded$/m.exec(stderr)?.[1] ?? 0);
}

const catalogue = new RecombinedCatalogue(await readCatalogue(source));
const vectors = stack.use(await MixedVectors.read(catalogue, vectorFile));
const stored = await openPostgres(database);
stack.defer(() => stored.close());

async function importServers(servers: readonly object[], ...options: readonly string[]): Promise<number> {
  const file = path.join(folder.path, 'catalogue.jsonl');
  await writeFile(file, servers.map(server => `${JSON.stringify(server)}\n`).join(''));
  return command('catalogue', 'import', file, ...options);
}

async function importAll(): Promise<number> {
  let embedded = 0;
  for (let from = 0; from < count; from += FILE_SERVERS) {
    const servers = catalogue.servers(from, Math.min(count, from + FILE_SERVERS));
    await vectors.store(stored.db, servers, from);
    embedded += await importServers(servers, ...(from === 0 ? ['--replace'] : []));
  }
  return embedded;
}

/** Sends the request and returns the number of servers that were searched. */
async function search(query: string): Promise<number> {
  const reply = await poster.post(`${program.url}/v1/search`, apiKey, { query, limit: 10 });
  if (reply?.status !== 200) throw new Error(`HTTP ${reply?.status}: ${reply?.text}`);
  const { metadata } = JSON.parse(reply.text) as { metadata: { total_candidates: number } };
  return metadata.total_candidates;
}

const isImported = values['skip-import'] !== true;
if (isImported) await measure(`import of ${count} servers`, importAll);
await program.stop();
program = await start('restart');

const queries = shuffled(await readQueries(values.requests), randomFrom(1)).map(({ query }) => query);
const [warm, asked] = [
  queries.slice(0, WARM_SEARCHES),
  queries.slice(WARM_SEARCHES, WARM_SEARCHES + SEARCHES),
];
// The engine may still be at work, and Postgres.
await untilQuiet(0.2, 120);
const times: number[] = [];
const searched = await search('how many servers are there');
if (searched < count) throw new Error(`only ${searched} servers are in the catalogue`);
await timesOf(warm, search);
await measure(`${asked.length} searches`, async () => {
  times.push(...(await timesOf(asked, search)));
  return undefined;
});

// New in each run.
const note = `Changed at ${new Date().toISOString()}.`;
const changed = catalogue
  .servers(0, Math.min(count, CHANGED_SERVERS))
  .map(server => Object.assign(server, { description: `${server.description} ${note}` }));
await measure(`import of ${changed.length} changed servers`, () => importServers(changed));
const listed = Number(values.registry);
await vectors.store(stored.db, catalogue.servers(count, count + listed).map(withoutTools), count);
const registry = stack.use(await startRegistry(catalogue, count, listed));
for (const name of [`sync of ${listed} servers`, 'sync without changes'])
  await measure(name, () => command('catalogue', 'sync', registry.url, '--full'));
await program.stop();

const grownMib = Math.max(...steps.map(({ peakMib }) => peakMib)) - (steps[0]?.rssMib ?? 0);
const growth = (1000 * grownMib) / (count + listed);
const facts = {
  servers: searched,
  mib_per_1000: isImported ? growth : undefined,
  ...latencyOf(times),
  max_ms: Math.max(...times),
};
if (values.json) console.log(JSON.stringify({ ...facts, steps }));
else report();

function withoutTools(server: Entry): Entry {
  return { ...server, tools: [] };
}

function report(): void {
  const rows = steps.map(({ name, seconds, rssMib, peakMib, embedded }) => [
    name,
    seconds.toFixed(1),
    embedded?.toFixed(0) ?? '',
    rssMib.toFixed(0),
    peakMib.toFixed(0),
  ]);
  for (const cells of [['', 'seconds', 'texts embedded', 'RSS MiB', 'peak MiB'], ...rows])
    console.log(cells.map((cell, at) => (at === 0 ? cell.padEnd(36) : cell.padStart(16))).join(''));
  const { p50_ms, p95_ms, max_ms } = facts;
  const [p50, p95, max] = [p50_ms, p95_ms, max_ms].map(ms => ms.toFixed(1));
  console.log(`\nsearch among ${searched} servers: p50 ${p50} ms, p95 ${p95} ms, max ${max} ms`);
  if (isImported)
    console.log(`memory per 1,000 servers: ${growth.toFixed(1)} MiB (highest peak, less the start)`);
}
