export const mean = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length;

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
