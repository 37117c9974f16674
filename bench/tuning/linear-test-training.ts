import type { QueryAdapter } from '../../src/core/search/embed/minilm/embedder.ts';
import { largest } from '../../src/core/search/index/vectors.ts';
import { correctForTextCount, meanOf, type LinearTest } from '../../src/core/search/tuning.ts';
import { SPREAD } from './adapter-training.ts';
import { cosinesOf } from './quality.ts';
import type { TuneQuery, TuneSet } from './tune-set.ts';

/** A request, and the best evidence for it in one catalogue. */
export interface Request {
  readonly set: string;
  /** What is learned for a request in cross-fitting is learned without its group: a set, or a part of a set. */
  readonly group: string;
  /** The best calibrated-free cosine and the best keyword score of any server. */
  readonly semantic: number;
  readonly keyword: number;
  /** The best cosine with a server's own text or one of its tools, made comparable. */
  readonly direct: number;
  /** The mean of its sentences' adapted vectors. */
  readonly vector: Float32Array;
}

/** The parts of a set that are held out in turn, each of neighbours in its file, which often have one writer. */
const PARTS = 5;
const RIDGE = 0.015;

/** @param named the set and the group of all; by default the set's own name, and a group for each part of it */
export const requestsOf = (
  set: TuneSet,
  queries: readonly TuneQuery[],
  adapter: QueryAdapter,
  named: { readonly set?: string; readonly group?: string } = {},
): Request[] =>
  queries.map((query, at) => {
    const sentences = query.sentences.map(sentence => adapter.apply(sentence));
    return {
      set: named.set ?? set.name,
      group: named.group ?? `part ${Math.floor((at * PARTS) / queries.length)}`,
      semantic: largest(cosinesOf(set, query, adapter)),
      keyword: largest(query.keyword),
      direct: directCosine(set, sentences),
      vector: meanOf(sentences),
    };
  });

function directCosine({ start, described, store }: TuneSet, sentences: readonly Float32Array[]): number {
  const cosines = sentences.map(sentence => store.scan(sentence));
  const byServer = described.map((count, server) => {
    const first = start[server] ?? 0;
    const best = largest(cosines.map(own => largest(own.subarray(first, first + count))));
    return correctForTextCount(best, count, SPREAD);
  });
  return largest(byServer);
}

interface Fitted {
  /** At least 0 for what is more likely true than not. */
  readonly test: LinearTest;
  /** Returns the value for a request that it was fitted on, by a direction that was learned without its group. */
  readonly heldOut: (one: Request) => number;
}

/**
 * Two logistic regressions: one from the request's vector alone, then one from that, the best cosine and the best keyword score. For the
 * second, the first is cross-fitted by group.
 * @param yes requests of which something holds
 * @param no those of which it does not
 */
export function fitLinearTest(yes: readonly Request[], no: readonly Request[]): Fitted {
  const held = new Map<Request, number>();
  const all = [...yes, ...no];
  for (const group of new Set(all.map(one => one.group))) {
    const others = (requests: readonly Request[]) => requests.filter(one => one.group !== group);
    const direction = directionOf(others(yes), others(no));
    for (const one of all) if (one.group === group) held.set(one, dot(direction, one.vector));
  }
  const features = (one: Request) => [one.semantic, one.keyword, held.get(one) ?? 0];
  const { bias, weights } = fitLinear(yes, no, features);
  const [semantic = 0, keyword = 0, request = 0] = weights;
  const direction = directionOf(yes, no);
  return {
    test: {
      bias: rounded(bias),
      semantic: rounded(semantic),
      keyword: rounded(keyword),
      request: Array.from(direction, value => rounded(value * request)),
    },
    heldOut: one => bias + dot(weights, features(one)),
  };
}

/** Logistic regression of a few features. */
export const fitLinear = (
  yes: readonly Request[],
  no: readonly Request[],
  features: (one: Request) => ArrayLike<number>,
): { readonly bias: number; readonly weights: readonly number[] } => logistic(weighted(yes, no, features), 0);

/** Returns the test that is true from another value on. */
export const trueFrom = (value: number, test: LinearTest): LinearTest => ({
  ...test,
  bias: rounded(test.bias - value),
});

const directionOf = (yes: readonly Request[], no: readonly Request[]): number[] =>
  logistic(
    weighted(yes, no, ({ vector }) => vector),
    RIDGE,
  ).weights;

interface Sample {
  readonly x: ArrayLike<number>;
  readonly y: 0 | 1;
  readonly weight: number;
}

/** Every set counts as much as another of its kind, and either kind as much as the other. */
function weighted(
  yes: readonly Request[],
  no: readonly Request[],
  features: (one: Request) => ArrayLike<number>,
): Sample[] {
  const samples = (requests: readonly Request[], y: 0 | 1): Sample[] => {
    const sets = Object.values(Object.groupBy(requests, ({ set }) => set));
    return sets.flatMap((own = []) =>
      own.map(one => ({ x: features(one), y, weight: 0.5 / sets.length / own.length })),
    );
  };
  return [...samples(yes, 1), ...samples(no, 0)];
}

const STEPS = 400;
const RATE = 1;

/** Logistic regression by gradient descent over standardised features, with a ridge; the weights are of the raw features. */
function logistic(samples: readonly Sample[], ridge: number): { bias: number; weights: number[] } {
  const width = samples[0]?.x.length ?? 0;
  const { mean, deviation } = spread(samples, width);
  const rows = samples.map(({ x }) =>
    Float64Array.from({ length: width }, (_, i) => ((x[i] ?? 0) - (mean[i] ?? 0)) / (deviation[i] ?? 1)),
  );
  const weights = new Float64Array(width);
  let bias = 0;
  for (let step = 0; step < STEPS; step++) {
    const gradient = Float64Array.from(weights, weight => ridge * weight);
    let biasGradient = 0;
    for (const [at, row] of rows.entries()) {
      const { y, weight } = samples[at] ?? { y: 0, weight: 0 };
      const error = (1 / (1 + Math.exp(-bias - dot(weights, row))) - y) * weight;
      biasGradient += error;
      for (let i = 0; i < width; i++) gradient[i] = (gradient[i] ?? 0) + error * (row[i] ?? 0);
    }
    bias -= RATE * biasGradient;
    for (let i = 0; i < width; i++) weights[i] = (weights[i] ?? 0) - RATE * (gradient[i] ?? 0);
  }
  const raw = Array.from(weights, (weight, i) => weight / (deviation[i] ?? 1));
  return { bias: bias - dot(raw, mean), weights: raw };
}

/** Mean and deviation of each feature. */
function spread(samples: readonly Sample[], width: number) {
  const mean = new Float64Array(width);
  const square = new Float64Array(width);
  let total = 0;
  for (const { x, weight } of samples) {
    total += weight;
    for (let i = 0; i < width; i++) {
      mean[i] = (mean[i] ?? 0) + weight * (x[i] ?? 0);
      square[i] = (square[i] ?? 0) + weight * (x[i] ?? 0) ** 2;
    }
  }
  const deviation = mean.map((sum, i) => {
    mean[i] = sum / total;
    return Math.sqrt(Math.max((square[i] ?? 0) / total - (sum / total) ** 2, 1e-12));
  });
  return { mean, deviation };
}

/** More digits say nothing. */
export const rounded = (value: number): number => Number(value.toFixed(4));

function dot(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += (a[i] ?? 0) * (b[i] ?? 0);
  return sum;
}
