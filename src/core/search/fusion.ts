import type { Access } from '../catalogue/entry.ts';
import type { UseSignals } from '../catalogue/usage.ts';
import type { Candidate, ToolEvidence } from './index/search-index.ts';
import { largest } from './index/vectors.ts';

export interface RankingWeights {
  /** The shares of meaning and keywords in relevance; they add up to 1. */
  readonly semantic: number;
  readonly keyword: number;
  /** The keyword score that counts in full: a lower best score is weak evidence and counts proportionally. */
  readonly fullKeyword: number;
}

/** The share of a server's excess (`Candidate.excess`) that is taken off its cosine. */
const EXCESS_SHARE = 0.5;

/** Tuned only on the tune sets of bench/. */
export const WEIGHTS: RankingWeights = { semantic: 0.5, keyword: 0.5, fullKeyword: 6 };
/** For the tools of a server: their texts are shorter, and share most of their words. */
const TOOL_WEIGHTS: RankingWeights = { ...WEIGHTS, semantic: 0.7, keyword: 0.3 };
/**
 * The maximum effect of usage on relevance, as a share. A more relevant server stays above another unless their relevance differs
 * by less than this. Usage therefore decides near-ties and never lifts an irrelevant server over a clearly relevant one.
 */
export const MAX_USE_EFFECT = 0.05;

/**
 * The weight of each usage signal; they add up to 1. Success matters most. Novelty weighs less than popularity, so that
 * popular servers stay ahead of untried ones, but a new server is seen among near-ties. A server that a caller has used
 * successfully never ranks below an untried equal. Feedback weighs least, because it is free to give.
 */
const USE_WEIGHTS: Readonly<Record<keyof UseSignals, number>> = {
  success: 0.45,
  popularity: 0.3,
  novelty: 0.2,
  approval: 0.05,
};

/**
 * Multiplies relevance (0 to 1) by a factor between 1 / (1 + MAX_USE_EFFECT) and 1 that depends on the server's usage.
 * Servers with equal relevance are ordered by usage, and servers with equal usage by relevance.
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

/** The factors of a score, each 0 to 1: `(meaning + words) * use * reduction`. */
export interface ScoreParts {
  /** Relevance by meaning, at most the weight of meaning. */
  readonly meaning: number;
  /** Relevance by keywords, at most their weight. */
  readonly words: number;
  /** The factor for usage. */
  readonly use: number;
  /** The factor for servers that are deprecated, unhealthy, or excluded by the query; 1 for others. */
  readonly reduction: number;
}

interface ToolOrder {
  /** Positions in the server's `tools`, most relevant first. */
  readonly toolOrder: readonly number[];
  /** Relevance of each tool in `toolOrder`, 0 to 1, relative to the best tool of any candidate. */
  readonly toolRelevance: readonly number[];
}

/** A server in a ranking. Its tools are ordered on demand, because most servers of a ranking are not shown. */
export interface FusedServer {
  readonly serverId: string;
  /** 0 to 1. */
  readonly semantic: number;
  /** 0 (never used) to 1. */
  readonly popularity: number;
  /**
   * 0 to 1, never increasing within a ranking. The product of the parts, unless the server was moved: to the front because the query
   * names it, or forward as the best for a clause, as a general search, or because it works with a product that the query names.
   */
  readonly finalScore: number;
  readonly parts: ScoreParts;
  /** True if it leads because the query names it. */
  readonly isPinned?: true;
  readonly rankTools: () => ToolOrder;
}

/** A server as it is shown. */
export interface RankedServer extends Omit<FusedServer, 'rankTools'>, ToolOrder {}

interface FuseOptions {
  readonly weights?: RankingWeights;
  /** Returns the factor, 0 to 1, for a server that should not be used; 1 for others. */
  readonly reductionOf?: (serverId: string) => number;
}

/**
 * Orders the candidates of one query, best first. Meaning and keywords are each divided by their best value among the
 * candidates (keywords at least by `fullKeyword`), added by weight, boosted by usage, and reduced. Ties are ordered by id, so
 * that the same evidence gives the same ranking.
 */
export function fuse(
  candidates: readonly Candidate[],
  useOf: (serverId: string) => UseSignals,
  { weights = WEIGHTS, reductionOf = () => 1 }: FuseOptions = {},
): FusedServer[] {
  const own = { semantic: candidates.map(supported), keyword: candidates.map(({ keyword }) => keyword) };
  const relevance = relevanceAmong([own], weights);
  const toolRelevance = relevanceAmong(
    candidates.map(candidate => candidate.tools),
    TOOL_WEIGHTS,
  );
  return candidates
    .map(candidate => {
      const use = useOf(candidate.serverId);
      const { meaning, words } = relevance(supported(candidate), candidate.keyword);
      const reduction = reductionOf(candidate.serverId);
      return {
        serverId: candidate.serverId,
        semantic: clamp(candidate.semantic),
        popularity: clamp(use.popularity),
        finalScore: boostByUse(meaning + words, use) * reduction,
        parts: { meaning, words, use: boostByUse(1, use), reduction },
        rankTools: () => rankTools(candidate.tools, toolRelevance),
      };
    })
    .sort(byScore);
}

/** The first places, where the best server of each clause of a query is. */
const FIRST_PLACES = 5;
/** The least difference between scores that are not equal. */
const SCORE_STEP = 0.001;

/**
 * Moves the best server of each clause of a query among the first five, in place of the last ones there that are best for none.
 * A moved server has the score of the one before it.
 * @param best of at most three clauses; their tools stay in the order of the clause
 */
export function withBestOfEach(
  ranking: readonly FusedServer[],
  best: readonly FusedServer[],
): readonly FusedServer[] {
  const first = ranking.slice(0, FIRST_PLACES);
  const behind = new Map(best.map(one => [one.serverId, one]));
  const isBest = new Set(behind.keys());
  for (const { serverId } of first) behind.delete(serverId);
  const surplus = Math.max(0, first.length + behind.size - FIRST_PLACES);
  const bestForNone = first.filter(({ serverId }) => !isBest.has(serverId));
  const yielding = new Set(bestForNone.slice(bestForNone.length - surplus));
  const kept = first.filter(one => !yielding.has(one));
  const last = kept.at(-1);
  if (!last || behind.size === 0) return ranking;
  return inserted(kept, [...behind.values()], last.finalScore, ranking);
}

/** Where servers are brought in a ranking: to its front, or one of them among the first three. */
export type Place = 'first' | 'third';
/** So many lead; a server for what the request may be about after all is third. */
const LEADING = 2;
const LIKELY_PLACES = 3;

/**
 * Moves servers forward in a ranking, whatever their relevance: those that it ranks highest, then the others in their order. An empty
 * ranking stays empty.
 * @param moved best first
 */
export function broughtForward(
  ranking: readonly FusedServer[],
  moved: readonly FusedServer[],
  place: Place | undefined,
): readonly FusedServer[] {
  const [best] = ranking;
  if (!best || !place || moved.length === 0) return ranking;
  const ids = new Set(moved.map(({ serverId }) => serverId));
  const ranked = ranking.filter(({ serverId }) => ids.has(serverId));
  for (const { serverId } of ranked) ids.delete(serverId);
  const inOrder = [...ranked, ...moved.filter(({ serverId }) => ids.has(serverId))];
  if (place === 'first') return inserted([], inOrder.slice(0, LEADING), best.finalScore, ranking);
  const first = ranking.slice(0, LIKELY_PLACES);
  if (first.some(one => ranked.includes(one))) return ranking;
  const kept = first.slice(0, LIKELY_PLACES - 1);
  return inserted(kept, inOrder.slice(0, 1), (first.at(-1) ?? best).finalScore, ranking);
}

/**
 * Puts servers behind the first ones of a ranking, with a score. The others have lower ones and no longer lead for their names, so that
 * access (`orderByAccess`) brings none of them before these.
 */
function inserted(
  kept: readonly FusedServer[],
  moved: readonly FusedServer[],
  finalScore: number,
  ranking: readonly FusedServer[],
): readonly FusedServer[] {
  const isPlaced = new Set([...kept, ...moved].map(({ serverId }) => serverId));
  const highest = Math.max(0, finalScore - SCORE_STEP);
  return [
    ...kept,
    ...moved.map(({ isPinned: _named, ...one }) => withScore(finalScore, one)),
    ...ranking
      .filter(({ serverId }) => !isPlaced.has(serverId))
      .map(({ isPinned: _named, ...one }) => withScore(Math.min(one.finalScore, highest), one)),
  ];
}

const withScore = (finalScore: number, server: FusedServer): FusedServer => ({ ...server, finalScore });

type Scored = Pick<RankedServer, 'finalScore' | 'isPinned'>;

/**
 * Rounds a score to three decimals. Servers with the same rounded score count as equally relevant: ordering them at random
 * changed nDCG@10 by at most .001 on two labelled sets, so a smaller difference says nothing about which one fits better.
 */
export const roundScore = (score: number): number => Math.round(score * 1_000) / 1_000;

/** A pinned server has its place for its name, so it has no equals. */
const areEqual = (one: Scored, other: Scored): boolean =>
  !one.isPinned && !other.isPinned && roundScore(one.finalScore) === roundScore(other.finalScore);

/** Returns the first `limit` servers of a ranking, and all equals of the last one: the caller's access decides between them. */
export function firstWithEquals<One extends Scored>(ranking: readonly One[], limit: number): One[] {
  const last = ranking[limit - 1];
  return ranking.filter((server, at) => at < limit || (last !== undefined && areEqual(server, last)));
}

/** The order of equally relevant servers: those that can be called first. A server of unknown access often turns out to be open; one that needs a setup cannot be called. */
const TURNS: Readonly<Record<Access['status'], number>> = {
  open: 0,
  connected: 0,
  connect: 1,
  unknown: 2,
  setup_needed: 3,
};

/** Orders equally relevant servers by access, and otherwise keeps the ranking's order. */
export function orderByAccess<One extends Scored & { readonly access: Access }>(
  ranking: readonly One[],
): One[] {
  // The ranking is sorted, so a difference in score or pinning keeps the order.
  return ranking.toSorted((a, b) => {
    if (a.isPinned || b.isPinned) return Number(b.isPinned === true) - Number(a.isPinned === true);
    return b.finalScore - a.finalScore || TURNS[a.access.status] - TURNS[b.access.status];
  });
}

/** Returns a server's cosine without what only one of its examples supports. */
const supported = ({ semantic, excess }: Candidate): number => semantic - EXCESS_SHARE * excess;

/** Returns a function from evidence to the two parts of its relevance, relative to the best of its kind. */
function relevanceAmong(
  all: readonly ToolEvidence[],
  weights: RankingWeights,
): (semantic: number, keyword: number) => Pick<ScoreParts, 'meaning' | 'words'> {
  let bestSemantic = 0;
  let bestKeyword = weights.fullKeyword;
  for (const { semantic, keyword } of all) {
    bestSemantic = largest(semantic, bestSemantic);
    bestKeyword = largest(keyword, bestKeyword);
  }
  const share = (value: number, best: number) => (best > 0 ? Math.max(0, value) / best : 0);
  return (semantic, keyword) => ({
    meaning: weights.semantic * share(semantic, bestSemantic),
    words: weights.keyword * share(keyword, bestKeyword),
  });
}

/** Orders the tools of one server by relevance, best first. */
function rankTools(
  { semantic, keyword }: ToolEvidence,
  relevance: ReturnType<typeof relevanceAmong>,
): ToolOrder {
  const scores = Float64Array.from(semantic, (cosine, at) => {
    const { meaning, words } = relevance(cosine, keyword[at] ?? 0);
    return meaning + words;
  });
  const scoreOf = (position: number) => scores[position] ?? 0;
  const toolOrder = Array.from(scores.keys()).sort((a, b) => scoreOf(b) - scoreOf(a) || a - b);
  return { toolOrder, toolRelevance: toolOrder.map(scoreOf) };
}

/** Returns the positions of one server's tools, most relevant first, compared only with each other. */
export const orderTools = (tools: ToolEvidence): readonly number[] =>
  rankTools(tools, relevanceAmong([tools], TOOL_WEIGHTS)).toolOrder;

/** Limits a value to 0 to 1; NaN counts as 0. */
const clamp = (value: number): number => Math.min(1, Math.max(0, value || 0));

const byScore = (a: FusedServer, b: FusedServer): number =>
  b.finalScore - a.finalScore || compareText(a.serverId, b.serverId);

const compareText = (a: string, b: string): number => (a < b ? -1 : Number(a > b));
