import { traced } from '../../platform/telemetry/tracing.ts';
import type { Catalogue } from '../catalogue/catalogue.ts';
import type { Access, Server } from '../catalogue/entry.ts';
import type { KnownHealth } from '../catalogue/health.ts';
import type { UseSignals } from '../catalogue/usage.ts';
import type { Candidate, SearchIndex, ToolEvidence } from './index/search-index.ts';
import { ExactNames, mentionMatcher, nameMatcher, spellingsOf, type NameMatch } from './names.ts';
import minilm from './embed/minilm/tuning.json' with { type: 'json' };

export interface RankerParts {
  readonly catalogue: Catalogue;
  readonly index: SearchIndex;
  /** Returns the usage signals of a server; called for every candidate of every query. */
  readonly use: (serverId: string) => UseSignals;
  readonly health: KnownHealth;
}

export interface Question {
  /** NFC, trimmed. */
  readonly query: string;
  /** The maximum number of servers. */
  readonly limit: number;
  /** The maximum number of tools per server, best first; absent: all. */
  readonly maxTools: number | undefined;
}

/** Ranks the servers of the catalogue for one question: finds candidates, decides whether any can serve, and orders them. */
export class Ranker {
  readonly #parts: RankerParts;
  readonly #exactNames: ExactNames;
  readonly #spellings = new WeakMap<Server, ReturnType<typeof spellingsOf>>();

  constructor(parts: RankerParts) {
    this.#parts = parts;
    this.#exactNames = new ExactNames(parts.catalogue);
  }

  /** Identifies everything but the question that a ranking depends on: equal states give equal rankings. */
  get state(): string {
    const { index, health } = this.#parts;
    return JSON.stringify([index.id, index.epoch, index.degraded ?? '', health.epoch]);
  }

  /**
   * Returns the best servers, best first, and all that are as relevant as the last one; none if nothing in the catalogue can
   * serve the query.
   */
  async rank({ query, limit, maxTools }: Question): Promise<readonly RankedServer[]> {
    const { catalogue, index, use } = this.#parts;
    const { candidates: found, vectors } = await traced(
      'index',
      () => index.find(query),
      () => ({ attributes: { 'switchboard.index': index.id } }),
    );
    const tuning = tuningOf(index.embedderId);
    const corrected = found.map(candidate => correctedBy(tuning?.spread ?? 0, candidate));
    const { candidates, named } = this.#withNamed(query, corrected);
    const isNamed = [...named.values()].some(match => match !== 'not');
    const mayServe = isNamed || isAnswerable({ candidates, vectors }, tuning?.answerability);
    if (!mayServe && !this.#isMentioned(query, candidates)) return [];
    const fused = demote(fuse(candidates, use), id => isDeprecated(catalogue.get(id)), DEPRECATED_SHARE);
    const ranking = this.#exactNames.pinExact(
      demote(fused, id => this.#isDead(id), DEAD_SHARE),
      query,
      id => named.get(id) === 'alone',
      id => !this.#isDead(id),
    );
    // Without vectors all cosines are 0, which the table would turn into a probability.
    const table = vectors.length === 0 ? undefined : tuning?.calibration;
    const active = ranking.filter(({ serverId }) => catalogue.get(serverId)?.active);
    return firstWithEquals(active, limit).map(server => shown(server, maxTools, table));
  }

  /** Adds the servers whose id or name is the query, and determines how the query names each candidate. */
  #withNamed(
    query: string,
    found: readonly Candidate[],
  ): { readonly candidates: readonly Candidate[]; readonly named: ReadonlyMap<string, NameMatch> } {
    const { index } = this.#parts;
    const match = nameMatcher(query);
    const candidates = [...found];
    const named = new Map(found.map(({ serverId }) => [serverId, match(this.#spellingsOf(serverId))]));
    for (const serverId of this.#exactNames.idsFor(query, index.epoch)) {
      if (!named.has(serverId)) candidates.push({ serverId, keyword: 0, semantic: 0, tools: [] });
      named.set(serverId, 'alone');
    }
    return { candidates, named };
  }

  #isMentioned(query: string, candidates: readonly Candidate[]): boolean {
    const { catalogue } = this.#parts;
    const names = new Set(candidates.map(({ serverId }) => catalogue.get(serverId)?.name ?? ''));
    return [...names].some(mentionMatcher(query));
  }

  #spellingsOf(serverId: string): ReturnType<typeof spellingsOf> {
    const server = this.#parts.catalogue.get(serverId);
    if (!server) return [];
    const known = this.#spellings.get(server) ?? spellingsOf(server.name);
    this.#spellings.set(server, known);
    return known;
  }

  #isDead(serverId: string): boolean {
    const { catalogue, health } = this.#parts;
    const server = catalogue.get(serverId);
    return server !== undefined && health.of(server)?.deadSinceMs !== undefined;
  }
}

const isDeprecated = (server: Server | undefined): boolean => server?.registry?.status === 'deprecated';

const correctedBy = (spread: number, candidate: Candidate): Candidate => ({
  ...candidate,
  semantic: correctForToolCount(candidate.semantic, candidate.tools.length + 1, spread),
});

/** Limits the tools, rounds the score, and turns the cosine into a probability. */
const shown = (
  server: RankedServer,
  maxTools: number | undefined,
  table: readonly CalibrationPoint[] | undefined,
): RankedServer => ({
  ...server,
  semantic: calibrate(server.semantic, table),
  finalScore: roundScore(server.finalScore),
  toolOrder: server.toolOrder.slice(0, maxTools),
  toolRelevance: server.toolRelevance.slice(0, maxTools),
});

export interface RankingWeights {
  /** The shares of meaning and keywords in relevance; they add up to 1. */
  readonly semantic: number;
  readonly keyword: number;
  /** The keyword score that counts in full: a lower best score is weak evidence and counts proportionally. */
  readonly fullKeyword: number;
}

/** Tuned only on the tune sets of bench/. */
export const WEIGHTS: RankingWeights = { semantic: 0.5, keyword: 0.5, fullKeyword: 6 };

/** Learned values for the cosines of one embedder (`bench/tune.ts`); they do not apply to other embedders. */
interface Tuning {
  /** The spread of cosines between a query and irrelevant texts, see `correctForToolCount`. */
  readonly spread: number;
  readonly calibration: readonly CalibrationPoint[];
  readonly answerability: Answerability;
}

/** A cosine and the share of relevant servers among those with that cosine. Both columns of a table ascend. */
export type CalibrationPoint = readonly [cosine: number, probability: number];

const MINILM: Tuning = {
  spread: minilm.spread,
  calibration: minilm.calibration.map(([cosine = 0, probability = 0]) => [cosine, probability] as const),
  answerability: minilm.answerability,
};

/** Returns the tuning of an embedder; undefined for n-grams and for API models, which were never tuned. */
export const tuningOf = (embedderId: string): Tuning | undefined =>
  embedderId === minilm.embedder ? MINILM : undefined;

/**
 * Makes the best cosine of a server comparable between servers. The best of n draws grows like √ln n by chance, so without
 * the correction a server with many tools would rank above one that is known only by its description.
 * @param texts the number of texts, at least 1
 * @param spread of the embedder's cosines, see `Tuning`
 */
export function correctForToolCount(cosine: number, texts: number, spread: number): number {
  return cosine - spread * Math.sqrt(Math.log(texts));
}

/**
 * Returns the probability (0 to 1) that a server with this cosine is relevant, by linear interpolation in the table. The
 * table is extended to (-1, 0) and (1, 1). Without a table the result is the cosine itself, at least 0.
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
  /** The factor for deprecated and unhealthy servers; 1 for others. */
  readonly reduction: number;
}

export interface RankedServer {
  readonly serverId: string;
  /** 0 to 1. */
  readonly semantic: number;
  /** 0 (never used) to 1. */
  readonly popularity: number;
  /** 0 to 1, never increasing within a ranking. The product of the parts, or the best score if the query names the server. */
  readonly finalScore: number;
  readonly parts: ScoreParts;
  /** True if it leads because the query names it. */
  readonly isPinned?: true;
  /** Positions in the server's `tools`, most relevant first. */
  readonly toolOrder: readonly number[];
  /** Relevance of each tool in `toolOrder`, 0 to 1, relative to the best tool of any candidate. */
  readonly toolRelevance: readonly number[];
}

/**
 * Orders the candidates of one query, best first. Meaning and keywords are each divided by their best value among the
 * candidates (keywords at least by `fullKeyword`), added by weight, and then boosted by usage. Ties are ordered by id, so
 * that the same evidence gives the same ranking.
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
      const { meaning, words } = relevance(candidate);
      return {
        serverId: candidate.serverId,
        semantic: clamp(candidate.semantic),
        popularity: clamp(use.popularity),
        finalScore: boostByUse(meaning + words, use),
        parts: { meaning, words, use: boostByUse(1, use), reduction: 1 },
        toolOrder: tools.map(({ index }) => index),
        toolRelevance: tools.map(tool => tool.relevance),
      };
    })
    .sort(byScore);
}

/** The factor for deprecated servers, which ranks nearly equal replacements first. */
const DEPRECATED_SHARE = 0.8;
/**
 * The factor for servers that do not work, which ranks anything half as good first. They stay in the result, so that the
 * caller learns that the only matching server is down.
 */
const DEAD_SHARE = 0.5;

/** Multiplies the scores of some servers by `share` and sorts the ranking again. */
export function demote(
  ranking: readonly RankedServer[],
  isDemoted: (serverId: string) => boolean,
  share: number,
): readonly RankedServer[] {
  if (!ranking.some(({ serverId }) => isDemoted(serverId))) return ranking;
  return ranking
    .map(server => (isDemoted(server.serverId) ? reducedBy(share, server) : server))
    .sort(byScore);
}

const reducedBy = (share: number, { parts, ...server }: RankedServer): RankedServer => ({
  ...server,
  finalScore: server.finalScore * share,
  parts: { ...parts, reduction: parts.reduction * share },
});

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

type Evidence = Pick<Candidate, 'semantic' | 'keyword'>;

/** Returns a function from evidence to the two parts of its relevance, relative to the best of its kind. */
function relevanceAmong(
  all: readonly Evidence[],
  weights: RankingWeights,
): (evidence: Evidence) => Pick<ScoreParts, 'meaning' | 'words'> {
  let bestSemantic = 0;
  let bestKeyword = weights.fullKeyword;
  for (const { semantic, keyword } of all) {
    if (semantic > bestSemantic) bestSemantic = semantic;
    if (keyword > bestKeyword) bestKeyword = keyword;
  }
  const share = (value: number, best: number) => (best > 0 ? Math.max(0, value) / best : 0);
  return ({ semantic, keyword }) => ({
    meaning: weights.semantic * share(semantic, bestSemantic),
    words: weights.keyword * share(keyword, bestKeyword),
  });
}

/** Orders the tools of one server by relevance, best first. */
function rankTools(tools: readonly ToolEvidence[], relevance: ReturnType<typeof relevanceAmong>) {
  return tools
    .map(tool => {
      const { meaning, words } = relevance(tool);
      return { index: tool.index, relevance: meaning + words };
    })
    .sort((a, b) => b.relevance - a.relevance || a.index - b.index);
}

/** Returns the positions of one server's tools, most relevant first, compared only with each other. */
export const orderTools = (tools: readonly ToolEvidence[], weights: RankingWeights = WEIGHTS): number[] =>
  rankTools(tools, relevanceAmong(tools, weights)).map(({ index }) => index);

/** Limits a value to 0 to 1; NaN counts as 0. */
const clamp = (value: number): number => Math.min(1, Math.max(0, value || 0));

const byScore = (a: RankedServer, b: RankedServer): number =>
  b.finalScore - a.finalScore || compareText(a.serverId, b.serverId);

const compareText = (a: string, b: string): number => (a < b ? -1 : Number(a > b));

/**
 * A linear function that predicts whether anything in the catalogue can serve a query. `bench/tune.ts` learns it from
 * labelled queries and from queries that nothing can serve.
 */
export interface Answerability {
  readonly bias: number;
  /** Weight of the best cosine of any server. */
  readonly semantic: number;
  /** Weight of the best keyword score of any server. */
  readonly keyword: number;
  /** Weight of each component of the request's vector. */
  readonly request: readonly number[];
}

interface RequestEvidence {
  readonly candidates: readonly { readonly semantic: number; readonly keyword: number }[];
  /** One unit vector for each sentence of the query. */
  readonly vectors: readonly Float32Array[];
}

/**
 * Returns whether a good candidate is likely. Returns true if this cannot be predicted: without vectors, or without a table
 * for the embedder.
 */
export function isAnswerable(
  { candidates, vectors }: RequestEvidence,
  table: Answerability | undefined,
): boolean {
  if (!table || vectors.length === 0) return true;
  const best = (kind: 'semantic' | 'keyword') =>
    candidates.reduce((highest, candidate) => Math.max(highest, candidate[kind]), 0);
  let score = table.bias + table.semantic * best('semantic') + table.keyword * best('keyword');
  for (const vector of vectors) {
    let sum = 0;
    for (const [i, weight] of table.request.entries()) sum += weight * (vector[i] ?? 0);
    score += sum / vectors.length;
  }
  return score >= 0;
}
