/**
 * Compares the two search indexes, the embedded one and Meilisearch: npm run bench:parity -- CORPUS QUERIES [--json]
 *
 * MEILISEARCH_URL and MEILISEARCH_API_KEY name a server that may be written to. CORPUS and QUERIES as for bench:search. Both
 * indexes share embedder, vectors and ranking, so what differs is which candidates were found. Ends with 1 when they are
 * not at par: the order by meaning is another for more than 1 % of the queries, or recall@10 differs by more than 3 points.
 */
import path from 'node:path';
import { parseArgs } from 'node:util';
import { z } from 'zod';
import { Catalogue } from '../src/core/catalogue/catalogue.ts';
import { readEntries } from '../src/core/catalogue/import-file.ts';
import { UNUSED } from '../src/core/catalogue/usage.ts';
import { createMiniLmEmbedder } from '../src/core/search/embed/minilm/embedder.ts';
import { correctForTextCount, tuningOf } from '../src/core/search/tuning.ts';
import { fuse } from '../src/core/search/fusion.ts';
import { createEmbeddedIndex } from '../src/core/search/index/search-index-embedded.ts';
import { createMeilisearchIndex } from '../src/core/search/index/search-index-meilisearch.ts';
import type { Candidate, SearchIndex } from '../src/core/search/index/search-index.ts';
import { systemClock } from '../src/platform/time.ts';
import { openDatabase } from '../src/platform/database/database.ts';
import { createLog } from '../src/platform/telemetry/log.ts';
import { printFacts } from './command-line.ts';
import { mean, recall, percentile } from './measures.ts';
import { readQueries, readText, type Query } from './query-sets.ts';

const DEPTH = 10;
/** The engine searches its graph of vectors approximately. */
const LEAST_SAME_ORDER = 0.99;
const MOST_POINTS_APART = 0.03;

/** The servers of the highest cosines. Equal cosines have no order: they are put in that of their ids. */
const bySemantic = (candidates: readonly Candidate[]) =>
  candidates
    .toSorted((a, b) => b.semantic - a.semantic || a.serverId.localeCompare(b.serverId))
    .slice(0, DEPTH)
    .map(({ serverId }) => serverId);

/** As the search use case ranks them, names apart. */
const ranked = (candidates: readonly Candidate[], spread: number) =>
  fuse(
    candidates.map(one =>
      Object.assign({}, one, { semantic: correctForTextCount(one.semantic, one.texts, spread) }),
    ),
    () => UNUSED,
  )
    .slice(0, DEPTH)
    .map(({ serverId }) => serverId);

async function timed<T>(work: () => Promise<T>, latencies: number[]): Promise<T> {
  const startedAt = performance.now();
  const value = await work();
  latencies.push(performance.now() - startedAt);
  return value;
}

async function compare(embedded: SearchIndex, engine: SearchIndex, queries: readonly Query[]) {
  const spread = tuningOf(embedded.embedderId)?.spread ?? 0;
  const latencies = { embedded: [] as number[], meilisearch: [] as number[] };
  const rows: Record<
    'semanticOrder' | 'sameRanking' | 'overlap' | 'embeddedRecall' | 'meilisearchRecall',
    number
  >[] = [];
  for (const { query, relevant_servers } of queries) {
    const ours = (await timed(() => embedded.find(embedded.ask(query)), latencies.embedded)).candidates;
    const theirs = (await timed(() => engine.find(engine.ask(query)), latencies.meilisearch)).candidates;
    if (engine.degraded !== undefined) throw new Error(`the comparison is void: ${engine.degraded}`);
    const [ourTop, theirTop] = [ranked(ours, spread), ranked(theirs, spread)];
    const relevant = new Set(relevant_servers);
    rows.push({
      semanticOrder: Number(String(bySemantic(ours)) === String(bySemantic(theirs))),
      sameRanking: Number(String(ourTop) === String(theirTop)),
      overlap: theirTop.filter(id => ourTop.includes(id)).length / (ourTop.length || 1),
      embeddedRecall: recall(ourTop, relevant, DEPTH),
      meilisearchRecall: recall(theirTop, relevant, DEPTH),
    });
  }
  const meanOf = (name: keyof (typeof rows)[number]) => mean(rows.map(row => row[name]));
  const difference = meanOf('meilisearchRecall') - meanOf('embeddedRecall');
  return {
    queries: queries.length,
    embedded_recall_10: meanOf('embeddedRecall'),
    meilisearch_recall_10: meanOf('meilisearchRecall'),
    recall_10_difference: difference,
    semantic_order_equal: meanOf('semanticOrder'),
    ranking_equal: meanOf('sameRanking'),
    top_10_overlap: meanOf('overlap'),
    embedded_p50_ms: percentile(latencies.embedded, 0.5),
    meilisearch_p50_ms: percentile(latencies.meilisearch, 0.5),
    meilisearch_p95_ms: percentile(latencies.meilisearch, 0.95),
    at_par: meanOf('semanticOrder') >= LEAST_SAME_ORDER && Math.abs(difference) <= MOST_POINTS_APART,
  };
}

async function versionOf(url: string, apiKey: string | undefined): Promise<string> {
  const headers = apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` };
  const response = await fetch(new URL('version', `${url}/`), { headers });
  const known = z.object({ pkgVersion: z.string() }).safeParse(await response.json());
  return known.success ? known.data.pkgVersion : 'not told to this key';
}

/** Embeds once: the second index finds every vector in the database. */
async function fill(catalogue: Catalogue, index: SearchIndex): Promise<number> {
  const startedAt = performance.now();
  await catalogue.attachIndex(change => index.prepare(change));
  while (index.degraded === 'Meilisearch is still indexing')
    await new Promise(resolve => setTimeout(resolve, 100));
  return performance.now() - startedAt;
}

async function run(corpus: string, queryFile: string, url: string, apiKey: string | undefined) {
  await using opened = new AsyncDisposableStack();
  const database = await openDatabase();
  opened.defer(() => database.close());
  const embedder = await createMiniLmEmbedder();
  opened.defer(() => embedder.close());
  const { entries } = readEntries(await readText(corpus), { allowHttp: true });
  const catalogue = await Catalogue.load(database.db);
  await catalogue.put(entries, { origin: 'operator', replace: true });
  const context = { embedder, db: database.db, log: createLog('warn'), clock: systemClock };
  const embedded = await createEmbeddedIndex(context);
  opened.defer(() => embedded.close());
  const engine = await createMeilisearchIndex({
    ...context,
    url,
    apiKey,
    searchTimeoutMs: 10_000,
    readServers: async ids => [...(await catalogue.read(ids)).values()],
  });
  opened.defer(() => engine.close());
  await fill(catalogue, embedded);
  const fillMs = await fill(catalogue, engine);
  const queries = await readQueries(queryFile);
  return {
    corpus: path.basename(corpus),
    servers: catalogue.activeCount,
    meilisearch: await versionOf(url, apiKey),
    meilisearch_fill_ms: fillMs,
    ...(await compare(embedded, engine, queries)),
  };
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { json: { type: 'boolean' } },
});
const [corpus, queryFile] = positionals;
const { MEILISEARCH_URL: url, MEILISEARCH_API_KEY: apiKey } = process.env;
if (corpus === undefined || queryFile === undefined || url === undefined) {
  console.error(
    'Usage: MEILISEARCH_URL=… [MEILISEARCH_API_KEY=…] npm run bench:parity -- CORPUS QUERIES [--json]',
  );
  process.exitCode = 2;
} else {
  const facts = await run(corpus, queryFile, url, apiKey);
  if (values.json) console.log(JSON.stringify(facts));
  else printFacts(facts);
  if (!facts.at_par) process.exitCode = 1;
}
