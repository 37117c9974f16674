import { randomBytes } from 'node:crypto';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { z } from 'zod';
import { begin, serve, temporaryFolder } from '../../test/support/program.ts';
import { Poster } from '../processes.ts';
import { concurrently, latencyOf, timesOf, type Latency } from './timing.ts';

const PROBE = pathToFileURL(path.resolve('bench/latency/probe.ts')).href;

const probed = z.object({
  loop_delay_max_ms: z.number(),
  loop_delay_p99_ms: z.number(),
  loop_cpu_max_ms: z.number(),
  cpu_ms: z.number(),
  rss_mib: z.number(),
});

export interface Served extends AsyncDisposable {
  search(query: string): Promise<void>;
  /** What the probe saw since it was asked last. */
  probe(): Promise<z.infer<typeof probed>>;
  /** `catalogue import`: seconds, and texts that it embedded. */
  import(file: string, ...options: string[]): Promise<{ seconds: number; embedded: number }>;
}

/** The real program with the shipped catalogue, as `npm start` runs it. @param dataFolder is made, and kept; absent: a temporary one */
export async function startServed(dataFolder?: string): Promise<Served> {
  await using opened = new AsyncDisposableStack();
  const folder = opened.use(temporaryFolder());
  const portFile = path.join(folder.path, 'port');
  const key = randomBytes(24).toString('hex');
  if (dataFolder !== undefined) await mkdir(dataFolder, { recursive: true });
  const env = {
    SWITCHBOARD_DATA_DIR: dataFolder ?? path.join(folder.path, 'data'),
    SWITCHBOARD_API_KEY: key,
    SWITCHBOARD_RATE_LIMIT: 'off',
    SWITCHBOARD_ALLOW_PRIVATE_NETWORK: 'true',
  };
  const probe = { NODE_OPTIONS: `--max-semi-space-size=16 --import=${PROBE}`, BENCH_PROBE: portFile };
  const program = opened.use(await serve({ ...env, ...probe }));
  await program.ready();
  const poster = new Poster();
  opened.defer(() => poster.close());
  const port = await readFile(portFile, 'utf8');
  const stack = opened.move();
  return {
    async search(query) {
      const reply = await poster.post(`${program.url}/v1/search`, key, { query, limit: 10 });
      if (reply?.status !== 200) throw new Error(`${reply?.status} ${reply?.text}`);
    },
    probe: async () => probed.parse(await (await fetch(`http://127.0.0.1:${port}`)).json()),
    async import(file, ...options) {
      const startedAt = performance.now();
      await using importing = begin(['catalogue', 'import', file, ...options], env);
      const { code, stderr } = await importing.finished;
      if (code !== 0) throw new Error(`the import failed: ${stderr.slice(-1_000)}`);
      const embedded = Number(/^0 of (\d+) texts embedded$/m.exec(stderr)?.[1] ?? 0);
      return { seconds: (performance.now() - startedAt) / 1000, embedded };
    },
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

interface SearchFacts {
  readonly one: Latency & { readonly cpu_ms: number };
  readonly four: Latency & { readonly per_second: number };
  readonly cached: Latency;
}

/** Uncached one at a time, uncached four at a time, and cached. Every request is a new one, so `requests` are used up. */
export async function measureSearch(served: Served, requests: readonly string[]): Promise<SearchFacts> {
  const search = (request: string) => served.search(request);
  const share = Math.floor((requests.length - 20) / 2);
  await timesOf(requests.slice(0, 20), search);
  const before = (await served.probe()).cpu_ms;
  const times = await timesOf(requests.slice(20, 20 + share), search);
  const cpu_ms = ((await served.probe()).cpu_ms - before) / share;
  const one = { ...latencyOf(times), cpu_ms };
  const four = await concurrently(requests.slice(20 + share), 4, search);
  const again = requests.slice(-10);
  const cached = latencyOf(await timesOf([...again, ...again, ...again, ...again, ...again], search));
  return { one, four, cached };
}

/** Searches that come one after the other as long as `work` goes on. */
export async function beside<Result>(
  served: Served,
  requests: readonly string[],
  work: Promise<Result>,
): Promise<{ result: Result; latency: Latency; max_ms: number }> {
  const times: number[] = [];
  const state = { done: false };
  const finished = work.finally(() => (state.done = true));
  finished.catch(() => {});
  for (let at = 0; !state.done; at++) {
    const request = `${requests[at % requests.length]} ${at}`;
    times.push(...(await timesOf([request], query => served.search(query))));
  }
  return { result: await finished, latency: latencyOf(times), max_ms: Math.max(...times) };
}

/** A file of the text that a command can read; it is gone with the disposal. */
export async function temporaryFile(text: string): Promise<AsyncDisposable & { readonly path: string }> {
  const folder = temporaryFolder();
  const file = path.join(folder.path, 'catalogue.jsonl');
  await writeFile(file, text);
  return { path: file, [Symbol.asyncDispose]: () => rm(folder.path, { recursive: true }) };
}
