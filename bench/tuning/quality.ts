import { mean, ndcg } from '../measures.ts';
import { UNUSED } from '../../src/core/catalogue/use-tally.ts';
import { fuse, type RankingWeights, WEIGHTS } from '../../src/core/search/ranking.ts';
import type { QueryAdapter } from '../../src/core/search/query-adapter.ts';
import { bestParts } from './adapter-training.ts';
import type { TuneQuery, TuneSet } from './tune-set.ts';

/** Every server's best cosine with any sentence of the query, made comparable. */
export const cosinesOf = (
  set: TuneSet,
  { sentences }: TuneQuery,
  adapter: QueryAdapter | undefined,
  spread?: number,
): Float32Array =>
  bestParts(set, adapter ? sentences.map(sentence => adapter.apply(sentence)) : sentences, spread).cosine;

/** The first ten servers, by the product's own fusion of the evidence. */
export function firstTen(cosines: Float32Array, keyword: Float32Array, weights?: RankingWeights): number[] {
  const candidates = Array.from(cosines, (semantic, server) => ({
    serverId: String(server),
    semantic,
    keyword: keyword[server] ?? 0,
    tools: [],
  }));
  return fuse(candidates, () => UNUSED, weights)
    .slice(0, 10)
    .map(({ serverId }) => Number(serverId));
}

/** Mean nDCG@10 over servers. */
export const qualityOf = (
  set: TuneSet,
  queries: readonly TuneQuery[],
  adapter: QueryAdapter | undefined,
  spread?: number,
): number =>
  mean(
    queries.map(query =>
      ndcg(firstTen(cosinesOf(set, query, adapter, spread), query.keyword), query.relevant),
    ),
  );

/**
 * Mean nDCG@10 of the reference that search is compared with: BM25 of the server's own text and of its best tool, the best cosine of
 * the whole query with a tool (with the server where it has none), each divided by its best, one half each.
 */
export function referenceQuality(set: TuneSet, queries: readonly TuneQuery[]): number {
  const { start, servers } = set;
  return mean(
    queries.map(({ reference, relevant }) => {
      const cosines = set.store.scan(reference.sentence);
      const best = Float32Array.from({ length: servers }, (_, server) => {
        const first = start[server] ?? 0;
        const end = start[server + 1] ?? 0;
        return cosines.subarray(Math.min(first + 1, end - 1), end).reduce((a, b) => Math.max(a, b), -1);
      });
      return ndcg(firstTen(best, reference.keyword, { ...WEIGHTS, fullKeyword: 0 }), relevant);
    }),
  );
}
