import { LRUCache } from 'lru-cache';
import { traced } from '../../platform/telemetry/tracing.ts';
import type { Catalogue } from '../catalogue/catalogue.ts';
import type { ServerHead } from '../catalogue/entry.ts';
import type { KnownHealth } from '../catalogue/health.ts';
import type { UseSignals } from '../catalogue/usage.ts';
import type { Asked, Candidate, SearchIndex } from './index/search-index.ts';
import {
  ExactNames,
  mentionMatcher,
  namedMatcher,
  nameMatcher,
  pinFirst,
  spellingsOf,
  type NameMatch,
} from './names.ts';
import minilm from './embed/minilm/tuning.json' with { type: 'json' };
import {
  demote,
  firstWithEquals,
  fuse,
  roundScore,
  withBestOfEach,
  type FusedServer,
  type RankedServer,
} from './fusion.ts';

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

interface Ranked {
  readonly servers: readonly FusedServer[];
  /** For their cosines; absent: they stay as they are. */
  readonly table: readonly CalibrationPoint[] | undefined;
  /** False: nothing in the catalogue can probably serve the query. */
  readonly isAnswerable: boolean;
}

/** The standing of one server in the ranking of a query. */
export interface Examined {
  /** The whole ranking. */
  readonly ranking: readonly RankedServer[];
  /** The server's own numbers among all candidates, also those that were turned away; undefined: it is no candidate. */
  readonly own: RankedServer | undefined;
  readonly isAnswerable: boolean;
}

const NOTHING: Ranked = { servers: [], table: undefined, isAnswerable: false };
/** A server that is not among so many has nothing to do with a query. */
const CANDIDATES_OF_AN_EXAMINATION = 1_000;
/** Only the best of them is used. */
const CANDIDATES_OF_A_CLAUSE = 30;

/** Ranks the servers of the catalogue for one question: finds candidates, decides whether any can serve, and orders them. */
export class Ranker {
  readonly #parts: RankerParts;
  readonly #exactNames: ExactNames;
  /** By server name. */
  readonly #spellings = new LRUCache<string, ReturnType<typeof spellingsOf>>({ max: MAX_SPELLINGS });

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
   * serve the query. If it asks for two or three things, the best server for each is among the first five.
   */
  async rank({ query, limit, maxTools }: Question): Promise<readonly RankedServer[]> {
    const asked = this.#parts.index.ask(query);
    const [{ servers, table }, best] = await Promise.all([this.#ranked(asked), this.#bestOfClauses(asked)]);
    const ranking = withBestOfEach(servers, servers.length === 0 ? [] : best);
    return firstWithEquals(ranking, limit).map(server => shown(server, maxTools, table));
  }

  /** Returns the best server for each clause of a query. */
  async #bestOfClauses(asked: Asked): Promise<FusedServer[]> {
    const { clauses } = await asked.embedded;
    // During an outage, more searches would only take longer.
    if (this.#parts.index.degraded !== undefined) return [];
    const ranked = clauses.map(clause =>
      this.#ranked(clause, { count: CANDIDATES_OF_A_CLAUSE }).catch(() => NOTHING),
    );
    return (await Promise.all(ranked)).flatMap(({ servers }) => servers.slice(0, 1));
  }

  /** Returns a server's rank for a query or, if it is not ranked, its scores among all candidates. */
  async examine(query: string, serverId: string): Promise<Examined> {
    const ranking = await this.rank({ query, limit: Infinity, maxTools: 0 });
    const among = (one: { readonly serverId: string }) => one.serverId === serverId;
    const own = ranking.find(among);
    if (own) return { ranking, own, isAnswerable: true };
    const wide = { count: CANDIDATES_OF_AN_EXAMINATION, isForced: true };
    const { servers, table, isAnswerable: mayServe } = await this.#ranked(this.#parts.index.ask(query), wide);
    const turnedAway = servers.find(among);
    return { ranking, own: turnedAway && shown(turnedAway, 0, table), isAnswerable: mayServe };
  }

  /** @param isForced true: ranks the candidates also if none can probably serve the query */
  async #ranked(
    asked: Asked,
    { count, isForced = false }: { count?: number; isForced?: boolean } = {},
  ): Promise<Ranked> {
    const { catalogue, index, use } = this.#parts;
    const query = asked.text;
    const { candidates: found, vectors } = await traced(
      'index',
      () => index.find(asked, count),
      () => ({ attributes: { 'switchboard.index': index.id } }),
    );
    const tuning = tuningOf(index.embedderId);
    const corrected = found.map(candidate => correctedBy(tuning?.spread ?? 0, candidate));
    const { candidates, named } = this.#withNamed(query, corrected);
    const isNamed = [...named.values()].some(match => match !== 'not');
    const mayServe =
      isNamed ||
      isAnswerable({ candidates, vectors }, tuning?.answerability) ||
      this.#isMentioned(query, candidates);
    if (!mayServe && !isForced) return NOTHING;
    const fused = demote(fuse(candidates, use), id => isDeprecated(catalogue.get(id)), DEPRECATED_SHARE);
    const ranking = this.#exactNames.pinExact(
      this.#withNamedFirst(
        demote(fused, id => this.#isDead(id), DEAD_SHARE),
        query,
      ),
      query,
      id => named.get(id) === 'alone',
      id => !this.#isDead(id),
    );
    // Without vectors all cosines are 0, which the table would turn into a probability.
    const table = vectors.length === 0 ? undefined : tuning?.calibration;
    const servers = ranking.filter(({ serverId }) => catalogue.get(serverId)?.active);
    return { servers, table, isAnswerable: mayServe };
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
      if (!named.has(serverId))
        candidates.push({ serverId, texts: 1, semantic: 0, excess: 0, keyword: 0, tools: NO_TOOLS });
      named.set(serverId, 'alone');
    }
    return { candidates, named };
  }

  /** Moves the servers that the query names to the front, if they are nearly as relevant as the best one. */
  #withNamedFirst(ranking: readonly FusedServer[], query: string): readonly FusedServer[] {
    const { catalogue } = this.#parts;
    const isNamed = namedMatcher(query);
    const enough = (ranking[0]?.finalScore ?? 0) * NAMED_SHARE;
    const leading = new Set(
      ranking
        .filter(
          ({ serverId, finalScore }) => finalScore >= enough && isNamed(catalogue.get(serverId)?.name ?? ''),
        )
        .map(({ serverId }) => serverId),
    );
    return pinFirst(ranking, id => leading.has(id));
  }

  #isMentioned(query: string, candidates: readonly Candidate[]): boolean {
    const { catalogue } = this.#parts;
    const names = new Set(candidates.map(({ serverId }) => catalogue.get(serverId)?.name ?? ''));
    return [...names].some(mentionMatcher(query));
  }

  #spellingsOf(serverId: string): ReturnType<typeof spellingsOf> {
    const name = this.#parts.catalogue.get(serverId)?.name;
    if (name === undefined) return [];
    const known = this.#spellings.get(name) ?? spellingsOf(name);
    this.#spellings.set(name, known);
    return known;
  }

  #isDead(serverId: string): boolean {
    const { catalogue, health } = this.#parts;
    const server = catalogue.get(serverId);
    return server !== undefined && health.of(server)?.deadSinceMs !== undefined;
  }
}

/** The number of names whose terms are kept, because queries share many candidates. */
const MAX_SPELLINGS = 5_000;

/** The factor for deprecated servers, which ranks nearly equal replacements first. */
const DEPRECATED_SHARE = 0.8;
/**
 * The factor for servers that do not work, which ranks anything half as good first. They stay in the result, so that the
 * caller learns that the only matching server is down.
 */
const DEAD_SHARE = 0.5;

/** The share of the best score that a server needs to lead because the query names it. */
const NAMED_SHARE = 0.8;

const NO_TOOLS = { semantic: [], keyword: [] };
const NO_ORDER = { toolOrder: [], toolRelevance: [] };

const isDeprecated = (server: ServerHead | undefined): boolean => server?.registry?.status === 'deprecated';

const correctedBy = (spread: number, candidate: Candidate): Candidate => ({
  ...candidate,
  semantic: correctForTextCount(candidate.semantic, candidate.texts, spread),
});

/** Limits the tools, rounds the score, and turns the cosine into a probability. */
function shown(
  { rankTools, ...server }: FusedServer,
  maxTools: number | undefined,
  table: readonly CalibrationPoint[] | undefined,
): RankedServer {
  const { toolOrder, toolRelevance } = maxTools === 0 ? NO_ORDER : rankTools();
  return {
    ...server,
    semantic: calibrate(server.semantic, table),
    finalScore: roundScore(server.finalScore),
    toolOrder: toolOrder.slice(0, maxTools),
    toolRelevance: toolRelevance.slice(0, maxTools),
  };
}

/** Learned values for the cosines of one embedder (`bench/tune.ts`); they do not apply to other embedders. */
interface Tuning {
  /** The spread of cosines between a query and irrelevant texts, see `correctForTextCount`. */
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
export function correctForTextCount(cosine: number, texts: number, spread: number): number {
  return cosine - spread * Math.sqrt(Math.log(texts));
}

/**
 * Returns the probability (0 to 1) that a server with this cosine is relevant, by linear interpolation in the table. The
 * table is extended to (-1, 0) and (1, 1). Without a table the result is the cosine itself, at least 0.
 */
export function calibrate(cosine: number, table: readonly CalibrationPoint[] | undefined): number {
  if (!table || Number.isNaN(cosine)) return Math.min(1, Math.max(0, cosine || 0));
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
