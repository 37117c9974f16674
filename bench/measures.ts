export const mean = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length;

/** Returns the value that a share of the values (0 to 1) are below. */
export const percentile = (values: readonly number[], share: number): number =>
  values.toSorted((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * share))] ?? 0;

/** nDCG@10 with binary gain. */
export function ndcg<Id>(found: readonly Id[], relevant: ReadonlySet<Id>): number {
  const discount = (rank: number) => 1 / Math.log2(rank + 2);
  const gained = found
    .slice(0, 10)
    .reduce((sum, id, rank) => sum + (relevant.has(id) ? discount(rank) : 0), 0);
  const best = Array.from({ length: Math.min(10, relevant.size) }, (_, rank) => discount(rank));
  return gained / best.reduce((sum, gain) => sum + gain, 0);
}

/** Of what could be among the first `depth`, the share that is. */
export const recall = <Id>(found: readonly Id[], relevant: ReadonlySet<Id>, depth: number): number =>
  found.slice(0, depth).filter(id => relevant.has(id)).length / Math.min(depth, relevant.size);

/**
 * Growth over the span of these values by least squares, as a share of their mean.
 * @param at when each was taken, in any unit; without it they are evenly spaced
 */
export function growth(values: readonly number[], at: readonly number[] = [...values.keys()]): number {
  const meanAt = mean(at);
  const meanValue = mean(values);
  const away = at.map(x => x - meanAt);
  const covariance = values.reduce((sum, value, i) => sum + (away[i] ?? 0) * (value - meanValue), 0);
  const variance = away.reduce((sum, distance) => sum + distance ** 2, 0);
  const span = (at.at(-1) ?? 0) - (at[0] ?? 0);
  return ((covariance / variance) * span) / meanValue;
}
