import { mean, ndcg, recall } from '../measures.ts';
import { UNUSED } from '../../src/core/catalogue/usage.ts';
import { fuse, type FusedServer, type RankingWeights, WEIGHTS } from '../../src/core/search/fusion.ts';
import type { QueryAdapter } from '../../src/core/search/embed/minilm/embedder.ts';
import type { ToolEvidence } from '../../src/core/search/index/search-index.ts';
import { bestParts } from './adapter-training.ts';
import type { TuneQuery, TuneSet } from './tune-set.ts';

/** Of each server found, this many tools count, as an agent would be shown them. */
export const TOOLS_OF_A_SERVER = 3;
const REFERENCE: RankingWeights = { ...WEIGHTS, fullKeyword: 0 };

const adapted = ({ sentences }: TuneQuery, adapter: QueryAdapter | undefined) =>
  adapter ? sentences.map(sentence => adapter.apply(sentence)) : sentences;

/** Every server's best cosine with any sentence of the query, made comparable. */
export const cosinesOf = (
  set: TuneSet,
  query: TuneQuery,
  adapter: QueryAdapter | undefined,
  spread?: number,
): Float32Array => bestParts(set, adapted(query, adapter), spread).cosine;

/** The first ten servers, by the product's own fusion of the evidence. */
function ranked(
  cosines: Float32Array,
  keyword: Float32Array,
  { weights, toolsOf }: { weights?: RankingWeights; toolsOf?: (server: number) => ToolEvidence } = {},
): FusedServer[] {
  const candidates = Array.from(cosines, (semantic, server) => ({
    serverId: String(server),
    // Taken off already.
    texts: 1,
    semantic,
    direct: 0,
    excess: 0,
    keyword: keyword[server] ?? 0,
    tools: toolsOf?.(server) ?? { semantic: [], keyword: [] },
  }));
  return fuse(candidates, () => UNUSED, weights && { weights }).slice(0, 10);
}

const idsOf = (ranking: readonly FusedServer[]) => ranking.map(({ serverId }) => Number(serverId));

export const firstTen = (cosines: Float32Array, keyword: Float32Array): number[] =>
  idsOf(ranked(cosines, keyword));

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
export const referenceQuality = (set: TuneSet, queries: readonly TuneQuery[]): number =>
  mean(
    queries.map(({ reference, relevant }) => {
      const best = bestToolCosines(set, set.store.scan(reference.sentence));
      return ndcg(idsOf(ranked(best, reference.keyword, { weights: REFERENCE })), relevant);
    }),
  );

const bestToolCosines = ({ start, servers }: TuneSet, cosines: Float32Array): Float32Array =>
  Float32Array.from({ length: servers }, (_, server) => {
    const first = start[server] ?? 0;
    const end = start[server + 1] ?? 0;
    return cosines.subarray(Math.min(first + 1, end - 1), end).reduce((a, b) => Math.max(a, b), -1);
  });

/** How well tools are found: means over the queries whose tools are known. */
export interface ToolQuality {
  readonly ndcg: number;
  readonly recall1: number;
}

export const toolQualityOf = (
  set: TuneSet,
  queries: readonly TuneQuery[],
  adapter: QueryAdapter | undefined,
): ToolQuality =>
  toolQuality(set, queries, (query, keyword) => {
    const scans = adapted(query, adapter).map(sentence => set.store.scan(sentence));
    const cosines = scans.reduce((best, own) => best.map((value, row) => Math.max(value, own[row] ?? 0)));
    return ranked(cosinesOf(set, query, adapter), query.keyword, {
      toolsOf: server => toolEvidence(set, server, cosines, keyword),
    });
  });

/** The same of the reference: its servers in order, the tools of each by the reference's own halves, relative to the best tools of all. */
export const referenceToolQuality = (set: TuneSet, queries: readonly TuneQuery[]): ToolQuality =>
  toolQuality(set, queries, ({ reference }, keyword) => {
    const cosines = set.store.scan(reference.sentence);
    return ranked(bestToolCosines(set, cosines), reference.keyword, {
      weights: REFERENCE,
      toolsOf: server => toolEvidence(set, server, cosines, keyword),
    });
  });

function toolQuality(
  { start }: TuneSet,
  queries: readonly TuneQuery[],
  rank: (query: TuneQuery, keyword: Float32Array) => FusedServer[],
): ToolQuality {
  const measured = queries.flatMap(query => {
    if (!query.tools) return [];
    const { relevant, keyword } = query.tools;
    const found = rank(query, keyword).flatMap(({ serverId, rankTools }) =>
      rankTools()
        .toolOrder.slice(0, TOOLS_OF_A_SERVER)
        .map(index => (start[Number(serverId)] ?? 0) + 1 + index),
    );
    return [{ ndcg: ndcg(found, relevant), recall1: recall(found, relevant, 1) }];
  });
  return { ndcg: mean(measured.map(one => one.ndcg)), recall1: mean(measured.map(one => one.recall1)) };
}

/** A server's tools are the rows after its own. */
function toolEvidence(
  { start }: TuneSet,
  server: number,
  cosines: Float32Array,
  keyword: Float32Array,
): ToolEvidence {
  const first = (start[server] ?? 0) + 1;
  const end = start[server + 1] ?? 0;
  return { semantic: cosines.subarray(first, end), keyword: keyword.subarray(first, end) };
}
