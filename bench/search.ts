/**
 * Measures search quality and latency: npm run bench:search -- CORPUS QUERIES [--pairs] [--json] [--in-process [--data FOLDER]]
 *
 * CORPUS becomes the whole catalogue (JSON Lines, also .gz); QUERIES holds {query, relevant_servers: [id],
 * relevant_tools: [{server, tool}]} a line. Queries go one at a time over HTTP to a product started for it; with
 * --in-process straight to the use case, over a database in memory or in FOLDER (which keeps the vectors). With --pairs each
 * query asks for what two of them ask for; measured is how often both have a server among the first five, and among all.
 */
import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { z } from 'zod';
import { SCOPES, type Caller } from '../src/core/access/caller.ts';
import { Catalogue } from '../src/core/catalogue/catalogue.ts';
import { readEntries } from '../src/core/catalogue/import-file.ts';
import { UNUSED } from '../src/core/catalogue/usage.ts';
import { textsOf } from '../src/core/search/documents.ts';
import { createMiniLmEmbedder } from '../src/core/search/embed/minilm/embedder.ts';
import { createEmbeddedIndex } from '../src/core/search/index/search-index-embedded.ts';
import { createSearch } from '../src/core/search/search.ts';
import { systemClock } from '../src/platform/time.ts';
import { openDatabase } from '../src/platform/database/database.ts';
import { createLog } from '../src/platform/telemetry/log.ts';
import { serve, temporaryFolder } from '../test/support/program.ts';
import { printFacts, refuse } from './command-line.ts';
import { mean, ndcg, recall, percentile } from './measures.ts';
import { readQueries, readText, type Query } from './query-sets.ts';
import { randomFrom } from './random.ts';
import { TOOLS_OF_A_SERVER } from './tuning/quality.ts';

const LIMIT = 10;
const START_TIMEOUT_MS = 30 * 60_000;

const answerSchema = z.object({
  servers: z.array(z.object({ id: z.string(), tools: z.array(z.object({ name: z.string() })) })),
});

interface Answer {
  servers: readonly { id: string; tools: readonly { name: string }[] }[];
}

const PAIRS = 400;
const JOINTS = [', and then ', ' and ', ', then ', ' and also ', '. Then '];

/** Asks for what two requests ask for, drawn at random: short ones in ASCII without clauses of their own. */
async function measurePairs({ search }: Pick<Searching, 'search'>, queries: readonly Query[]) {
  const random = randomFrom(1);
  const short = queries.filter(
    ({ query }) =>
      /^[ -~]{15,90}$/.test(query) && textsOf(query).clauses.length === 0 && !/[.?!;,]\s/.test(query),
  );
  const drawn = () =>
    short[Math.floor(random() * short.length)] ?? refuse('the queries are too long for pairs');
  const first: number[] = [];
  const all: number[] = [];
  const latencies: number[] = [];
  for (let tries = 0; latencies.length < PAIRS && tries < 10 * PAIRS; tries++) {
    const [one, other] = [drawn(), drawn()];
    if (one.relevant_servers.some(id => other.relevant_servers.includes(id))) continue;
    const joint = JOINTS[latencies.length % JOINTS.length];
    const startedAt = performance.now();
    const { servers } = await search(`${one.query.replace(/[.?!]+$/, '')}${joint}${other.query}`);
    latencies.push(performance.now() - startedAt);
    const haveBoth = (depth: number) => {
      const found = new Set(servers.slice(0, depth).map(({ id }) => id));
      return Number([one, other].every(({ relevant_servers }) => relevant_servers.some(id => found.has(id))));
    };
    first.push(haveBoth(5));
    all.push(haveBoth(LIMIT));
  }
  return {
    pairs: latencies.length,
    both_in_5: mean(first),
    both_in_10: mean(all),
    p50_ms: percentile(latencies, 0.5),
    p95_ms: percentile(latencies, 0.95),
  };
}

interface Searching extends AsyncDisposable {
  search(query: string): Promise<Answer>;
  facts: Record<string, number>;
}

async function measure({ search }: Pick<Searching, 'search'>, queries: readonly Query[]) {
  for (const { query } of queries.slice(0, 5)) await search(`warm-up: ${query}`.slice(0, 1000));
  const servers: { ndcg: number; r1: number; r5: number; r10: number }[] = [];
  const tools: { ndcg: number; r1: number }[] = [];
  const latencies: number[] = [];
  for (const { query, relevant_servers, relevant_tools } of queries) {
    const startedAt = performance.now();
    const answer = await search(query);
    latencies.push(performance.now() - startedAt);
    const found = answer.servers.map(server => server.id);
    const relevant = new Set(relevant_servers);
    const r = (depth: number) => recall(found, relevant, depth);
    servers.push({ ndcg: ndcg(found, relevant), r1: r(1), r5: r(5), r10: r(10) });
    if (relevant_tools.length === 0) continue;
    const foundTools = answer.servers.flatMap(server =>
      server.tools.slice(0, TOOLS_OF_A_SERVER).map(tool => JSON.stringify([server.id, tool.name])),
    );
    const relevantTools = new Set(relevant_tools.map(({ server, tool }) => JSON.stringify([server, tool])));
    tools.push({ ndcg: ndcg(foundTools, relevantTools), r1: recall(foundTools, relevantTools, 1) });
  }
  return {
    queries: queries.length,
    server_ndcg_10: mean(servers.map(s => s.ndcg)),
    server_recall_1: mean(servers.map(s => s.r1)),
    server_recall_5: mean(servers.map(s => s.r5)),
    server_recall_10: mean(servers.map(s => s.r10)),
    ...(tools.length === 0
      ? {}
      : { tool_ndcg_10: mean(tools.map(t => t.ndcg)), tool_recall_1: mean(tools.map(t => t.r1)) }),
    p50_ms: percentile(latencies, 0.5),
    p95_ms: percentile(latencies, 0.95),
  };
}

async function overHttp(corpus: string): Promise<Searching> {
  await using opened = new AsyncDisposableStack();
  const folder = opened.use(temporaryFolder());
  const catalogueFile = path.join(folder.path, 'corpus.jsonl');
  await writeFile(catalogueFile, await readText(corpus));
  const apiKey = randomBytes(24).toString('hex');
  const startedAt = performance.now();
  const { url } = opened.use(
    await serve({
      SWITCHBOARD_DATA_DIR: path.join(folder.path, 'data'),
      SWITCHBOARD_API_KEY: apiKey,
      SWITCHBOARD_RATE_LIMIT: 'off',
      SWITCHBOARD_CATALOGUE: catalogueFile,
    }),
  );
  while (!(await fetch(`${url}/readyz`)).ok) {
    if (performance.now() - startedAt > START_TIMEOUT_MS) throw new Error('the product did not get ready');
    await setTimeout(200);
  }
  const facts = { start_ms: performance.now() - startedAt };
  const stack = opened.move();
  return {
    facts,
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
    async search(query) {
      const response = await fetch(`${url}/v1/search`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'x-api-key': apiKey },
        body: JSON.stringify({ query, limit: LIMIT }),
      });
      if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
      return answerSchema.parse(await response.json());
    },
  };
}

async function inProcess(corpus: string, dataFolder: string | undefined): Promise<Searching> {
  const database = await openDatabase(dataFolder);
  const { db } = database;
  const log = createLog('info');
  const clock = systemClock;
  const embedder = await createMiniLmEmbedder();
  const { entries } = readEntries(await readText(corpus), { allowHttp: true });
  const catalogue = await Catalogue.load(db);
  await catalogue.put(entries, { origin: 'operator', replace: true });
  const memory = () => {
    globalThis.gc?.();
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    return (heapUsed + arrayBuffers) / 2 ** 20;
  };
  const memoryBefore = memory();
  const startedAt = performance.now();
  // Used as far as they fit.
  const shippedVectors = path.join(import.meta.dirname, '../catalogue/vectors.bin');
  const index = await createEmbeddedIndex({ embedder, db, log, clock, shippedVectors });
  await catalogue.attachIndex(change => index.prepare(change));
  const facts = { index_ms: performance.now() - startedAt, index_mb: memory() - memoryBefore };
  const search = createSearch({ catalogue, index, db, log, clock, use: () => UNUSED });
  const caller: Caller = {
    tenantId: 'bench',
    keyId: 'bench',
    scopes: new Set(SCOPES),
    requestId: 'bench',
    signal: new AbortController().signal,
  };
  return {
    facts,
    search: query => search.search(caller, { query, limit: LIMIT }),
    async [Symbol.asyncDispose]() {
      await search.close();
      await index.close();
      await embedder.close();
      await database.close();
    },
  };
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    pairs: { type: 'boolean' },
    json: { type: 'boolean' },
    'in-process': { type: 'boolean' },
    data: { type: 'string' },
  },
});
const [corpus, queryFile] = positionals;
if (corpus === undefined || queryFile === undefined) {
  console.error(
    'Usage: npm run bench:search -- CORPUS QUERIES [--pairs] [--json] [--in-process [--data FOLDER]]',
  );
  process.exitCode = 2;
} else {
  const queries = await readQueries(queryFile);
  await using searching = await (values['in-process'] ? inProcess(corpus, values.data) : overHttp(corpus));
  const result = {
    corpus: path.basename(corpus),
    ...searching.facts,
    ...(await (values.pairs ? measurePairs : measure)(searching, queries)),
  };
  if (values.json) console.log(JSON.stringify(result));
  else printFacts(result);
}
