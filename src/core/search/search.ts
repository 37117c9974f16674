import { SwitchboardError } from '../../errors.ts';
import type { Clock } from '../../platform/clock.ts';
import type { Database } from '../../platform/database/database.ts';
import { newId } from '../../platform/ids.ts';
import { raceDeadline } from '../../platform/race-abort.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { Metrics } from '../metrics.ts';
import { traced } from '../../platform/telemetry/tracing.ts';
import type { Caller } from '../access/caller.ts';
import type { KnownHealth } from '../catalogue/health.ts';
import type { ClaimedCall } from '../feedback-types.ts';
import type { Described } from './documents.ts';
import { SearchOutcomes, type Feedback } from './feedback.ts';
import { presentServer, type FoundServer } from './present.ts';
import { QueryLog } from './query-log.ts';
import { Ranker, type RankerParts } from './ranker.ts';
import { orderTools, type RankedServer } from './ranking.ts';
import { Rankings } from './rankings.ts';

const DEFAULT_LIMIT = 10;
/** How long a search at the start waits for the index to hold the catalogue: the shipped one takes a second or two. */
const MAX_WAIT_MS = 10_000;

interface SearchInput {
  readonly query: string;
  /** Most servers to return. */
  readonly limit?: number | undefined;
  /** Most tools a server, the best ones; all when absent. */
  readonly maxTools?: number | undefined;
  /** Leaves out tools that are less relevant than this share (0 to 1) of their server's best one; none when absent. */
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
   * Finds the best servers for a query in plain words. The caller of this function checks lengths and ranges.
   * @example await search.search(caller, { query: 'send an e-mail', limit: 5 })
   */
  search(caller: Caller, input: SearchInput): Promise<SearchAnswer>;
  /** Returns the positions of a server's tools, the best for the query first. The server need not be in the catalogue. */
  orderTools(caller: Caller, query: string, server: Described): Promise<number[]>;
  /** Records a verdict on a server that a search found (see `SearchOutcomes`). */
  feedback(caller: Caller, input: Feedback): Promise<void>;
  /** Records a proxied call that names a search. Never throws and never waits. */
  recordCall(call: ClaimedCall): void;
  readonly queryLog: QueryLog;
  /** Writes the buffered rows of the query log and the outcomes. */
  close(): Promise<void>;
}

interface SearchParts extends Omit<RankerParts, 'health'> {
  /** Resolves once the index holds the catalogue; absent when it does already. */
  readonly indexed?: () => Promise<unknown>;
  readonly db: Database;
  readonly log: Log;
  readonly clock: Clock;
  readonly metrics?: Metrics | undefined;
  /** Absent: no server's health is known. */
  readonly health?: KnownHealth;
  /** Called with verdicts that count for or against a server, once they are written. */
  readonly onVerdicts?: ConstructorParameters<typeof SearchOutcomes>[0]['onVerdicts'];
}

/** Creates the search use case, which REST and MCP share. */
export function createSearch(parts: SearchParts): Search {
  const { catalogue, index, db, log, clock, metrics, onVerdicts = () => {} } = parts;
  const { health = { of: () => undefined, epoch: 0 } } = parts;
  const queryLog = new QueryLog({ db, clock, log });
  const outcomes = new SearchOutcomes({ db, clock, log, queryLog, onVerdicts });
  const rankings = new Rankings(new Ranker({ ...parts, health }), clock);
  metrics?.watch('switchboard_search_slots', () => rankings.slots);
  const untilIndexed = readyGate(parts.indexed ?? (() => Promise.resolve()));

  function present(ranking: readonly RankedServer[], input: SearchInput, nowMs: number): FoundServer[] {
    return ranking.flatMap(ranked => {
      const server = catalogue.get(ranked.serverId);
      if (!server?.active) return [];
      const { maxTools, nearBest } = input;
      return [presentServer(server, ranked, { maxTools, nearBest, nowMs, health: health.of(server) })];
    });
  }

  async function search(caller: Caller, input: SearchInput): Promise<SearchAnswer> {
    const startedAt = clock.now();
    await untilIndexed();
    const { query, limit = DEFAULT_LIMIT, maxTools } = input;
    const { ranking, cacheHit } = await rankings.of(caller, { query: normalized(query), limit, maxTools });
    const servers = present(ranking, input, startedAt);
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

  return {
    queryLog,
    // The query itself is not part of the trace.
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

const normalized = (query: string): string => query.normalize('NFC').trim();

/**
 * Returns a function that resolves once `indexed` has, and at once from then on. Without it, an answer from an index that is still
 * being filled would say that nothing fits.
 * @throws SwitchboardError `unavailable` (503) when `indexed` rejects or takes longer than `maxWaitMs`
 */
export function readyGate(indexed: () => Promise<unknown>, maxWaitMs = MAX_WAIT_MS): () => Promise<void> {
  let isIndexed = false;
  return async () => {
    if (isIndexed) return;
    const unready = (cause?: unknown) =>
      new SwitchboardError(
        'unavailable',
        'The catalogue is still being read into the search index. Try again in a few seconds: /readyz answers 200 when it is ready.',
        { cause },
      );
    await raceDeadline(
      indexed().catch((error: unknown) => {
        throw unready(error);
      }),
      maxWaitMs,
      unready,
    );
    isIndexed = true;
  };
}
