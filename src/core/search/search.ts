import { LRUCache } from 'lru-cache';
import { SwitchboardError } from '../../errors.ts';
import { cleanText } from '../../platform/sanitize.ts';
import { raceAbort, raceDeadline, type Clock, type Cancellation } from '../../platform/time.ts';
import type { Database } from '../../platform/database/database.ts';
import { newId } from '../../platform/ids.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { Metrics } from '../metrics.ts';
import { traced } from '../../platform/telemetry/tracing.ts';
import type { Caller } from '../access/caller.ts';
import { shownHealth, type Health, type KnownHealth, type ShownHealth } from '../catalogue/health.ts';
import type { ClaimedCall } from '../feedback-types.ts';
import type { Described } from './documents.ts';
import { SearchOutcomes, type Feedback } from './feedback.ts';
import { QueryLog } from './query-log.ts';
import { orderByAccess, orderTools, roundScore, type RankedServer, type ScoreParts } from './fusion.ts';
import { Ranker, type Question, type RankerParts } from './ranking.ts';
import { FairSlots } from '../../platform/queues.ts';
import {
  accessOf,
  bareTool,
  type Access,
  type CataloguedTool,
  type Server,
  type ServerHead,
  type Tool,
} from '../catalogue/entry.ts';
import { warningsOf } from '../catalogue/tools/warnings.ts';

const DEFAULT_LIMIT = 10;
/** How long an early search waits for the index to load, which takes a second or two for the shipped catalogue. */
const MAX_WAIT_MS = 10_000;

interface SearchInput {
  readonly query: string;
  /** The maximum number of servers. */
  readonly limit?: number | undefined;
  /** The maximum number of tools per server, best first; absent: all. */
  readonly maxTools?: number | undefined;
  /** true: shows what each score is made of. */
  readonly explain?: boolean | undefined;
  /** Omits tools that are less relevant than this share (0 to 1) of their server's best one; absent: none. */
  readonly nearBest?: number | undefined;
}

interface SearchAnswer {
  readonly servers: readonly FoundServer[];
  readonly metadata: {
    readonly latency_ms: number;
    readonly cache_hit: boolean;
    readonly total_candidates: number;
    readonly query_log_id: string;
  };
}

export interface Search {
  /**
   * Finds the best servers for a query in plain words. The caller validates lengths and ranges.
   * @example
   * await search.search(caller, { query: 'send an e-mail', limit: 5 })
   */
  search(caller: Caller, input: SearchInput): Promise<SearchAnswer>;
  /** Returns a server's rank for a query or, if it is not ranked, its scores among all candidates. */
  standingOf(caller: Caller, query: string, serverId: string): Promise<Standing>;
  /** Returns the positions of a server's tools, best for the query first. The server need not be in the catalogue. */
  orderTools(caller: Caller, query: string, server: Described): Promise<readonly number[]>;
  /** Records feedback on a server that a search returned (see `SearchOutcomes`). */
  feedback(caller: Caller, input: Feedback): Promise<void>;
  /** Records a proxied call that names a search. Never throws and never waits. */
  recordCall(call: ClaimedCall): void;
  readonly queryLog: QueryLog;
  /** Writes the buffered rows of the query log and the outcomes. */
  close(): Promise<void>;
}

/** The standing of one active server in the ranking of a query. */
interface Standing {
  /** 1 for the first; undefined: the server is not in the ranking. */
  readonly rank: number | undefined;
  /** The number of servers in the ranking. */
  readonly of: number;
  /** False: no server can probably serve the query, so that none was returned. */
  readonly isAnswerable: boolean;
  /** The server's own numbers; undefined: neither its words nor its meaning are near the query. */
  readonly own: Pick<FoundServer, 'scores' | 'final_score'> | undefined;
  readonly isDead: boolean;
  readonly isDeprecated: boolean;
}

interface SearchParts extends Omit<RankerParts, 'health'> {
  /** Resolves once the catalogue is indexed; absent if it already is. */
  readonly indexed?: () => Promise<unknown>;
  readonly db: Database;
  readonly log: Log;
  readonly clock: Clock;
  readonly metrics?: Metrics | undefined;
  /** Absent: no health information. */
  readonly health?: KnownHealth;
  /** Returns the access that servers give a caller. Absent: by their entries. */
  readonly accessFor?: (caller: Caller) => Promise<(server: ServerHead) => Access>;
  /** Called with written feedback that counts for or against a server. */
  readonly onVerdicts?: ConstructorParameters<typeof SearchOutcomes>[0]['onVerdicts'];
}

/** Creates the search use case, which REST and MCP share. */
export function createSearch(parts: SearchParts): Search {
  const { catalogue, index, db, log, clock, metrics, onVerdicts = () => {} } = parts;
  const { accessFor = () => Promise.resolve(accessOf) } = parts;
  const { health = { of: () => undefined, epoch: 0 } } = parts;
  const queryLog = new QueryLog({ db, clock, log });
  const outcomes = new SearchOutcomes({ db, clock, log, queryLog, onVerdicts });
  const ranker = new Ranker({ ...parts, health });
  const rankings = new Rankings(ranker, clock);
  metrics?.watch('switchboard_search_slots', () => rankings.slots);
  const untilIndexed = readyGate(parts.indexed ?? (() => Promise.resolve()));

  const inOrderOfAccess = (ranking: readonly RankedServer[], access: (server: ServerHead) => Access) =>
    orderByAccess(
      ranking.flatMap(ranked => {
        const head = catalogue.get(ranked.serverId);
        return head?.active ? [{ ...ranked, head, access: access(head) }] : [];
      }),
    );

  async function present(
    ranking: readonly RankedServer[],
    input: SearchInput,
    known: { readonly nowMs: number; readonly accessOf: (server: ServerHead) => Access },
  ): Promise<FoundServer[]> {
    const { limit = DEFAULT_LIMIT, maxTools, nearBest, explain } = input;
    const best = inOrderOfAccess(ranking, known.accessOf).slice(0, limit);
    const servers = await catalogue.read(best.map(one => one.serverId));
    return best.flatMap(({ head, access, ...ranked }) => {
      const server = servers.get(head.id);
      const options = { maxTools, nearBest, explain, access, nowMs: known.nowMs, health: health.of(head) };
      return server ? [presentServer(server, ranked, options)] : [];
    });
  }

  async function search(caller: Caller, input: SearchInput): Promise<SearchAnswer> {
    const startedAt = clock.now();
    await untilIndexed();
    const { query, limit = DEFAULT_LIMIT } = input;
    const [{ ranking, cacheHit }, access] = await Promise.all([
      rankings.of(caller, { query: normalized(query), limit }),
      accessFor(caller),
    ]);
    const servers = await present(ranking, input, { nowMs: startedAt, accessOf: access });
    const id = newId('qry');
    const latencyMs = clock.now() - startedAt;
    metrics?.searched({ cacheHit, latencyMs, empty: servers.length === 0 });
    const { tenantId, keyId } = caller;
    queryLog.record({
      id,
      tenantId,
      keyId,
      query,
      serverIds: servers.map(one => one.id),
      latencyMs,
      cacheHit,
    });
    return {
      servers,
      metadata: {
        latency_ms: Math.round(latencyMs),
        cache_hit: cacheHit,
        total_candidates: index.size,
        query_log_id: id,
      },
    };
  }

  async function standingOf(caller: Caller, query: string, serverId: string): Promise<Standing> {
    await untilIndexed();
    const examine = () => ranker.examine(normalized(query), serverId);
    const [{ ranking, own, isAnswerable }, access] = await Promise.all([
      rankings.inTurn(caller, examine),
      accessFor(caller),
    ]);
    const place = inOrderOfAccess(ranking, access).findIndex(one => one.serverId === serverId);
    const head = catalogue.get(serverId);
    return {
      rank: place < 0 ? undefined : place + 1,
      of: ranking.length,
      isAnswerable,
      own: own && { scores: scoresOf(own, true), final_score: roundScore(own.finalScore) },
      isDead: head !== undefined && health.of(head)?.deadSinceMs !== undefined,
      isDeprecated: head?.registry?.status === 'deprecated',
    };
  }

  return {
    queryLog,
    standingOf,
    // The trace never contains the query.
    search: (caller, input) =>
      traced('search', async span => {
        const answer = await search(caller, input);
        span?.set({
          'switchboard.search.cache_hit': answer.metadata.cache_hit,
          'switchboard.search.servers': answer.servers.length,
          'switchboard.search.query_log_id': answer.metadata.query_log_id,
        });
        return answer;
      }),
    async orderTools(caller, query, server) {
      await untilIndexed();
      return orderTools(await rankings.inTurn(caller, () => index.compareTools(normalized(query), server)));
    },
    feedback: (caller, input) => outcomes.recordFeedback(caller, input),
    recordCall: call => outcomes.recordCall(call),
    async close() {
      await outcomes.close();
      await queryLog.close();
    },
  };
}

/** Clean as the texts of servers are: an invisible character in a name would hide it. */
const normalized = (query: string): string =>
  cleanText(query.replaceAll(MARKS, ' ').normalize('NFKC')).trim();

/** NFKC would make letters of them, and "JiraTM" of a name. */
const MARKS = /[™℠®©№]/g;

/**
 * Returns a function that resolves once `indexed` has resolved. Without it, a search on a partially loaded index would
 * wrongly find nothing.
 * @throws SwitchboardError `unavailable` (503) if `indexed` rejects or takes longer than `maxWaitMs`
 */
export function readyGate(indexed: () => Promise<unknown>, maxWaitMs = MAX_WAIT_MS): () => Promise<void> {
  let isIndexed = false;
  return async () => {
    if (isIndexed) return;
    const unready = (cause?: unknown) =>
      new SwitchboardError(
        'unavailable',
        'The search index is still loading. Try again in a few seconds. /readyz returns 200 once it is ready.',
        { cause },
      );
    await raceDeadline(
      indexed().catch((error: unknown) => {
        const isTold = error instanceof SwitchboardError;
        throw isTold ? new SwitchboardError('unavailable', error.detail, { cause: error }) : unready(error);
      }),
      maxWaitMs,
      unready,
    );
    isIndexed = true;
  };
}

const CACHE_TTL_MS = 60_000;
const CACHE_MAX_BYTES = 16 * 1024 * 1024;
/**
 * The maximum number of concurrent rankings per tenant; all tenants together may have twice as many. Rankings share a few
 * cores, and a tenant with hundreds of searches must not delay others.
 */
const RANKINGS_PER_TENANT = 8;
const MAX_WAITING = 500;

type Ranking = readonly RankedServer[];
type Asker = Pick<Caller, 'tenantId' | 'signal'>;

/** A ranking that is being computed. If all its callers give up while it waits for a slot, it is cancelled. */
interface Flight {
  readonly ranking: Promise<Ranking>;
  readonly abandoned: AbortController;
  askers: number;
}

/** Rankings by tenant and question: cached for a minute, computed once for equal questions, in fair turns between tenants. */
class Rankings {
  readonly #ranker: Ranker;
  readonly #slots = new FairSlots(RANKINGS_PER_TENANT, MAX_WAITING, tooManyWait);
  readonly #cache: LRUCache<string, Ranking>;
  readonly #flights = new Map<string, Flight>();

  constructor(ranker: Ranker, clock: Clock) {
    this.#ranker = ranker;
    this.#cache = new LRUCache({
      maxSize: CACHE_MAX_BYTES,
      sizeCalculation: bytesOf,
      ttl: CACHE_TTL_MS,
      ttlResolution: 0,
      perf: clock,
    });
  }

  /** The number of slots in use and of waiting callers. */
  get slots(): FairSlots['use'] {
    return this.#slots.use;
  }

  /**
   * Returns the ranking for a question, and whether it came from the cache.
   * @throws SwitchboardError `unavailable` if too many are waiting; the signal's reason if it aborts
   */
  async of(asker: Asker, question: Question): Promise<{ ranking: Ranking; cacheHit: boolean }> {
    const { query, limit } = question;
    const { state } = this.#ranker;
    // Tenants share no ranking: a fast answer would tell one what another has asked, and a full queue would delay the other.
    const key = JSON.stringify([asker.tenantId, query, limit, state]);
    const known = this.#cache.get(key);
    if (known) return { ranking: known, cacheHit: true };
    const flight = this.#join(key, async signal => {
      const ranking = await this.inTurn({ ...asker, signal }, () => this.#ranker.rank(question));
      // If the state changed in the meantime (an import, a failing embedder), the ranking is not cached.
      if (this.#ranker.state === state) this.#cache.set(key, ranking);
      return ranking;
    });
    return { ranking: await this.#share(flight, asker.signal), cacheHit: false };
  }

  /** Works on the search index once the caller's tenant has a free slot. */
  async inTurn<T>({ tenantId, signal }: Asker, work: () => Promise<T>): Promise<T> {
    const release = await this.#slots.take('search', tenantId, signal);
    try {
      return await work();
    } finally {
      release();
    }
  }

  #join(key: string, compute: (signal: Cancellation) => Promise<Ranking>): Flight {
    const running = this.#flights.get(key);
    if (running && !running.abandoned.signal.aborted) return running;
    const abandoned = new AbortController();
    const flight: Flight = { ranking: compute(abandoned.signal), abandoned, askers: 0 };
    this.#flights.set(key, flight);
    const forget = () => {
      if (this.#flights.get(key) === flight) this.#flights.delete(key);
    };
    flight.ranking.then(forget, forget);
    return flight;
  }

  async #share(flight: Flight, signal: Cancellation): Promise<Ranking> {
    flight.askers++;
    try {
      return await raceAbort(flight.ranking, signal);
    } finally {
      if (--flight.askers === 0) flight.abandoned.abort();
    }
  }
}

/** Estimates the memory of an entry with its key, because even an empty ranking of a long query takes some. */
const bytesOf = (ranking: Ranking, key: string): number =>
  ranking.reduce((sum, { toolOrder }) => sum + 120 + 16 * toolOrder.length, 200 + 2 * key.length);

const tooManyWait = () =>
  new SwitchboardError('unavailable', 'Too many of your searches are already waiting. Try again later.');

/** A tool in a response, in the fields of the API. */
interface FoundTool extends Tool {
  /** Warnings before calling it (docs/tools.md); absent if there are none. */
  readonly warnings?: readonly string[];
}

/** A server in a response, in the fields of the API. */
export interface FoundServer {
  readonly id: string;
  readonly name: string;
  readonly description: string;
  readonly remote_url: string;
  readonly access: Access;
  /** Ordered by relevance to the query. */
  readonly tools: readonly FoundTool[];
  readonly scores: { readonly semantic: number; readonly popularity: number } & Partial<ScoreParts>;
  readonly final_score: number;
  /** True if its registry says that it should no longer be used. */
  readonly deprecated?: true;
  /** The registry's reason: untrusted text. */
  readonly status_message?: string;
  /** The result of its last health check; absent if there was none. */
  readonly health?: ShownHealth;
}

interface PresentOptions {
  /** The maximum number of tools; undefined: all. */
  readonly maxTools: number | undefined;
  /** See `SearchInput`. */
  readonly nearBest: number | undefined;
  readonly explain: boolean | undefined;
  readonly nowMs: number;
  readonly health: Health | undefined;
  readonly access: Access;
}

/** Renders a ranked server in the fields of the API. */
function presentServer(server: Server, ranked: RankedServer, options: PresentOptions): FoundServer {
  const { access } = options;
  return {
    id: server.id,
    name: server.name,
    description: server.description,
    remote_url: server.remoteUrl,
    access,
    tools: toolsOf(server, ranked, options).map(tool => presentTool(tool, options.nowMs)),
    scores: scoresOf(ranked, options.explain),
    final_score: ranked.finalScore,
    ...deprecationOf(server.registry),
    ...healthOf(options.health, access),
  };
}

const scoresOf = (
  { semantic, popularity, parts }: RankedServer,
  explain: boolean | undefined,
): FoundServer['scores'] => ({ semantic, popularity, ...(explain ? roundedParts(parts) : {}) });

const roundedParts = ({ meaning, words, use, reduction }: ScoreParts): ScoreParts => ({
  meaning: roundScore(meaning),
  words: roundScore(words),
  use: roundScore(use),
  reduction: roundScore(reduction),
});

/** Health checks carry no key: what they say of a server that wants one does not hold for a caller who has it. */
const healthOf = (health: Health | undefined, { status }: Access): Pick<FoundServer, 'health'> =>
  !health || (health.state === 'needs_sign_in' && status === 'connected')
    ? {}
    : { health: shownHealth(health) };

const deprecationOf = (mark: Server['registry']): Pick<FoundServer, 'deprecated' | 'status_message'> => {
  if (mark?.status !== 'deprecated') return {};
  return {
    deprecated: true,
    ...(mark.statusMessage === undefined ? {} : { status_message: mark.statusMessage }),
  };
};

function presentTool(tool: CataloguedTool, nowMs: number): FoundTool {
  const warnings = warningsOf(tool, nowMs);
  return { ...bareTool(tool), ...(warnings.length === 0 ? {} : { warnings }) };
}

/** The number of tools that are shown as the nearest ones of a server whose tools were not compared with the query. */
const MOST_UNCOMPARED = 3;

/** Orders the tools as ranked. A server that has changed since may have fewer or more tools; new ones come last. */
function toolsOf(
  { tools }: Server,
  ranked: RankedServer,
  { maxTools, nearBest }: PresentOptions,
): CataloguedTool[] {
  const all = [...ranked.toolOrder, ...tools.keys()];
  const near = ranked.toolOrder.length === 0 ? all.slice(0, MOST_UNCOMPARED) : undefined;
  const positions = nearBest === undefined ? all : (near ?? positionsNearBest(ranked, nearBest));
  return [...new Set(positions)].flatMap(position => tools[position] ?? []).slice(0, maxTools);
}

function positionsNearBest({ toolOrder, toolRelevance }: RankedServer, share: number): number[] {
  const least = (toolRelevance[0] ?? 0) * share;
  return toolOrder.filter((_position, at) => (toolRelevance[at] ?? 0) >= least);
}
