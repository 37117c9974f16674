import type { CalibrationPoint } from '../../src/core/search/tuning.ts';

interface Outcome {
  readonly cosine: number;
  readonly relevant: boolean;
  readonly weight: number;
}

interface Block {
  /** Weighted sums. */
  weight: number;
  cosine: number;
  relevant: number;
}

/** Points of the table at most, after which the smallest step is left out. */
const POINTS = 16;
/** A block of less than this share of all outcomes is joined to its neighbour. */
const SMALLEST_SHARE = 0.01;

/**
 * The share of relevant outcomes as a non-decreasing function of the cosine (isotonic regression by pooling adjacent
 * violators), as a table to be interpolated.
 */
export function isotonicTable(outcomes: readonly Outcome[]): CalibrationPoint[] {
  const total = outcomes.reduce((sum, { weight }) => sum + weight, 0);
  const blocks: Block[] = [];
  for (const { cosine, relevant, weight } of outcomes.toSorted((a, b) => a.cosine - b.cosine)) {
    let block = { weight, cosine: weight * cosine, relevant: relevant ? weight : 0 };
    for (;;) {
      const last = blocks.at(-1);
      const isTooSmall = last && last.weight < SMALLEST_SHARE * total;
      if (!last || (!isTooSmall && rate(last) < rate(block))) break;
      blocks.pop();
      block = join(last, block);
    }
    blocks.push(block);
  }
  const points = blocks.map((block): CalibrationPoint => [block.cosine / block.weight, rate(block)]);
  while (points.length > POINTS) points.splice(leastNeeded(points), 1);
  return points.map(([cosine, probability]) => [round(cosine), round(probability)]);
}

const rate = ({ relevant, weight }: Block): number => relevant / weight;

const join = (a: Block, b: Block): Block => ({
  weight: a.weight + b.weight,
  cosine: a.cosine + b.cosine,
  relevant: a.relevant + b.relevant,
});

/** The inner point that the line between its neighbours misses by least. */
function leastNeeded(points: readonly CalibrationPoint[]): number {
  let best = 1;
  let least = Infinity;
  for (let at = 1; at < points.length - 1; at++) {
    const [[x0, y0] = [0, 0], [x, y] = [0, 0], [x1, y1] = [1, 1]] = points.slice(at - 1, at + 2);
    const missed = Math.abs(y0 + ((y1 - y0) * (x - x0)) / (x1 - x0) - y);
    if (missed < least) [best, least] = [at, missed];
  }
  return best;
}

const round = (value: number): number => Number(value.toFixed(4));
