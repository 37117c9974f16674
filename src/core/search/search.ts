import { LRUCache } from 'lru-cache';
import type { Clock } from '../../platform/clock.ts';
import type { Database } from '../../platform/database/database.ts';
import { newId } from '../../platform/ids.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { Metrics } from '../../platform/telemetry/metrics.ts';
import { SingleFlight } from '../../platform/single-flight.ts';
import { traced } from '../../platform/telemetry/tracing.ts';
import { SwitchboardError } from '../../errors.ts';
import type { Caller } from '../access/caller.ts';
import { FairSlots } from '../../platform/fair-slots.ts';
import type { Catalogue } from '../catalogue/catalogue.ts';
import type { Server } from '../catalogue/entry.ts';
import type { KnownHealth } from '../catalogue/health.ts';
import type { UseSignals } from '../catalogue/use-tally.ts';
import type { ClaimedCall } from '../feedback-types.ts';
import { isAnswerable, mentionsIn, namesIn, spellingsOf } from './answerability.ts';
import { Called } from './exact-name-match.ts';
import { calibrate, type CalibrationPoint } from './calibration.ts';
import type { Described } from './documents.ts';
import { render, type FoundServer } from './present.ts';
import { QueryLog } from './query-log.ts';
import { onceIndexed } from './ready-gate.ts';
import {
  DEAD_SHARE,
  DEPRECATED_SHARE,
  fuse,
  lessChance,
  orderTools,
  putLower,
  type RankedServer,
} from './ranking.ts';
import type { SearchIndex } from './index/search-index.ts';
import { SearchOutcomes, type Feedback } from './feedback.ts';
import { tuningOf } from './tuning.ts';

const DEFAULT_LIMIT = 10;
const CACHE_TTL_MS = 60_000;
/**
 * Rankings that one tenant has under way at most, twice as many in all: they share a few cores, and a tenant that asks for
 * hundreds at once must not keep another waiting.
 */
const RANKINGS_PER_TENANT = 8;
const MAX_WAITING = 500;
const CACHE_MAX_BYTES = 16 * 1024 * 1024;

/** About what an entry takes, its key included: an empty ranking of a long query is not nothing. */
const bytesOf = (ranking: readonly RankedServer[], key: string): number =>
  ranking.reduce((sum, { toolOrder }) => sum + 120 + 16 * toolOrder.length, 200 + 2 * key.length);

interface SearchInput {
  readonly query: string;
  /** Servers at most. */
  readonly limit?: number | undefined;
  /** Tools a server at most, the best ones; absent: all. */
  readonly maxTools?: number | undefined;
  /** Leaves out tools that are less relevant than this share of their server's best one, 0 to 1; absent: none. */
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
  /** The best servers for a query in plain words. Lengths and ranges are the face's to check. */
  search(caller: Caller, input: SearchInput): Promise<SearchAnswer>;
  /** Returns the positions of a server's tools, the best for the query first. Neither has to be in the catalogue. */
  orderTools(caller: Caller, query: string, server: Described): Promise<number[]>;
  /** Notes what the caller says of a server that a search found (see `SearchOutcomes`). */
  feedback(caller: Caller, input: Feedback): Promise<void>;
  /** Notes a proxied call that names a search. Never throws and never waits. */
  recordCall(call: ClaimedCall): void;
  readonly queryLog: QueryLog;
  /** Writes what the query log and the outcomes still hold. */
  close(): Promise<void>;
}

interface SearchParts {
  readonly catalogue: Catalogue;
  readonly index: SearchIndex;
  /** Resolves once the index holds the catalogue; absent: it does. */
  readonly indexed?: () => Promise<unknown>;
  readonly db: Database;
  readonly log: Log;
  readonly clock: Clock;
  readonly metrics?: Metrics | undefined;
  /** What is known of a server's use; asked for every candidate of every query. */
  readonly use: (serverId: string) => UseSignals;
  /** What is known of a server's health; absent: nothing of any. */
  readonly health?: KnownHealth;
  /** Told of verdicts that count for or against a server, as they are written. */
  readonly onVerdicts?: ConstructorParameters<typeof SearchOutcomes>[0]['onVerdicts'];
}

/** The search use case: both faces call it and render its answer as it is. */
export function createSearch(parts: SearchParts): Search {
  const {
    catalogue,
    index,
    db,
    log,
    clock,
    metrics,
    use,
    onVerdicts = () => {},
    health = { of: () => undefined, epoch: 0 },
  } = parts;
  const queryLog = new QueryLog({ db, clock, log });
  const outcomes = new SearchOutcomes({ db, clock, log, queryLog, onVerdicts });
  const slots = new FairSlots(RANKINGS_PER_TENANT, MAX_WAITING, tooManyWait);
  metrics?.watch('switchboard_search_slots', () => slots.use);
  const untilIndexed = onceIndexed(parts.indexed ?? (() => Promise.resolve()));
  const computing = new SingleFlight<readonly RankedServer[]>();
  const cache = new LRUCache<string, readonly RankedServer[]>({
    maxSize: CACHE_MAX_BYTES,
    sizeCalculation: bytesOf,
    ttl: CACHE_TTL_MS,
    ttlResolution: 0,
    perf: clock,
  });

  const called = new Called(catalogue);
  const spelled = new WeakMap<Server, ReturnType<typeof spellingsOf>>();
  const isDead = (serverId: string): boolean => {
    const server = catalogue.get(serverId);
    return server !== undefined && health.of(server)?.deadSinceMs !== undefined;
  };
  const spellings = (serverId: string) => {
    const server = catalogue.get(serverId);
    if (!server) return [];
    const known = spelled.get(server) ?? spellingsOf(server.name);
    spelled.set(server, known);
    return known;
  };

  const isMentioned = (query: string, candidates: readonly { readonly serverId: string }[]): boolean => {
    const names = new Set(candidates.map(({ serverId }) => catalogue.get(serverId)?.name ?? ''));
    return [...names].some(mentionsIn(query));
  };

  /** What a ranking depends on apart from the query: of two equal states, two rankings are equal. */
  const state = () => [index.id, index.epoch, index.degraded ?? '', health.epoch];

  async function rank(
    query: string,
    limit: number,
    maxTools: number | undefined,
  ): Promise<readonly RankedServer[]> {
    const { candidates: found, vectors } = await traced(
      'index',
      () => index.find(query),
      () => ({ attributes: { 'switchboard.index': index.id } }),
    );
    const tuning = tuningOf(index.embedderId);
    const candidates = found.map(({ serverId, semantic, keyword, tools }) => {
      return {
        serverId,
        keyword,
        tools,
        semantic: lessChance(semantic, tools.length + 1, tuning?.spread ?? 0),
      };
    });
    const naming = namesIn(query);
    const named = new Map(candidates.map(({ serverId }) => [serverId, naming(spellings(serverId))]));
    for (const serverId of called.idsFor(query, index.epoch)) {
      if (!named.has(serverId)) candidates.push({ serverId, keyword: 0, semantic: 0, tools: [] });
      named.set(serverId, 'alone');
    }
    const isNamed = [...named.values()].some(how => how !== 'not');
    const mayServe = isNamed || isAnswerable({ candidates, vectors }, tuning?.answerability);
    if (!mayServe && !isMentioned(query, candidates)) return [];
    const supported = putLower(
      fuse(candidates, use),
      serverId => isDeprecated(catalogue.get(serverId)),
      DEPRECATED_SHARE,
    );
    const fitting = putLower(supported, isDead, DEAD_SHARE);
    const ranking = called.first(
      fitting,
      query,
      serverId => named.get(serverId) === 'alone',
      serverId => !isDead(serverId),
    );
    const best = ranking.filter(({ serverId }) => catalogue.get(serverId)?.active).slice(0, limit);
    // Without vectors the cosine of everything is 0, which says nothing.
    const table = vectors.length === 0 ? undefined : tuning?.calibration;
    return best.map(server => presented(server, maxTools, table));
  }

  /** In its tenant's turn. Whoever asks for the same meanwhile waits too: no one's leaving ends it. */
  async function rankInTurn(
    tenantId: string,
    ...question: Parameters<typeof rank>
  ): Promise<readonly RankedServer[]> {
    const release = await slots.take('search', tenantId, new AbortController().signal);
    try {
      return await rank(...question);
    } finally {
      release();
    }
  }

  async function cached(
    tenantId: string,
    input: SearchInput,
  ): Promise<{ ranking: readonly RankedServer[]; cacheHit: boolean }> {
    await untilIndexed();
    const query = input.query.normalize('NFC').trim();
    const limit = input.limit ?? DEFAULT_LIMIT;
    const before = state();
    const key = JSON.stringify([query, limit, input.maxTools, before]);
    const known = cache.get(key);
    if (known) return { ranking: known, cacheHit: true };
    // Each tenant in its own turn: a queue of one must not keep another waiting that asks for the same.
    const ranking = await computing.run(JSON.stringify([tenantId, key]), async () => {
      const computed = await rankInTurn(tenantId, query, limit, input.maxTools);
      // The state may have changed meanwhile (an import, an embedder that failed): such a ranking serves once.
      if (String(state()) === String(before)) cache.set(key, computed);
      return computed;
    });
    return { ranking, cacheHit: false };
  }

  return {
    queryLog,
    async orderTools({ tenantId, signal }, query, server) {
      await untilIndexed();
      const release = await slots.take('search', tenantId, signal);
      try {
        return orderTools(await index.compareTools(query.normalize('NFC').trim(), server));
      } finally {
        release();
      }
    },
    feedback: (caller, input) => outcomes.recordFeedback(caller, input),
    recordCall: call => outcomes.recordCall(call),
    async close() {
      await outcomes.close();
      await queryLog.close();
    },
    async search(caller, input) {
      const startedAt = clock.now();
      const { ranking, cacheHit } = await cached(caller.tenantId, input);
      const servers = ranking.flatMap(ranked => {
        const server = catalogue.get(ranked.serverId);
        if (!server?.active) return [];
        const { maxTools, nearBest } = input;
        const shown = { maxTools, nearBest, nowMs: startedAt, health: health.of(server) };
        return [render(server, ranked, shown)];
      });
      const id = newId('qry');
      const latencyMs = clock.now() - startedAt;
      metrics?.searched({ cacheHit, latencyMs, empty: servers.length === 0 });
      queryLog.record({
        id,
        tenantId: caller.tenantId,
        keyId: caller.keyId,
        query: input.query,
        serverIds: servers.map(server => server.id),
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
    },
  };
}

const isDeprecated = (server: Server | undefined): boolean => server?.registry?.status === 'deprecated';

/** With as many tools as are asked for, and its cosine as a probability. */
const presented = (
  server: RankedServer,
  maxTools: number | undefined,
  table: readonly CalibrationPoint[] | undefined,
): RankedServer => ({
  ...server,
  semantic: calibrate(server.semantic, table),
  toolOrder: server.toolOrder.slice(0, maxTools),
  toolRelevance: server.toolRelevance.slice(0, maxTools),
});

const tooManyWait = () =>
  new SwitchboardError('unavailable', 'Too many searches of yours are waiting already. Try again later.');
