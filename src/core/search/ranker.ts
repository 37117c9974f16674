import { traced } from '../../platform/telemetry/tracing.ts';
import type { Catalogue } from '../catalogue/catalogue.ts';
import type { Server } from '../catalogue/entry.ts';
import type { KnownHealth } from '../catalogue/health.ts';
import type { UseSignals } from '../catalogue/use-tally.ts';
import { isAnswerable } from './answerability.ts';
import type { Candidate, SearchIndex } from './index/search-index.ts';
import { ExactNames, mentionMatcher, nameMatcher, spellingsOf, type NameMatch } from './names.ts';
import {
  calibrate,
  correctForToolCount,
  DEAD_SHARE,
  demote,
  DEPRECATED_SHARE,
  fuse,
  tuningOf,
  type CalibrationPoint,
  type RankedServer,
} from './ranking.ts';

export interface RankerParts {
  readonly catalogue: Catalogue;
  readonly index: SearchIndex;
  /** Returns what is known of a server's use; called for every candidate of every query. */
  readonly use: (serverId: string) => UseSignals;
  readonly health: KnownHealth;
}

export interface Question {
  /** NFC, without outer white space. */
  readonly query: string;
  /** Most servers to return. */
  readonly limit: number;
  /** Most tools a server, the best ones; all when absent. */
  readonly maxTools: number | undefined;
}

/** Ranks the servers of the catalogue for one question: finds candidates, decides whether any can serve, orders them. */
export class Ranker {
  readonly #parts: RankerParts;
  readonly #exactNames: ExactNames;
  readonly #spellings = new WeakMap<Server, ReturnType<typeof spellingsOf>>();

  constructor(parts: RankerParts) {
    this.#parts = parts;
    this.#exactNames = new ExactNames(parts.catalogue);
  }

  /** Describes everything but the question that a ranking depends on: equal states give equal rankings. */
  get state(): string {
    const { index, health } = this.#parts;
    return JSON.stringify([index.id, index.epoch, index.degraded ?? '', health.epoch]);
  }

  /** Returns the best servers, best first; none where nothing in the catalogue can serve the query. */
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
    // Without vectors the cosine of everything is 0, which the table would turn into a probability.
    const table = vectors.length === 0 ? undefined : tuning?.calibration;
    return ranking
      .filter(({ serverId }) => catalogue.get(serverId)?.active)
      .slice(0, limit)
      .map(server => shown(server, maxTools, table));
  }

  /** Adds the servers whose id or name is the query, and says of each candidate how the query names it. */
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

/** Keeps as many tools as were asked for, and turns the cosine into a probability. */
const shown = (
  server: RankedServer,
  maxTools: number | undefined,
  table: readonly CalibrationPoint[] | undefined,
): RankedServer => ({
  ...server,
  semantic: calibrate(server.semantic, table),
  toolOrder: server.toolOrder.slice(0, maxTools),
  toolRelevance: server.toolRelevance.slice(0, maxTools),
});
