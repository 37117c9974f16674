import { mean, ndcg } from '../measures.ts';
import { UNUSED } from '../../src/core/catalogue/use-tally.ts';
import { fuse } from '../../src/core/search/ranking.ts';
import type { QueryAdapter } from '../../src/core/search/query-adapter.ts';
import { bestParts } from './adapter-training.ts';
import type { TuneQuery, TuneSet } from './tune-set.ts';

/** Every server's best cosine with any sentence of the query. */
export const cosinesOf = (
  set: TuneSet,
  { sentences }: TuneQuery,
  adapter: QueryAdapter | undefined,
): Float32Array =>
  bestParts(set, adapter ? sentences.map(sentence => adapter.apply(sentence)) : sentences).cosine;

/** The first ten servers, by the product's own fusion of the evidence. */
export function firstTen(cosines: Float32Array, keyword: Float32Array): number[] {
  const candidates = Array.from(cosines, (semantic, server) => ({
    serverId: String(server),
    semantic,
    keyword: keyword[server] ?? 0,
    tools: [],
  }));
  return fuse(candidates, () => UNUSED)
    .slice(0, 10)
    .map(({ serverId }) => Number(serverId));
}

/** Mean nDCG@10 over servers. */
export const qualityOf = (
  set: TuneSet,
  queries: readonly TuneQuery[],
  adapter: QueryAdapter | undefined,
): number =>
  mean(queries.map(query => ndcg(firstTen(cosinesOf(set, query, adapter), query.keyword), query.relevant)));
