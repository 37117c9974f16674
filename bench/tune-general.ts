/**
 * Learns which requests a general search of the web serves best: npm run tune:general -- FOLDER [--data FOLDER] [--write]
 *
 * By known requests that are near: the questions of natural.jsonl and lookups.jsonl in bench/training/, and requests that are none, of
 * natural.jsonl, unanswerable.jsonl and the examples of the shipped catalogue. How much their nearness says, beside the evidence for the
 * best server, is learned from natural.jsonl, lookups.jsonl and the sets of FOLDER (see tune.ts), whose requests other servers serve.
 * Prints for how many requests of each set it gives a search of the web a place; for those that it learned from by what is known without
 * their neighbours in the file. With --write it replaces `general` in the tuning of the model, and the vectors of the known requests.
 * --data keeps the vectors of the catalogues for the next run.
 */
import { createHash } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { z } from 'zod';
import { createMiniLmEmbedder, QueryAdapter } from '../src/core/search/embed/minilm/embedder.ts';
import { VectorCache } from '../src/core/search/index/vector-cache.ts';
import { textsOf } from '../src/core/search/documents.ts';
import { readEntries } from '../src/core/catalogue/import-file.ts';
import type { Embedder } from '../src/core/search/embed/embedder.ts';
import { KnownRequests } from '../src/core/search/known-requests.ts';
import { generalValueOf, meanOf } from '../src/core/search/tuning.ts';
import { openDatabase } from '../src/platform/database/database.ts';
import { createLog } from '../src/platform/telemetry/log.ts';
import { percentile } from './measures.ts';
import { readQueries, readText } from './query-sets.ts';
import { fitLinear, requestsOf, rounded, type Request } from './tuning/linear-test-training.ts';
import { readTuneSet, readTuneSets } from './tuning/tune-set.ts';

const MODEL = path.join(import.meta.dirname, '../src/core/search/embed/minilm');
const SHIPPED = path.join(import.meta.dirname, '../catalogue');
const TRAINING = path.join(import.meta.dirname, 'training');
/** Requests as people type them, with what serves them. */
const NATURAL = path.join(TRAINING, 'natural.jsonl');
/** Questions that only a search of the web answers. */
const LOOKUPS = path.join(TRAINING, 'lookups.jsonl');
/** What nothing serves. It is known, but does not teach how much that says: there is hardly any doubt about it. */
const UNANSWERABLE = path.join(TRAINING, 'unanswerable.jsonl');
const UNTUNED = ['everyday.jsonl', 'answerable.jsonl', 'requests.jsonl', 'unanswerable.jsonl'];
/** The shares of the requests for which another server is best that may have a search of the web first, and among three. */
const FIRST = 0.04;
const AMONG_THREE = 0.1;
/** Every nth example of the catalogue is known. */
const EVERY = 3;
/** The least cosine of a tool with a request for a search of the web. Lower, and tools that search something else are among them. */
const TOOL = 0.45;

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
  const unanswerable = await read(UNANSWERABLE);
  const examples = await readExamples(embedder, adapter);
  const untuned = await Promise.all(
    UNTUNED.map(async name => ({ name, requests: await read(path.join(import.meta.dirname, name)) })),
  );
  await embedder.close();
  await database.close();
  const labels = await readLabels();
  const best = natural.filter((_one, at) => labels[at]?.general === 'best');
  const others = natural.filter((_one, at) => labels[at]?.general !== 'best');
  const known = { questions: [...best, ...lookups], others: [...others, ...unanswerable, ...examples] };
  const served = new Set(natural.filter((_one, at) => labels[at]?.relevant_servers.length !== 0));
  const sets = { best, lookups, others: others.filter(one => served.has(one)), elsewhere, untuned };
  const general = learn(known, sets);
  if (!values.write) return;
  const vectors = KnownRequests.encode([...known.questions, ...known.others].map(({ vector }) => vector));
  const sha256 = createHash('sha256').update(vectors).digest('hex');
  await writeFile(path.join(MODEL, 'known-requests.bin'), vectors);
  const file = path.join(MODEL, 'tuning.json');
  const tuning = z.looseObject({}).parse(JSON.parse(await readFile(file, 'utf8')));
  await writeFile(file, `${JSON.stringify({ ...tuning, general: { ...general, sha256 } })}\n`);
}

/** What is known of a request. */
type KnownRequest = Pick<Request, 'group' | 'vector'>;

interface Known {
  readonly questions: readonly KnownRequest[];
  readonly others: readonly KnownRequest[];
}

interface Sets {
  readonly best: readonly Request[];
  readonly lookups: readonly Request[];
  /** Requests of the same writers as `best` that another server serves. */
  readonly others: readonly Request[];
  readonly elsewhere: readonly Request[];
  readonly untuned: readonly { readonly name: string; readonly requests: readonly Request[] }[];
}

function learn(known: Known, { best, lookups, others, elsewhere, untuned }: Sets) {
  const near = new Map<Request, ReturnType<KnownRequests['nearness']>>();
  const learning = [...best, ...lookups, ...others, ...elsewhere];
  for (const [group, own = []] of Object.entries(Object.groupBy(learning, one => one.group))) {
    const without = knownRequests(known, group);
    for (const one of own) near.set(one, without.nearness(one.vector));
  }
  const whole = knownRequests(known);
  for (const one of untuned.flatMap(({ requests }) => requests)) near.set(one, whole.nearness(one.vector));
  const nearnessOf = (one: Request) => near.get(one) ?? { question: 0, other: 0 };
  const fitted = fitLinear([...best, ...lookups], [...others, ...elsewhere], one => {
    const { question, other } = nearnessOf(one);
    return [one.direct, one.keyword, question, other];
  });
  const [direct = 0, keyword = 0, question = 0, other = 0] = fitted.weights.map(rounded);
  const unbiased = { bias: 0, direct, keyword, question, other };
  const doubtful = others.map(one => generalValueOf(one, nearnessOf(one), unbiased));
  const first = percentile(doubtful, 1 - FIRST);
  const likely = rounded(percentile(doubtful, 1 - AMONG_THREE) - first);
  const test = { ...unbiased, bias: rounded(-first) };
  const row = (set: string, requests: readonly Request[]) => {
    const all = requests.map(one => generalValueOf(one, nearnessOf(one), test));
    const share = (from: number) =>
      `${((100 * all.filter(value => value >= from).length) / all.length).toFixed(1)} %`;
    return { set, requests: all.length, 'leads for': share(0), 'at least third for': share(likely) };
  };
  console.log('\nA general search of the web');
  console.table([
    row('natural.jsonl, where it is best', best),
    row('lookups.jsonl', lookups),
    row('natural.jsonl, where another server is best', others),
    ...Object.entries(Object.groupBy(elsewhere, ({ group }) => group)).map(([name, own = []]) =>
      row(name, own),
    ),
    ...untuned.map(({ name, requests }) => row(name, requests)),
  ]);
  return { ...test, likely, tool: TOOL, questions: known.questions.length };
}

/** @param group left out, so that no request is near to itself or its neighbours */
function knownRequests({ questions, others }: Known, group?: string): KnownRequests {
  const vectorsOf = (requests: readonly KnownRequest[]) =>
    requests.filter(one => one.group !== group).map(({ vector }) => vector);
  const first = vectorsOf(questions);
  return new KnownRequests(KnownRequests.encode([...first, ...vectorsOf(others)]), {
    dimensions: first[0]?.length ?? 0,
    questions: first.length,
  });
}

/** Returns some examples of the shipped catalogue, less those that are requests of natural.jsonl. */
async function readExamples(embedder: Embedder, adapter: QueryAdapter): Promise<KnownRequest[]> {
  const { entries } = readEntries(await readText(path.join(SHIPPED, 'servers.jsonl')), { allowHttp: false });
  const natural = new Set((await readQueries(NATURAL)).map(({ query }) => query));
  const texts = entries.flatMap(({ examples = [] }) => examples).filter(text => !natural.has(text));
  const sentences = texts.filter((_text, at) => at % EVERY === 0).map(text => textsOf(text).sentences);
  const vectors = await embedder.embed(sentences.flat(), 'query');
  return sentences.map(({ length }) => ({
    group: 'examples',
    vector: meanOf(vectors.splice(0, length).map(vector => adapter.apply(vector))),
  }));
}

async function readLabels(): Promise<z.infer<typeof labelSchema>[]> {
  const lines = (await readText(NATURAL)).trim().split('\n');
  return lines.map(line => labelSchema.parse(JSON.parse(line)));
}
