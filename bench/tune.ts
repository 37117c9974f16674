/**
 * Tunes search on sets of queries with known answers: npm run tune -- FOLDER [--data FOLDER] [--write]
 *
 * FOLDER holds NAME.corpus.jsonl and NAME.queries.jsonl (or .gz) of every set. Learns the query adapter, what tells requests
 * that nothing can serve, and the calibration of cosines; prints what each brings, on queries it has not seen and on catalogues
 * it has not seen; with --write puts them into src/core/search/embed/minilm/: `npm run tune:general` is due afterwards. --data keeps the
 * vectors for the next run.
 */
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { z } from 'zod';
import { calibrate, valueOf } from '../src/core/search/tuning.ts';
import { createMiniLmEmbedder, type QueryAdapter } from '../src/core/search/embed/minilm/embedder.ts';
import { VectorCache } from '../src/core/search/index/vector-cache.ts';
import { openDatabase } from '../src/platform/database/database.ts';
import { createLog } from '../src/platform/telemetry/log.ts';
import { percentile } from './measures.ts';
import { randomFrom, shuffled } from './random.ts';
import { SPREAD, trainAdapter } from './tuning/adapter-training.ts';
import {
  fitLinearTest,
  requestsOf as requestsIn,
  trueFrom,
  type Request,
} from './tuning/linear-test-training.ts';
import { isotonicTable } from './tuning/isotonic.ts';
import {
  cosinesOf,
  firstTen,
  qualityOf,
  referenceQuality,
  referenceToolQuality,
  toolQualityOf,
  type ToolQuality,
} from './tuning/quality.ts';
import { readTuneSet, readTuneSets, type TuneQuery, type TuneSet } from './tuning/tune-set.ts';

const OUT = path.join(import.meta.dirname, '../src/core/search/embed/minilm');
const UNANSWERABLE = path.join(import.meta.dirname, 'unanswerable.jsonl');
/** Requests for servers of the shipped catalogue that nothing is tuned on: of strangers to it, and of model training's held-out servers. */
const UNTUNED = ['answerable.jsonl', 'requests.jsonl'];
/** Requests that tune what is turned away, and nothing else. */
const TRAINING = path.join(import.meta.dirname, 'training');
/** Most of the model's training requests would only repeat what the others teach. */
const EVERY_TRAINING_REQUEST = 12;
/** The share of the answerable requests that may be turned away. At .006, only 75 % of the unanswerable ones are. */
const TURNED_AWAY = 0.008;
const SPREADS = [0, 0.04, 0.06, 0.08, 0.1, 0.12];
const SHIPPED = path.join(import.meta.dirname, '../catalogue/servers.jsonl');
const FOLDS_SEED = 7;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { data: { type: 'string' }, write: { type: 'boolean' } },
});
const [folder] = positionals;
if (folder === undefined) {
  console.error('Usage: npm run tune -- FOLDER [--data FOLDER] [--write]');
  process.exitCode = 2;
} else await tune(folder);

async function tune(from: string): Promise<void> {
  const embedder = await createMiniLmEmbedder();
  const database = await openDatabase(values.data);
  const cache = await VectorCache.open({ embedder, db: database.db, log: createLog('info') });
  const read = (name: string, corpus: string, queries: string) =>
    readTuneSet({ name, corpus, queries, embedder, cache });
  const sets = await readTuneSets(from, { embedder, cache });
  const metatool = sets.find(({ name }) => name === 'metatool')?.corpus;
  const untuned: TuneSet[] = [];
  for (const name of UNTUNED)
    untuned.push(await read(`shipped, ${name}`, SHIPPED, path.join(import.meta.dirname, name)));
  const catalogues = [{ name: 'shipped catalogue', corpus: SHIPPED }];
  if (metatool !== undefined) catalogues.push({ name: 'metatool', corpus: metatool });
  const unanswerable: TuneSet[] = [];
  const nothings: TuneSet[] = [];
  for (const { name, corpus } of catalogues) {
    unanswerable.push(await read(`unanswerable, over ${name}`, corpus, UNANSWERABLE));
    nothings.push(await read(`training, ${name}`, corpus, path.join(TRAINING, 'unanswerable.jsonl')));
  }
  const loose = [
    await read('training, answerable.jsonl', SHIPPED, path.join(TRAINING, 'answerable.jsonl')),
    await readTuneSet({
      name: 'training, requests.jsonl',
      corpus: SHIPPED,
      queries: path.join(TRAINING, 'requests.jsonl'),
      every: EVERY_TRAINING_REQUEST,
      embedder,
      cache,
    }),
  ];
  await embedder.close();
  await database.close();

  const { dimensions } = embedder;
  showSpread([...sets, ...untuned]);
  showAdapter(sets, untuned, dimensions);
  const adapter = trainAdapter(
    sets.map(set => ({ set, queries: answered(set) })),
    dimensions,
  );
  const answerability = showAnswerability({ sets, loose, untuned, unanswerable, nothings }, adapter);
  const calibration = showCalibration(sets, dimensions);
  if (!values.write) return;
  await writeFile(path.join(OUT, 'query-adapter.bin'), adapter.encode());
  const file = path.join(OUT, 'tuning.json');
  // `npm run tune:general` learns it, on the new adapter.
  const { general } = z.object({ general: z.unknown() }).parse(JSON.parse(await readFile(file, 'utf8')));
  const tuning = { embedder: embedder.id, spread: SPREAD, calibration, answerability, general };
  await writeFile(file, `${JSON.stringify(tuning)}\n`);
  console.log('Now run `npm run tune:general -- FOLDER --write`.');
}

function answered({ queries }: TuneSet): TuneQuery[] {
  return queries.filter(({ relevant }) => relevant.size > 0);
}

/** Two halves of a set's queries, the same at every run. */
function halves(set: TuneSet): [TuneQuery[], TuneQuery[]] {
  const mixed = shuffled(answered(set), randomFrom(FOLDS_SEED));
  const middle = Math.ceil(mixed.length / 2);
  return [mixed.slice(0, middle), mixed.slice(middle)];
}

/** A gain in points of 100. */
function points(value: number): string {
  return `${value < 0 ? '' : '+'}${(value * 100).toFixed(1)}`;
}

/** What it brings that a best cosine counts less the more texts it is the best of. */
function showSpread(sets: readonly TuneSet[]): void {
  console.log('\nBest cosines less chance, by spread, without adapter: server nDCG@10');
  console.table(
    sets.map(set => ({
      set: set.name,
      ...Object.fromEntries(
        SPREADS.map(spread => [
          `spread ${spread}`,
          qualityOf(set, answered(set), undefined, spread).toFixed(3),
        ]),
      ),
    })),
  );
}

function showAdapter(sets: readonly TuneSet[], untuned: readonly TuneSet[], dimensions: number): void {
  console.log('\nThe query adapter, server nDCG@10 and its gain in points');
  const split = sets.map(set => ({ set, halves: halves(set) }));
  const half = trainAdapter(
    split.map(({ set, halves: [queries] }) => ({ set, queries })),
    dimensions,
  );
  const tools: Record<string, unknown>[] = [];
  const table = split.map(({ set, halves: [, unseen] }) => {
    const others = sets.filter(other => other !== set);
    const elsewhere = trainAdapter(
      others.map(other => ({ set: other, queries: answered(other) })),
      dimensions,
    );
    const all = answered(set);
    const plain = qualityOf(set, unseen, undefined);
    const without = qualityOf(set, all, undefined);
    if (all.some(query => query.tools)) {
      tools.push({
        set: set.name,
        reference: shown(referenceToolQuality(set, all)),
        'without adapter': shown(toolQualityOf(set, all, undefined)),
        'unseen catalogue': shown(toolQualityOf(set, all, elsewhere)),
        'unseen half: reference': shown(referenceToolQuality(set, unseen)),
        'unseen queries of seen catalogues': shown(toolQualityOf(set, unseen, half)),
      });
    }
    return {
      set: set.name,
      reference: referenceQuality(set, all).toFixed(3),
      'without adapter': without.toFixed(3),
      'unseen queries of seen catalogues': points(qualityOf(set, unseen, half) - plain),
      'unseen catalogue': points(qualityOf(set, all, elsewhere) - without),
    };
  });
  const whole = trainAdapter(
    sets.map(set => ({ set, queries: answered(set) })),
    dimensions,
  );
  const others = untuned.map(set => {
    const all = answered(set);
    const without = qualityOf(set, all, undefined);
    return {
      set: set.name,
      reference: referenceQuality(set, all).toFixed(3),
      'without adapter': without.toFixed(3),
      'unseen queries of seen catalogues': '',
      'unseen catalogue': points(qualityOf(set, all, whole) - without),
    };
  });
  console.table([...table, ...others]);
  console.log('\nTools, three of a server: nDCG@10 and recall@1');
  console.table(tools);
}

function shown({ ndcg, recall1 }: ToolQuality): string {
  return `${ndcg.toFixed(3)} ${recall1.toFixed(3)}`;
}

/** The half that tunes, then the half that tests. */
function parted<Item>(items: readonly Item[]): [readonly Item[], readonly Item[]] {
  return [items.slice(0, items.length / 2), items.slice(items.length / 2)];
}

interface AnswerabilitySets {
  readonly sets: readonly TuneSet[];
  /** Answerable requests as people type them, which tune. */
  readonly loose: readonly TuneSet[];
  /** … and which do not: they are only measured. */
  readonly untuned: readonly TuneSet[];
  /** Requests that nothing can serve: the first half tunes. */
  readonly unanswerable: readonly TuneSet[];
  /** … of which all tune. */
  readonly nothings: readonly TuneSet[];
}

function showAnswerability(
  { sets, loose, untuned, unanswerable, nothings }: AnswerabilitySets,
  adapter: QueryAdapter,
) {
  const requestsOf = (set: TuneSet, queries: readonly TuneQuery[]) =>
    requestsIn(set, queries, adapter, sets.includes(set) ? { group: set.name } : {});
  const able = [...sets, ...loose].flatMap(set => requestsOf(set, answered(set)));
  const { test, heldOut } = fitLinearTest(able, [
    ...nothings.flatMap(set => requestsOf(set, set.queries)),
    ...unanswerable.flatMap(set => requestsOf(set, parted(set.queries)[0])),
  ]);
  const least = percentile(able.map(heldOut), TURNED_AWAY);
  const answerability = trueFrom(least, test);
  const answerable = Object.fromEntries(
    Object.entries(Object.groupBy(able, ({ set }) => set)).map(([set, own = []]) => [
      set,
      own.filter(one => heldOut(one) < least).length / own.length,
    ]),
  );
  const refused = (one: Request) => valueOf(one, answerability) < 0;
  const share = (requests: readonly Request[]) =>
    `${((100 * requests.filter(refused).length) / requests.length).toFixed(1)} %`;
  console.log('\nAnswered with an empty list');
  console.table([
    ...[...sets, ...loose].map(set => ({
      requests: set.name,
      'as built': share(requestsOf(set, answered(set))),
      'as an unseen set': `${(100 * (answerable[set.name] ?? 0)).toFixed(1)} %`,
    })),
    ...untuned.map(set => {
      const refusedOf = share(requestsOf(set, answered(set)));
      return { requests: set.name, 'as built': refusedOf, 'as an unseen set': refusedOf };
    }),
    ...unanswerable.map(set => ({
      requests: set.name,
      'as built': share(requestsOf(set, set.queries)),
      'as an unseen set': share(requestsOf(set, parted(set.queries)[1])),
    })),
  ]);
  const all = sets.flatMap(set => requestsOf(set, answered(set)));
  console.log(`All queries of the sets: ${share(all)} turned away`);
  return answerability;
}

/** Learned from the second halves of all sets, with an adapter that has seen the first, and shown on the first with the other way round. */
function showCalibration(sets: readonly TuneSet[], dimensions: number) {
  const split = sets.map(set => ({ set, halves: halves(set) }));
  const [first, second] = ([0, 1] as const).map(learned => {
    const adapter = trainAdapter(
      split.map(one => ({ set: one.set, queries: one.halves[learned] })),
      dimensions,
    );
    return split.flatMap(({ set, halves: parts }) => {
      const queries = parts[1 - learned] ?? [];
      return queries.flatMap(query => {
        const cosines = cosinesOf(set, query, adapter);
        return firstTen(cosines, query.keyword).map(server => ({
          cosine: cosines[server] ?? 0,
          relevant: query.relevant.has(server),
          weight: 1 / queries.length,
        }));
      });
    });
  });
  const table = isotonicTable(first ?? []);
  const bins = Array.from({ length: 10 }, () => ({ weight: 0, score: 0, relevant: 0 }));
  for (const { cosine, relevant, weight } of second ?? []) {
    const score = calibrate(cosine, table);
    const bin = bins[Math.min(9, Math.floor(score * 10))];
    if (!bin) continue;
    bin.weight += weight;
    bin.score += weight * score;
    bin.relevant += relevant ? weight : 0;
  }
  console.log(
    '\nReliability of scores.semantic: results of one half of the queries, scored by a table made from the other',
  );
  console.table(
    bins.map(({ weight, score, relevant }, at) => ({
      score: `${at / 10}–${(at + 1) / 10}`,
      'share of results': `${((100 * weight) / bins.reduce((sum, bin) => sum + bin.weight, 0)).toFixed(1)} %`,
      'mean score': (score / weight).toFixed(3),
      relevant: (relevant / weight).toFixed(3),
    })),
  );
  return table;
}
