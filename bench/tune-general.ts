/**
 * Learns which requests a general search of the web serves best: npm run tune:general -- FOLDER [--data FOLDER] [--write]
 *
 * From natural.jsonl and lookups.jsonl in bench/training/, from the examples of the shipped catalogue, and from the sets of FOLDER (see
 * tune.ts), whose requests other servers serve. Prints for how many requests of each set it gives a search of the web a place; for
 * those that it learned from by a test that was learned without them. With --write it replaces `general` in the tuning of the model.
 * --data keeps the vectors for the next run.
 */
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { z } from 'zod';
import { readEntries } from '../src/core/catalogue/import-file.ts';
import { documentsOf, textsOf } from '../src/core/search/documents.ts';
import type { Embedder } from '../src/core/search/embed/embedder.ts';
import { createMiniLmEmbedder, QueryAdapter } from '../src/core/search/embed/minilm/embedder.ts';
import { VectorCache } from '../src/core/search/index/vector-cache.ts';
import { largest, VectorStore } from '../src/core/search/index/vectors.ts';
import { GENERAL_REQUEST } from '../src/core/search/ranking.ts';
import { valueOf, type GeneralSearchTuning } from '../src/core/search/tuning.ts';
import { openDatabase } from '../src/platform/database/database.ts';
import { createLog } from '../src/platform/telemetry/log.ts';
import { percentile } from './measures.ts';
import { readQueries, readText } from './query-sets.ts';
import { fitLinearTest, requestsOf, trueFrom, type Request } from './tuning/linear-test-training.ts';
import { readTuneSet, readTuneSets } from './tuning/tune-set.ts';

const MODEL = path.join(import.meta.dirname, '../src/core/search/embed/minilm');
const SHIPPED = path.join(import.meta.dirname, '../catalogue');
const TRAINING = path.join(import.meta.dirname, 'training');
/** Requests as people type them, with what serves them. */
const NATURAL = path.join(TRAINING, 'natural.jsonl');
/** Questions that only a search of the web answers. */
const LOOKUPS = path.join(TRAINING, 'lookups.jsonl');
const UNTUNED = [
  'everyday.jsonl',
  'answerable.jsonl',
  'requests.jsonl',
  'unanswerable.jsonl',
  'training/unanswerable.jsonl',
];
/** The shares of the requests for which another server is best that may have a search of the web first, and among three. */
const FIRST = 0.05;
const AMONG_THREE = 0.2;
/** The least cosine of a tool with a request for a search of the web. Lower, and tools that search something else are among them. */
const TOOL = 0.45;
/** Every nth example of a server that searches something else teaches. */
const EVERY = 4;

const labelSchema = z.object({
  relevant_servers: z.array(z.string()),
  /** Whether a search of the web serves it best, or serves it, too. */
  general: z.enum(['best', 'fits']).optional(),
});

/** The name of the sets of FOLDER together, so that they count as much as natural.jsonl; and the most requests of each. */
const ELSEWHERE = 'other catalogues';
const MOST_ELSEWHERE = 400;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { data: { type: 'string' }, write: { type: 'boolean' } },
});
const [folder] = positionals;
if (folder === undefined) {
  console.error('Usage: npm run tune:general -- FOLDER [--data FOLDER] [--write]');
  process.exitCode = 2;
} else await tune(folder);

async function tune(from: string): Promise<void> {
  const embedder = await createMiniLmEmbedder();
  const database = await openDatabase(values.data);
  const shippedFile = path.join(SHIPPED, 'vectors.bin');
  const cache = await VectorCache.open({ embedder, db: database.db, log: createLog('info'), shippedFile });
  const adapter = QueryAdapter.decode(
    await readFile(path.join(MODEL, 'query-adapter.bin')),
    embedder.dimensions,
  );
  const read = async (file: string) => {
    const corpus = path.join(SHIPPED, 'servers.jsonl');
    const set = await readTuneSet({ name: path.basename(file), corpus, queries: file, embedder, cache });
    return requestsOf(set, set.queries, adapter);
  };
  const elsewhere = (await readTuneSets(from, { embedder, cache })).flatMap(set => {
    const every = Math.ceil(set.queries.length / MOST_ELSEWHERE);
    const queries = set.queries.filter((_query, at) => at % every === 0);
    return requestsOf(set, queries, adapter, { set: ELSEWHERE, group: set.name });
  });
  const natural = await read(NATURAL);
  const lookups = await read(LOOKUPS);
  const untuned = await Promise.all(
    UNTUNED.map(async name => ({ name, requests: await read(path.join(import.meta.dirname, name)) })),
  );
  const examples = await readExamples(
    embedder,
    cache,
    new Set((await readQueries(NATURAL)).map(({ query }) => query)),
  );
  await embedder.close();
  await database.close();
  const general = learn({ natural, labels: await readLabels(), lookups, elsewhere, examples, untuned });
  if (!values.write) return;
  const file = path.join(MODEL, 'tuning.json');
  const tuning = z.looseObject({}).parse(JSON.parse(await readFile(file, 'utf8')));
  await writeFile(file, `${JSON.stringify({ ...tuning, general })}\n`);
}

interface Learned {
  readonly natural: readonly Request[];
  /** Of `natural`. */
  readonly labels: readonly z.infer<typeof labelSchema>[];
  readonly lookups: readonly Request[];
  readonly elsewhere: readonly Request[];
  readonly examples: Examples;
  readonly untuned: readonly { readonly name: string; readonly requests: readonly Request[] }[];
}

function learn({ natural, labels, lookups, elsewhere, examples, untuned }: Learned): GeneralSearchTuning {
  const best = natural.filter((_one, at) => labels[at]?.general === 'best');
  const others = natural.filter(
    (_one, at) => labels[at]?.general !== 'best' && labels[at]?.relevant_servers.length !== 0,
  );
  const { test, heldOut } = fitLinearTest([...best, ...lookups], [...others, ...elsewhere], examples);
  const first = percentile(others.map(heldOut), 1 - FIRST);
  const likely = percentile(others.map(heldOut), 1 - AMONG_THREE) - first;
  const general = { ...trueFrom(first, test), likely: Number(likely.toFixed(4)), tool: TOOL };
  const row = (set: string, all: readonly number[]) => {
    const share = (from: number) =>
      `${((100 * all.filter(value => value >= from).length) / all.length).toFixed(1)} %`;
    return { set, requests: all.length, 'leads for': share(0), 'at least third for': share(general.likely) };
  };
  console.log('\nA general search of the web');
  console.table([
    row(
      'natural.jsonl, where it is best',
      best.map(one => heldOut(one) - first),
    ),
    row(
      'lookups.jsonl',
      lookups.map(one => heldOut(one) - first),
    ),
    row(
      'natural.jsonl, where another server is best',
      others.map(one => heldOut(one) - first),
    ),
    ...Object.entries(Object.groupBy(elsewhere, ({ group }) => group)).map(([name, own = []]) =>
      row(
        name,
        own.map(one => heldOut(one) - first),
      ),
    ),
    ...untuned.map(({ name, requests }) =>
      row(
        name,
        requests.map(one => valueOf(one, general)),
      ),
    ),
  ]);
  return general;
}

async function readLabels(): Promise<z.infer<typeof labelSchema>[]> {
  const lines = (await readText(NATURAL)).trim().split('\n');
  return lines.map(line => labelSchema.parse(JSON.parse(line)));
}

interface Examples {
  /** Of servers that search the web for anything. */
  readonly yes: readonly Request[];
  /** Some of the others'. */
  readonly no: readonly Request[];
}

/** @param held requests that are judged by what is learned without them */
async function readExamples(
  embedder: Embedder,
  cache: VectorCache,
  held: ReadonlySet<string>,
): Promise<Examples> {
  const { entries } = readEntries(await readText(path.join(SHIPPED, 'servers.jsonl')), { allowHttp: false });
  const asked = await embedder.embed(textsOf(GENERAL_REQUEST).sentences, 'query');
  const yes: string[] = [];
  const no: string[] = [];
  for (const entry of entries) {
    const { tools = [], examples = [] } = entry;
    const prose = documentsOf({ ...entry, tools }).parts.slice(1, 1 + tools.length);
    const vectors = await cache.vectorsOf(prose.map(part => part.prose));
    const store = new VectorStore(embedder.dimensions);
    for (const [at, vector] of vectors.entries()) store.set(at, vector);
    const isGeneral = tools.length > 0 && asked.some(sentence => largest(store.scan(sentence)) >= TOOL);
    if (isGeneral) console.log(`searches the web: ${entry.id}`);
    (isGeneral ? yes : no).push(...examples.filter(example => !held.has(example)));
  }
  const requests = async (texts: readonly string[]) =>
    (await embedder.embed(texts, 'query')).map(vector => ({
      set: 'examples',
      group: 'examples',
      semantic: 0,
      keyword: 0,
      vector,
    }));
  return { yes: await requests(yes), no: await requests(no.filter((_text, at) => at % EVERY === 0)) };
}
