import type { UseSignals } from '../catalogue/use-tally.ts';
import type { Candidate, ToolEvidence } from './index/search-index.ts';
import { withUse } from './usage-boost.ts';

export interface RankingWeights {
  /** Shares of meaning and of keywords in relevance; they add up to 1. */
  readonly semantic: number;
  readonly keyword: number;
  /** The keyword score that counts in full: a best score below it is weak evidence, and counts in proportion. */
  readonly fullKeyword: number;
}

/** Tuned on the tune sets of bench/, never on anything else. */
export const WEIGHTS: RankingWeights = { semantic: 0.5, keyword: 0.5, fullKeyword: 6 };

/**
 * The cosine of a server with a query, made comparable: the best of many texts is high by chance, so a server with many tools would
 * stand before one that is known by its description alone. The best of n draws grows like √ln n.
 * @param texts whose best cosine it is, at least 1
 * @param spread of an embedder's cosines, see `Tuning`
 */
export function lessChance(cosine: number, texts: number, spread: number): number {
  return cosine - spread * Math.sqrt(Math.log(texts));
}

export interface RankedServer {
  readonly serverId: string;
  /** 0 to 1. */
  readonly semantic: number;
  /** 0 (never used) to 1. */
  readonly popularity: number;
  /** 0 to 1, not increasing from one server of a ranking to the next. */
  readonly finalScore: number;
  /** Positions in the server's `tools`, the most relevant first. */
  readonly toolOrder: readonly number[];
  /** In that order, how relevant each is, 0 to 1, relative to the best tool of any candidate. */
  readonly toolRelevance: readonly number[];
}

/**
 * Orders the candidates of one query, best first. Meaning and keywords are each divided by their best value among the
 * candidates (keywords at least by `fullKeyword`) and added by weight; what use says is put in by `withUse`. Equal scores are ordered by server id: the same evidence gives the same ranking.
 */
export function fuse(
  candidates: readonly Candidate[],
  useOf: (serverId: string) => UseSignals,
  weights: RankingWeights = WEIGHTS,
): RankedServer[] {
  const relevance = relevanceAmong(candidates, weights);
  const toolRelevance = relevanceAmong(
    candidates.flatMap(candidate => candidate.tools),
    weights,
  );
  return candidates
    .map(candidate => {
      const use = useOf(candidate.serverId);
      const tools = rankTools(candidate.tools, toolRelevance);
      return {
        serverId: candidate.serverId,
        semantic: clamp(candidate.semantic),
        popularity: clamp(use.popularity),
        finalScore: withUse(relevance(candidate), use),
        toolOrder: tools.map(({ index }) => index),
        toolRelevance: tools.map(tool => tool.relevance),
      };
    })
    .sort(byScore);
}

/** What is deprecated counts for so much: what may take its place comes first, where it fits nearly as well. */
export const DEPRECATED_SHARE = 0.8;
/**
 * What is dead counts for so much: deprecated servers still work, these do not, so that whatever fits half as well comes first. It is
 * not left out: where nothing else fits, that it is down is the answer.
 */
export const DEAD_SHARE = 0.5;

/** The ranking with the scores of some servers lowered to a share of them. */
export function putLower(
  ranking: readonly RankedServer[],
  isLower: (serverId: string) => boolean,
  share: number,
): readonly RankedServer[] {
  if (!ranking.some(({ serverId }) => isLower(serverId))) return ranking;
  return ranking
    .map(server => (isLower(server.serverId) ? { ...server, finalScore: server.finalScore * share } : server))
    .sort(byScore);
}

/** The ranking with the servers that are `first` before all others, as relevant as the best of those. */
export function putFirst(
  ranking: readonly RankedServer[],
  first: (serverId: string) => boolean,
): readonly RankedServer[] {
  const best = ranking[0]?.finalScore ?? 0;
  const chosen = ranking.filter(({ serverId }) => first(serverId));
  if (chosen.length === 0) return ranking;
  const others = ranking.filter(({ serverId }) => !first(serverId));
  return [...chosen.map(server => Object.assign({}, server, { finalScore: best })), ...others];
}

type Evidence = Pick<Candidate, 'semantic' | 'keyword'>;

/** Relevance 0 to 1 of a piece of evidence, relative to the best of its kind. */
function relevanceAmong(all: readonly Evidence[], weights: RankingWeights): (evidence: Evidence) => number {
  let bestSemantic = 0;
  let bestKeyword = weights.fullKeyword;
  for (const { semantic, keyword } of all) {
    if (semantic > bestSemantic) bestSemantic = semantic;
    if (keyword > bestKeyword) bestKeyword = keyword;
  }
  const share = (value: number, best: number) => (best > 0 ? Math.max(0, value) / best : 0);
  return ({ semantic, keyword }) =>
    weights.semantic * share(semantic, bestSemantic) + weights.keyword * share(keyword, bestKeyword);
}

/** The tools of one server by their relevance, best first. */
function rankTools(tools: readonly ToolEvidence[], relevance: (evidence: Evidence) => number) {
  return tools
    .map(tool => ({ index: tool.index, relevance: relevance(tool) }))
    .sort((a, b) => b.relevance - a.relevance || a.index - b.index);
}

/** The positions of one server's tools, the most relevant first: compared with each other alone. */
export const orderTools = (tools: readonly ToolEvidence[], weights: RankingWeights = WEIGHTS): number[] =>
  rankTools(tools, relevanceAmong(tools, weights)).map(({ index }) => index);

/** NaN counts as 0. */
const clamp = (value: number): number => Math.min(1, Math.max(0, value || 0));

const byScore = (a: RankedServer, b: RankedServer): number =>
  b.finalScore - a.finalScore || compareText(a.serverId, b.serverId);

const compareText = (a: string, b: string): number => (a < b ? -1 : Number(a > b));
