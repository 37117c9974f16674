import { LRUCache } from 'lru-cache';
import { traced } from '../../platform/telemetry/tracing.ts';
import type { Catalogue } from '../catalogue/catalogue.ts';
import type { ServerHead } from '../catalogue/entry.ts';
import type { KnownHealth } from '../catalogue/health.ts';
import type { UseSignals } from '../catalogue/usage.ts';
import type { Asked, Candidate, Findings, SearchIndex } from './index/search-index.ts';
import {
  calledMatcher,
  ExactNames,
  formsOf,
  Integrations,
  isFromRegistry,
  namedMatcher,
  pinFirst,
  placedMatcher,
  withoutAddresses,
  type NameForms,
} from './names.ts';
import { excludedMatcher, wantedAndExcluded, type Wish } from './exclusions.ts';
import {
  broughtForward,
  firstWithEquals,
  fuse,
  roundScore,
  withBestOfEach,
  type FusedServer,
  type Place,
  type RankedServer,
} from './fusion.ts';
import { calibrate, correctForTextCount, tuningOf, verdictOn, type CalibrationPoint } from './tuning.ts';
import { largest } from './index/vectors.ts';

export interface RankerParts {
  readonly catalogue: Catalogue;
  readonly index: SearchIndex;
  /** Returns the usage signals of a server; called for every candidate of every query. */
  readonly use: (serverId: string) => UseSignals;
  readonly health: KnownHealth;
}

export interface Question {
  /** As of `normalized`. */
  readonly query: string;
  /** The maximum number of servers. */
  readonly limit: number;
}

interface Ranked {
  readonly servers: readonly FusedServer[];
  /** For their cosines; absent: they stay as they are. */
  readonly table: readonly CalibrationPoint[] | undefined;
  /** False: nothing in the catalogue can probably serve the query; except a general search of the web, if that has a place. */
  readonly isAnswerable: boolean;
  /** The place among the servers of a general search of the web; undefined: as ranked. */
  readonly general: Place | undefined;
}

interface RankOptions {
  /** Of the candidates by each kind of evidence. */
  readonly count?: number;
  /** true: ranks the candidates also if none can probably serve the query */
  readonly isForced?: boolean;
  readonly excluded: Wish['excluded'];
  /** true: no place for a general search of the web is wanted */
  readonly isClause?: boolean;
}

/** Which candidates a query names. */
interface Naming {
  /** The wanted part of the query, without e-mail addresses. */
  readonly query: string;
  readonly excluded: Wish['excluded'];
  /** Those whose id or name, in any spelling, is all that is wanted. */
  readonly called: ReadonlySet<string>;
  /** Those with a name among the words of what is wanted. */
  readonly named: ReadonlySet<string>;
  /** Those of them that a query in another language than English names as the place to do it. */
  readonly placed: ReadonlySet<string>;
}

/** The candidates for a query, and what it names. */
interface Named extends Pick<Naming, 'called' | 'named' | 'placed'> {
  readonly candidates: readonly Candidate[];
  /** Those that work with a product which it names. */
  readonly integrated: ReturnType<Integrations['find']>;
}

/** The standing of one server in the ranking of a query. */
export interface Examined {
  /** The whole ranking. */
  readonly ranking: readonly RankedServer[];
  /** The server's own numbers among all candidates, also those that were turned away; undefined: it is no candidate. */
  readonly own: RankedServer | undefined;
  readonly isAnswerable: boolean;
}

const NOTHING: Ranked = { servers: [], table: undefined, isAnswerable: false, general: undefined };
/**
 * A request that only a general search of the web fits. Of 1,242 servers that it was not made for, 14 have a tool near it, and all 14 are
 * general searches.
 */
export const GENERAL_REQUEST =
  'Search the web with a search engine and get results. Search the web for real-time information about any topic.';
/** A server that is not among so many has nothing to do with a query. */
const CANDIDATES_OF_AN_EXAMINATION = 1_000;
/** Only the best of them is used. */
const OF_A_CLAUSE = { count: 30, isClause: true };
/** Many of them search only something. */
const CANDIDATES_OF_GENERAL_REQUEST = 400;
/** Enough for some to be active, alive and among the candidates of a query. */
const MOST_GENERAL_SEARCHES = 50;

/** Ranks the servers of the catalogue for one question: finds candidates, decides whether any can serve, and orders them. */
export class Ranker {
  readonly #parts: RankerParts;
  readonly #exactNames: ExactNames;
  readonly #integrations: Integrations;
  readonly #tuning: ReturnType<typeof tuningOf>;
  /** By server name. */
  readonly #nameForms = new LRUCache<string, NameForms>({ max: MAX_NAME_FORMS });
  /** The general searches that the index has found, and its epoch. */
  #general: { readonly epoch: number; readonly found: Promise<readonly Candidate[]> } | undefined;

  /** @throws Error if what was learned for the embedder cannot be read */
  constructor(parts: RankerParts) {
    this.#parts = parts;
    this.#exactNames = new ExactNames(parts.catalogue);
    this.#integrations = new Integrations(parts.catalogue);
    this.#tuning = tuningOf(parts.index.embedderId);
  }

  /** Identifies what a ranking depends on besides the question and usage, which may be a minute old. */
  get state(): string {
    const { index, health } = this.#parts;
    return JSON.stringify([index.id, index.epoch, index.vectorChanges, index.degraded ?? '', health.epoch]);
  }

  /**
   * Returns the best servers, best first, and all that are as relevant as the last one; none if nothing in the catalogue can
   * serve the query. If it asks for two or three things, the best server for each is among the first five.
   */
  async rank({ query, limit }: Question): Promise<readonly RankedServer[]> {
    // The model would take any emoji for the same unknown word.
    if (!/[\p{L}\p{N}]/u.test(query)) return [];
    const { wanted, excluded } = this.#wishOf(query);
    const asked = this.#parts.index.ask(wanted);
    const [found, best] = await Promise.all([
      this.#ranked(asked, { excluded }),
      this.#bestOfClauses(asked, excluded),
    ]);
    const { table, general } = found;
    const searches = general ? await this.#generalSearches().catch(() => []) : [];
    const servers = found.isAnswerable || searches.length > 0 ? found.servers : [];
    const ranking = withBestOfEach(
      broughtForward(servers, searches, general),
      servers.length === 0 ? [] : best,
    );
    return firstWithEquals(ranking, limit).map(server => shown(server, table));
  }

  /**
   * Returns the servers with a tool that searches the web for anything, best first; their numbers are those for `GENERAL_REQUEST`. They
   * are found once for each state of the index; none during an outage.
   */
  async #generalSearches(): Promise<readonly FusedServer[]> {
    const { index, use, catalogue } = this.#parts;
    if (index.degraded !== undefined) return [];
    const { epoch } = index;
    if (this.#general?.epoch !== epoch) this.#general = { epoch, found: this.#findGeneralSearches() };
    const reductionOf = (id: string) => (isDeprecated(catalogue.get(id)) ? DEPRECATED_SHARE : 1);
    return fuse(await this.#general.found, use, { reductionOf }).filter(
      ({ serverId }) => catalogue.get(serverId)?.active && !this.#isDead(serverId),
    );
  }

  async #findGeneralSearches(): Promise<readonly Candidate[]> {
    const { index } = this.#parts;
    const tuning = this.#tuning;
    try {
      const { candidates } = await index.find(index.ask(GENERAL_REQUEST), CANDIDATES_OF_GENERAL_REQUEST);
      // An outage meanwhile may have left some out.
      if (index.degraded !== undefined) this.#general = undefined;
      return candidates
        .map(candidate => ({ candidate, nearness: largest(candidate.tools.semantic) }))
        .filter(({ nearness }) => nearness >= (tuning?.general.tool ?? Infinity))
        .sort((one, other) => other.nearness - one.nearness)
        .slice(0, MOST_GENERAL_SEARCHES)
        .map(({ candidate }) => correctedBy(tuning, candidate));
    } catch (error) {
      this.#general = undefined;
      throw error;
    }
  }

  /** Returns the best server for each clause of a query. */
  async #bestOfClauses({ clauses }: Asked, excluded: Wish['excluded']): Promise<FusedServer[]> {
    const { index } = this.#parts;
    // During an outage, more searches would only take longer.
    if (index.degraded !== undefined) return [];
    const ranked = await Promise.all(
      clauses.map(clause => this.#ranked(clause, { ...OF_A_CLAUSE, excluded }).catch(() => NOTHING)),
    );
    // Without vectors, every clause would have a server.
    if (index.degraded !== undefined) return [];
    return ranked.flatMap(one => (one.isAnswerable ? one.servers.slice(0, 1) : []));
  }

  /** Returns a server's rank for a query or, if it is not ranked, its scores among all candidates. */
  async examine(query: string, serverId: string): Promise<Examined> {
    const ranking = await this.rank({ query, limit: Infinity });
    const among = (one: { readonly serverId: string }) => one.serverId === serverId;
    const own = ranking.find(among);
    if (own) return { ranking, own, isAnswerable: true };
    const { wanted, excluded } = this.#wishOf(query);
    const wide = { count: CANDIDATES_OF_AN_EXAMINATION, isForced: true, excluded };
    const {
      servers,
      table,
      isAnswerable: mayServe,
    } = await this.#ranked(this.#parts.index.ask(wanted), wide);
    const turnedAway = servers.find(among);
    const isAnswerable = mayServe || ranking.length > 0;
    return { ranking, own: turnedAway && shown(turnedAway, table), isAnswerable };
  }

  #wishOf(query: string): Wish {
    const { epoch } = this.#parts.index;
    return wantedAndExcluded(
      query,
      words =>
        this.#exactNames.knownAs(words, epoch) ??
        (this.#integrations.knows(words, epoch) ? 'name' : undefined),
    );
  }

  async #ranked(asked: Asked, { count, isForced, isClause, excluded }: RankOptions): Promise<Ranked> {
    const { index } = this.#parts;
    const query = withoutAddresses(asked.text);
    const { candidates: found, vectors } = await traced(
      'index',
      () => index.find(asked, count),
      () => ({ attributes: { 'switchboard.index': index.id } }),
    );
    const tuning = this.#tuning;
    const corrected = found.map(candidate => correctedBy(tuning, candidate));
    const { candidates, integrated, ...naming } = this.#withNamed(query, asked.language, corrected);
    const { called, named } = naming;
    const { isAnswerable, mayBeSearched, general } = verdictOn({ candidates, vectors }, tuning, isClause);
    const mayServe = isAnswerable || [called, named, integrated.serverIds].some(({ size }) => size > 0);
    if (!mayServe && !mayBeSearched && !isForced) return NOTHING;
    const ordered = this.#ordered(candidates, { query, excluded, ...naming });
    const working = ordered.filter(({ serverId }) => integrated.serverIds.has(serverId));
    const isLed = ordered[0]?.isPinned === true;
    const servers = broughtForward(ordered, working, isLed ? 'third' : 'first');
    return {
      servers,
      table: tableFor(vectors, tuning),
      isAnswerable: mayServe,
      general: called.size > 0 || isLed || integrated.isAlone ? undefined : general,
    };
  }

  /** Returns the active servers among candidates, best first; named ones lead, and those that should not be used come later. */
  #ordered(
    candidates: readonly Candidate[],
    { query, excluded, called, named, placed }: Naming,
  ): readonly FusedServer[] {
    const { catalogue, use } = this.#parts;
    const isExcluded = excludedMatcher(excluded);
    const reductionOf = (id: string) => {
      // A server that the query also wants by its name is not excluded: "in Google Calendar, not in Google Keep".
      const forms = excluded.length === 0 || named.has(id) ? undefined : this.#nameFormsOf(id);
      return (
        (isDeprecated(catalogue.get(id)) ? DEPRECATED_SHARE : 1) *
        (this.#isDead(id) ? DEAD_SHARE : 1) *
        (forms && isExcluded(forms) ? EXCLUDED_SHARE : 1)
      );
    };
    const ranking = this.#exactNames.pinExact(
      this.#withNamedFirst(fuse(candidates, use, { reductionOf }), named, placed),
      query,
      id => called.has(id),
      id => !this.#isDead(id),
    );
    return ranking.filter(({ serverId }) => catalogue.get(serverId)?.active);
  }

  /** Adds the servers whose id or name is the query, or which work with what it names, and determines how it names each candidate. */
  #withNamed(query: string, language: Asked['language'], found: readonly Candidate[]): Named {
    const { index } = this.#parts;
    const candidates = [...found];
    const ids = new Set(found.map(({ serverId }) => serverId));
    const integrated = this.#integrations.find(query, index.epoch, {
      others: () => this.#rivalsAmong(found),
      works: id => !this.#isDead(id),
    });
    const exact = this.#exactNames.idsFor(query, index.epoch);
    for (const serverId of [...exact, ...integrated.serverIds]) {
      if (ids.has(serverId)) continue;
      ids.add(serverId);
      candidates.push({ serverId, texts: 1, semantic: 0, direct: 0, excess: 0, keyword: 0, tools: NO_TOOLS });
    }
    const [isCalled, isNamed, isPlaced] = [
      calledMatcher(query),
      namedMatcher(query),
      placedMatcher(query, language),
    ];
    const called = new Set(exact);
    const named = new Set<string>();
    const placed = new Set<string>();
    for (const serverId of ids) {
      const forms = this.#nameFormsOf(serverId);
      if (forms && isCalled(forms)) called.add(serverId);
      if (!forms || !isNamed(forms)) continue;
      named.add(serverId);
      if (isPlaced(forms)) placed.add(serverId);
    }
    return { candidates, called, named, placed, integrated };
  }

  /**
   * Moves the servers that the query names to the front, if they are nearly as relevant as the best one. A registry's server with the
   * name of another one stays where it is, and takes the place of none.
   */
  #withNamedFirst(
    ranking: readonly FusedServer[],
    named: ReadonlySet<string>,
    placed: Naming['placed'],
  ): readonly FusedServer[] {
    if (named.size === 0) return ranking;
    const isForeign = (serverId: string) => isFromRegistry(this.#parts.catalogue.get(serverId));
    const nameOf = (serverId: string) => this.#nameFormsOf(serverId)?.lower;
    const own = new Set([...named].filter(id => !isForeign(id)).map(nameOf));
    const best = ranking[0]?.finalScore ?? 0;
    const bestOwn = ranking.find(one => !isForeign(one.serverId))?.finalScore ?? 0;
    const leading = new Set(
      ranking
        .filter(({ serverId, finalScore }) => {
          if (!named.has(serverId)) return false;
          if (isForeign(serverId) && own.has(nameOf(serverId))) return false;
          const share = placed.has(serverId) ? PLACED_SHARE : NAMED_SHARE;
          return finalScore >= (isForeign(serverId) ? best : bestOwn) * share;
        })
        .map(({ serverId }) => serverId),
    );
    return pinFirst(ranking, id => leading.has(id));
  }

  /** Returns the candidates that work, except for those that only a registry knows. */
  #rivalsAmong(candidates: readonly Candidate[]): readonly ServerHead[] {
    const { catalogue } = this.#parts;
    return candidates.flatMap(({ serverId }) => {
      const server = catalogue.get(serverId);
      return server && !isFromRegistry(server) && !this.#isDead(serverId) ? [server] : [];
    });
  }

  #nameFormsOf(serverId: string): NameForms | undefined {
    const name = this.#parts.catalogue.get(serverId)?.name;
    if (name === undefined) return undefined;
    const forms = this.#nameForms.get(name) ?? formsOf(name);
    this.#nameForms.set(name, forms);
    return forms;
  }

  #isDead(serverId: string): boolean {
    const { catalogue, health } = this.#parts;
    const server = catalogue.get(serverId);
    return server !== undefined && health.of(server)?.deadSinceMs !== undefined;
  }
}

/** The number of names whose forms are kept, because queries share many candidates. */
const MAX_NAME_FORMS = 5_000;

/** The factor for deprecated servers, which ranks nearly equal replacements first. */
const DEPRECATED_SHARE = 0.8;
/**
 * The factor for servers that do not work, which ranks anything half as good first. They stay in the result, so that the
 * caller learns that the only matching server is down.
 */
const DEAD_SHARE = 0.5;
/** The factor for servers that the query excludes. */
const EXCLUDED_SHARE = 0.5;

/** The share of the best score that a server needs to lead because the query names it. */
const NAMED_SHARE = 0.8;
/** It is lower for one that a query in another language says where to find: only some servers have examples in that language. */
const PLACED_SHARE = 0.5;

const NO_TOOLS = { semantic: [], keyword: [] };

/** Without vectors all cosines are 0, which the table would turn into a probability. */
const tableFor = (vectors: Findings['vectors'], tuning: ReturnType<typeof tuningOf>): Ranked['table'] =>
  vectors.length === 0 ? undefined : tuning?.calibration;

const isDeprecated = (server: ServerHead | undefined): boolean => server?.registry?.status === 'deprecated';

function correctedBy(tuning: ReturnType<typeof tuningOf>, candidate: Candidate): Candidate {
  const { semantic, texts, direct, tools } = candidate;
  const spread = tuning?.spread ?? 0;
  return {
    ...candidate,
    semantic: correctForTextCount(semantic, texts, spread),
    direct: correctForTextCount(direct, 1 + tools.semantic.length, spread),
  };
}

/** Orders the tools, rounds the score, and turns the cosine into a probability. */
const shown = (
  { rankTools, ...server }: FusedServer,
  table: readonly CalibrationPoint[] | undefined,
): RankedServer => ({
  ...server,
  ...rankTools(),
  semantic: calibrate(server.semantic, table),
  finalScore: roundScore(server.finalScore),
});
