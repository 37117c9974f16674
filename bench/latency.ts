/**
 * Measures speed and scale: npm run bench:latency -- [LARGE] [--data FOLDER] [--only PART]… [--texts N] [--json]
 *
 * Parts: `embedding`, the model alone; `shipped`, search over the shipped catalogue; `large`, the catalogue LARGE (JSON Lines, also
 * .gz) imported into a running server beside searches, then searched; `growth`, 500 to 20,000 servers made from LARGE (or the
 * shipped ones), with vectors of noise. Searches go over HTTP to the real program, each request once. FOLDER keeps the
 * vectors of LARGE between runs. Ratios are to plain MiniSearch in the same run.
 */
import { parseArgs } from 'node:util';
import { printFacts } from './command-line.ts';
import { miniSearch } from './latency/baseline.ts';
import { measureEmbedding } from './latency/embedding.ts';
import { measureGrowth } from './latency/growth.ts';
import { beside, measureSearch, startServed, temporaryFile } from './latency/served.ts';
import { readCatalogue, readText, requestsFor, SHIPPED } from './latency/texts.ts';

const REQUESTS = 420;
const GROWTH = [500, 5_000, 20_000];

async function shipped() {
  const entries = await readCatalogue(SHIPPED);
  const requests = requestsFor(entries, REQUESTS);
  await using served = await startServed();
  return { servers: entries.length, ...(await searchFacts(served, entries, requests)) };
}

async function searchFacts(
  served: Awaited<ReturnType<typeof startServed>>,
  entries: Awaited<ReturnType<typeof readCatalogue>>,
  requests: readonly string[],
) {
  const { one, four, cached } = await measureSearch(served, requests);
  const { rss_mib } = await served.probe();
  const baseline = await miniSearch(entries, requests);
  return {
    p50_ms: one.p50_ms,
    p95_ms: one.p95_ms,
    cpu_ms_a_search: one.cpu_ms,
    four_at_once_p50_ms: four.p50_ms,
    four_at_once_p95_ms: four.p95_ms,
    four_at_once_per_second: four.per_second,
    cached_p50_ms: cached.p50_ms,
    rss_mib,
    minisearch_p50_ms: baseline.p50_ms,
    minisearch_p95_ms: baseline.p95_ms,
    p50_to_minisearch: one.p50_ms / baseline.p50_ms,
    p95_to_minisearch: one.p95_ms / baseline.p95_ms,
  };
}

/** Three imports: into the shipped catalogue, the same again, and the same in the place of everything. */
async function large(file: string, dataFolder: string | undefined) {
  const entries = await readCatalogue(file);
  const requests = requestsFor(entries, REQUESTS);
  await using unpacked = await temporaryFile(await readText(file));
  await using served = await startServed(dataFolder);
  // From the same state in every run, whatever the data folder holds.
  await served.import(SHIPPED, '--replace');
  const facts: Record<string, number> = {
    servers: entries.length,
    tools: entries.reduce((sum, { tools = [] }) => sum + tools.length, 0),
  };
  const imports = [
    ['import', []],
    ['import_again', []],
    ['import_replace', ['--replace']],
  ] as const;
  for (const [name, options] of imports) {
    await served.probe();
    const importing = served.import(unpacked.path, ...options);
    const { result, latency, max_ms } = await beside(served, requests, importing);
    const probe = await served.probe();
    facts[`${name}_s`] = result.seconds;
    facts[`${name}_texts_embedded`] = result.embedded;
    if (result.embedded > 0) facts[`${name}_texts_per_second`] = result.embedded / result.seconds;
    facts[`${name}_loop_delay_max_ms`] = probe.loop_delay_max_ms;
    facts[`${name}_loop_delay_p99_ms`] = probe.loop_delay_p99_ms;
    facts[`${name}_loop_cpu_max_ms`] = probe.loop_cpu_max_ms;
    facts[`${name}_rss_mib`] = probe.rss_mib;
    facts[`${name}_search_p50_ms`] = latency.p50_ms;
    facts[`${name}_search_p95_ms`] = latency.p95_ms;
    facts[`${name}_search_max_ms`] = max_ms;
  }
  return { ...facts, ...(await searchFacts(served, entries, requests)) };
}

async function growth(file: string) {
  const entries = await readCatalogue(file);
  const rows: Awaited<ReturnType<typeof measureGrowth>>[] = [];
  for (const count of GROWTH) rows.push(await measureGrowth(entries, count));
  return rows;
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    data: { type: 'string' },
    only: { type: 'string', multiple: true },
    texts: { type: 'string', default: '400' },
    json: { type: 'boolean' },
  },
});
const [largeFile] = positionals;
const parts: Record<string, () => Promise<object>> = {
  embedding: () => measureEmbedding(largeFile ?? SHIPPED, Number(values.texts)),
  shipped,
  ...(largeFile === undefined ? {} : { large: () => large(largeFile, values.data) }),
  growth: () => growth(largeFile ?? SHIPPED),
};
const wanted = values.only ?? Object.keys(parts);
for (const name of wanted) {
  const measure = parts[name];
  if (!measure) throw new Error(`there is no part ${name}; large needs a catalogue`);
  const measured = await measure();
  if (values.json) {
    console.log(JSON.stringify({ [name]: measured }));
    continue;
  }
  for (const facts of [measured].flat()) {
    console.log(`\n${name}`);
    printFacts(facts);
  }
}
