import type { Answerability } from '../../src/core/search/answerability.ts';

/** A request as answerability is judged by: the best evidence for it in one catalogue, and what it is itself. */
export interface Request {
  readonly set: string;
  /** The best calibrated-free cosine and the best keyword score of any server. */
  readonly semantic: number;
  readonly keyword: number;
  /** The mean of its sentences' adapted vectors. */
  readonly vector: Float32Array;
}

/** How much of the answerable requests may be turned away, as a share of them. */
const TURNED_AWAY = 0.004;
const FOLDS = 5;
const RIDGE = 0.1;

interface Fitted {
  readonly answerability: Answerability;
  /** Shares turned away, each judged by a direction that was learned without it. */
  readonly answerable: Readonly<Record<string, number>>;
}

/**
 * Two logistic regressions: one from the request's vector alone (is it a request for a service at all), then one from that,
 * the best cosine and the best keyword score. For the second, and for the threshold, the first is cross-fitted: by set for
 * answerable requests, in five parts for the others.
 */
export function fitAnswerability(answerable: readonly Request[], unanswerable: readonly Request[]): Fitted {
  const sets = [...new Set(answerable.map(({ set }) => set))];
  const held = new Map<Request, number>();
  for (const set of sets) {
    const direction = directionOf(
      answerable.filter(one => one.set !== set),
      unanswerable,
    );
    for (const one of answerable) if (one.set === set) held.set(one, dot(direction, one.vector));
  }
  for (let fold = 0; fold < FOLDS; fold++) {
    const direction = directionOf(
      answerable,
      unanswerable.filter((_, at) => at % FOLDS !== fold),
    );
    for (const [at, one] of unanswerable.entries())
      if (at % FOLDS === fold) held.set(one, dot(direction, one.vector));
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
      sets.map(set => {
        const own = answerable.filter(one => one.set === set);
        return [set, own.filter(one => score(one) < threshold).length / own.length];
      }),
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

/** Every set counts as much as another, and the answerable ones together as much as the others. */
function weighted(
  answerable: readonly Request[],
  unanswerable: readonly Request[],
  features: (one: Request) => ArrayLike<number>,
): Sample[] {
  const sizes = new Map<string, number>();
  for (const { set } of answerable) sizes.set(set, (sizes.get(set) ?? 0) + 1);
  return [
    ...answerable.map((one): Sample => ({
      x: features(one),
      y: 1,
      weight: 0.5 / sizes.size / (sizes.get(one.set) ?? 1),
    })),
    ...unanswerable.map((one): Sample => ({ x: features(one), y: 0, weight: 0.5 / unanswerable.length })),
  ];
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

/** Mean and deviation of each feature; one deviation for all of a vector's components keeps their proportions. */
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
