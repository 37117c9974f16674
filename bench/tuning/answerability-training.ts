import type { Answerability } from '../../src/core/search/ranking.ts';

/** A request as answerability is judged by: the best evidence for it in one catalogue, and what it is itself. */
export interface Request {
  readonly set: string;
  /** What is learned for a request in cross-fitting is learned without its group: a set, or a part of a set that only tunes this. */
  readonly group: string;
  /** The best calibrated-free cosine and the best keyword score of any server. */
  readonly semantic: number;
  readonly keyword: number;
  /** The mean of its sentences' adapted vectors. */
  readonly vector: Float32Array;
}

/** The share of the answerable requests that may be turned away. At .006, only 75 % of the unanswerable ones are. */
const TURNED_AWAY = 0.008;
const RIDGE = 0.015;

interface Fitted {
  readonly answerability: Answerability;
  /** Shares turned away, each judged by a direction that was learned without it. */
  readonly answerable: Readonly<Record<string, number>>;
}

/**
 * Two logistic regressions: one from the request's vector alone (is it a request for a service at all), then one from that,
 * the best cosine and the best keyword score. For the second, and for the threshold, the first is cross-fitted by group.
 */
export function fitAnswerability(answerable: readonly Request[], unanswerable: readonly Request[]): Fitted {
  const held = new Map<Request, number>();
  const all = [...answerable, ...unanswerable];
  for (const group of new Set(all.map(one => one.group))) {
    const others = (requests: readonly Request[]) => requests.filter(one => one.group !== group);
    const direction = directionOf(others(answerable), others(unanswerable));
    for (const one of all) if (one.group === group) held.set(one, dot(direction, one.vector));
  }
  const features = (one: Request) => [one.semantic, one.keyword, held.get(one) ?? 0];
  const samples = weighted(answerable, unanswerable, features);
  const { bias, weights } = logistic(samples, 0);
  const score = (one: Request) => bias + dot(weights, features(one));
  const sorted = answerable.map(score).sort((a, b) => a - b);
  const threshold = sorted[Math.floor(sorted.length * TURNED_AWAY)] ?? 0;
  const [semantic = 0, keyword = 0, request = 0] = weights;
  const direction = directionOf(answerable, unanswerable);
  return {
    answerability: {
      bias: rounded(bias - threshold),
      semantic: rounded(semantic),
      keyword: rounded(keyword),
      request: Array.from(direction, value => rounded(value * request)),
    },
    answerable: Object.fromEntries(
      Object.entries(Object.groupBy(answerable, ({ set }) => set)).map(([set, own = []]) => [
        set,
        own.filter(one => score(one) < threshold).length / own.length,
      ]),
    ),
  };
}

const directionOf = (answerable: readonly Request[], unanswerable: readonly Request[]): number[] =>
  logistic(
    weighted(answerable, unanswerable, ({ vector }) => vector),
    RIDGE,
  ).weights;

interface Sample {
  readonly x: ArrayLike<number>;
  readonly y: 0 | 1;
  readonly weight: number;
}

/** Every set counts as much as another of its kind, and the answerable ones together as much as the others. */
function weighted(
  answerable: readonly Request[],
  unanswerable: readonly Request[],
  features: (one: Request) => ArrayLike<number>,
): Sample[] {
  const samples = (requests: readonly Request[], y: 0 | 1): Sample[] => {
    const sets = Object.values(Object.groupBy(requests, ({ set }) => set));
    return sets.flatMap((own = []) =>
      own.map(one => ({ x: features(one), y, weight: 0.5 / sets.length / own.length })),
    );
  };
  return [...samples(answerable, 1), ...samples(unanswerable, 0)];
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
const rounded = (value: number): number => Number(value.toFixed(4));

function dot(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += (a[i] ?? 0) * (b[i] ?? 0);
  return sum;
}
