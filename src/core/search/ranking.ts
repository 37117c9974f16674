import type { UseSignals } from '../catalogue/use-tally.ts';
import type { Answerability } from './answerability.ts';
import minilm from './embed/minilm/tuning.json' with { type: 'json' };
import type { Candidate, ToolEvidence } from './index/search-index.ts';

export interface RankingWeights {
  /** Shares of meaning and of keywords in relevance; they add up to 1. */
  readonly semantic: number;
  readonly keyword: number;
  /** The keyword score that counts in full: a best score below it is weak evidence, and counts in proportion. */
  readonly fullKeyword: number;
}

/** Tuned on the tune sets of bench/, never on anything else. */
export const WEIGHTS: RankingWeights = { semantic: 0.5, keyword: 0.5, fullKeyword: 6 };

/** Values learned about the cosines of one embedder by `bench/tune.ts`; they hold for no other embedder. */
export interface Tuning {
  /** How far apart the cosines of texts that do not serve a request lie, see `correctForToolCount`. */
  readonly spread: number;
  readonly calibration: readonly CalibrationPoint[];
  readonly answerability: Answerability;
}

/** A cosine and the share of servers found with it that are relevant. Both columns of a table ascend. */
export type CalibrationPoint = readonly [cosine: number, probability: number];

const MINILM: Tuning = {
  spread: minilm.spread,
  calibration: minilm.calibration.map(([cosine = 0, probability = 0]) => [cosine, probability] as const),
  answerability: minilm.answerability,
};

/** Returns the tuning of an embedder; undefined for n-grams and for models of APIs, which no tune run has seen. */
export const tuningOf = (embedderId: string): Tuning | undefined =>
  embedderId === minilm.embedder ? MINILM : undefined;

/**
 * Makes the best cosine of a server comparable between servers. The best of n draws grows like √ln n by chance, so without the
 * correction a server with many tools would stand before one that is known by its description alone.
 * @param texts number of texts whose best cosine it is, at least 1
 * @param spread of the embedder's cosines, see `Tuning`
 */
export function correctForToolCount(cosine: number, texts: number, spread: number): number {
  return cosine - spread * Math.sqrt(Math.log(texts));
}

/**
 * Returns the probability (0 to 1) that a server found with this cosine is relevant, by linear interpolation in the table. The table
 * is extended to (-1, 0) and (1, 1). Without a table the probability is the cosine itself, at least 0.
 */
export function calibrate(cosine: number, table: readonly CalibrationPoint[] | undefined): number {
  if (!table || Number.isNaN(cosine)) return clamp(cosine);
  let below: CalibrationPoint = [-1, 0];
  for (const point of [...table, [1, 1] as const]) {
    if (cosine <= point[0]) return interpolate(below, point, cosine);
    below = point;
  }
  return 1;
}

function interpolate([x0, y0]: CalibrationPoint, [x1, y1]: CalibrationPoint, x: number): number {
  if (x <= x0) return y0;
  return y0 + ((y1 - y0) * (x - x0)) / (x1 - x0);
}

/**
 * The most that use can change relevance, as a share. A more relevant server stays above another one unless their relevance differs
 * by less than this share. Use therefore orders near-ties, and lifts nothing irrelevant over what is clearly relevant.
 */
export const MAX_USE_EFFECT = 0.05;

/**
 * Weight of each signal in a server's standing; they add up to 1. Success matters most. Novelty is worth less than popularity, so
 * that what many use stays ahead of what nobody has tried, but a new server is seen where relevance differs little. A caller whose
 * calls to a server succeeded never finds it below an untried equal. Verdicts cost nothing to give, so they weigh least.
 */
const USE_WEIGHTS: Readonly<Record<keyof UseSignals, number>> = {
  success: 0.45,
  popularity: 0.3,
  novelty: 0.2,
  approval: 0.05,
};

/**
 * Returns relevance (0 to 1) multiplied by a factor between 1 / (1 + MAX_USE_EFFECT) and 1 that depends on the server's use. Servers
 * of equal relevance are ordered by their use, servers of equal use by their relevance.
 */
export function boostByUse(relevance: number, signals: UseSignals): number {
  return (relevance * (1 + MAX_USE_EFFECT * standingOf(signals))) / (1 + MAX_USE_EFFECT);
}

function standingOf({ success, popularity, novelty, approval }: UseSignals): number {
  return (
    USE_WEIGHTS.success * clamp(success) +
    USE_WEIGHTS.popularity * clamp(popularity) +
    USE_WEIGHTS.novelty * clamp(novelty) +
    USE_WEIGHTS.approval * clamp((1 + approval) / 2)
  );
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
  /** Relevance of each tool in `toolOrder`, 0 to 1, relative to the best tool of any candidate. */
  readonly toolRelevance: readonly number[];
}

/**
 * Orders the candidates of one query, best first. Meaning and keywords are each divided by their best value among the candidates
 * (keywords at least by `fullKeyword`), added by weight, and then boosted by use. Servers with equal scores are ordered by id, so the
 * same evidence gives the same ranking.
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
        finalScore: boostByUse(relevance(candidate), use),
        toolOrder: tools.map(({ index }) => index),
        toolRelevance: tools.map(tool => tool.relevance),
      };
    })
    .sort(byScore);
}

/** Factor for deprecated servers: a replacement that fits nearly as well comes first. */
export const DEPRECATED_SHARE = 0.8;
/**
 * Factor for servers that do not work: anything that fits half as well comes first. They stay in the answer, because where nothing
 * else fits, the caller learns that the server is down.
 */
export const DEAD_SHARE = 0.5;

/** Multiplies the scores of some servers by `share` and orders the ranking again. */
export function demote(
  ranking: readonly RankedServer[],
  isDemoted: (serverId: string) => boolean,
  share: number,
): readonly RankedServer[] {
  if (!ranking.some(({ serverId }) => isDemoted(serverId))) return ranking;
  return ranking
    .map(server =>
      isDemoted(server.serverId) ? { ...server, finalScore: server.finalScore * share } : server,
    )
    .sort(byScore);
}

/** Moves some servers before all others and gives them the score of the best one. */
export function pinFirst(
  ranking: readonly RankedServer[],
  isPinned: (serverId: string) => boolean,
): readonly RankedServer[] {
  const best = ranking[0]?.finalScore ?? 0;
  const pinned = ranking.filter(({ serverId }) => isPinned(serverId));
  if (pinned.length === 0) return ranking;
  const others = ranking.filter(({ serverId }) => !isPinned(serverId));
  return [...pinned.map(server => Object.assign({}, server, { finalScore: best })), ...others];
}

type Evidence = Pick<Candidate, 'semantic' | 'keyword'>;

/** Returns a function from a piece of evidence to its relevance (0 to 1), relative to the best of its kind. */
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

/** Orders the tools of one server by relevance, best first. */
function rankTools(tools: readonly ToolEvidence[], relevance: (evidence: Evidence) => number) {
  return tools
    .map(tool => ({ index: tool.index, relevance: relevance(tool) }))
    .sort((a, b) => b.relevance - a.relevance || a.index - b.index);
}

/** Returns the positions of one server's tools, the most relevant first. They are compared with each other alone. */
export const orderTools = (tools: readonly ToolEvidence[], weights: RankingWeights = WEIGHTS): number[] =>
  rankTools(tools, relevanceAmong(tools, weights)).map(({ index }) => index);

/** Limits a value to 0 to 1; NaN counts as 0. */
const clamp = (value: number): number => Math.min(1, Math.max(0, value || 0));

const byScore = (a: RankedServer, b: RankedServer): number =>
  b.finalScore - a.finalScore || compareText(a.serverId, b.serverId);

const compareText = (a: string, b: string): number => (a < b ? -1 : Number(a > b));
