import { and, eq, gte, inArray, lt } from 'drizzle-orm';
import { SwitchboardError } from '../../errors.ts';
import { monotonicMs, type Clock } from '../../platform/time.ts';
import type { Database } from '../../platform/database/database.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { Caller } from '../access/caller.ts';
import { unknownTool } from '../catalogue/tools/warnings.ts';
import type { UseCounts } from '../catalogue/usage.ts';
import type { ClaimedCall, OutcomeSource, SearchOutcome, Verdict } from '../feedback-types.ts';
import { purgeWhere } from '../../platform/database/delete-in-batches.ts';
import { excluded } from '../../platform/database/columns.ts';
import { queryLog as queries, searchOutcomes as table } from './schema.ts';
import { WriteBehind } from '../../platform/database/write-behind.ts';
import { isQueryLogId, RETENTION_DAYS, retainedSince, storable, type QueryLog } from './query-log.ts';

/** Most bytes of a tool's name. It is part of a key, and an index takes no key of more than 2,704 bytes. */
const MAX_TOOL_BYTES = 512;
const MAX_BUFFERED_ROWS = 10_000;
/** For so long a search that is not in the database may still be on its way there from another process. */
const UNKNOWN_QUERY_MS = 10_000;

interface Outcome {
  readonly queryLogId: string;
  readonly tenantId: string;
  readonly serverId: string;
  readonly tool: string;
  readonly source: OutcomeSource;
  readonly outcome: SearchOutcome;
  readonly createdAt: Date;
}
interface Buffered extends Outcome {
  /** Time by the monotonic clock. */
  readonly sinceMs: number;
}

export interface Feedback {
  readonly queryLogId: string;
  readonly serverId: string;
  /** Absent: the verdict is on the server as a whole. */
  readonly tool?: string | undefined;
  /** The tools its server has; undefined where they are not known, so that any name may be right. */
  readonly knownTools?: readonly string[] | undefined;
  readonly outcome: Verdict;
}

type Verdicts = Pick<UseCounts, 'helpful' | 'unhelpful'>;

interface Parts {
  readonly db: Database;
  readonly clock: Clock;
  readonly log: Log;
  readonly queryLog: QueryLog;
  /** Told of every verdict that was written and counts for or against its server; negative where one was taken back. */
  readonly onVerdicts: (serverId: string, tenantId: string, verdicts: Verdicts) => void;
}

/**
 * Records what became of the results of searches: calls that name the search they follow from, and verdicts of callers. Of the same
 * search, server, tool and source the last one holds. Neither a call nor a verdict waits for the database to take it. Kept as long as the
 * searches themselves.
 */
export class SearchOutcomes {
  readonly #db: Database;
  readonly #clock: Clock;
  readonly #queryLog: QueryLog;
  readonly #onVerdicts: Parts['onVerdicts'];
  readonly #rows: WriteBehind<Buffered>;

  constructor({ db, clock, log, queryLog, onVerdicts }: Parts) {
    this.#db = db;
    this.#clock = clock;
    this.#queryLog = queryLog;
    this.#onVerdicts = onVerdicts;
    this.#rows = new WriteBehind<Buffered>({
      clock,
      log,
      what: 'search outcomes',
      keyOf,
      maxRows: MAX_BUFFERED_ROWS,
      writeBatch: rows => this.#writeBatch(rows),
      onWritten: rows => log.debug({ rows: rows.length }, 'search outcomes written'),
      purge: () => this.purge(),
    });
  }

  /**
   * Notes how a call ended that names a search. Never throws and never waits: that the search is the tenant's own, not too old, and
   * had the server in its answer is checked when it is written; a call for which that is not so is not noted, nor one of
   * a tool with an endless name.
   */
  recordCall({ queryLogId, tenantId, serverId, tool = '', outcome }: ClaimedCall): void {
    if (isQueryLogId(queryLogId) && isShort(tool))
      this.#put({ queryLogId, tenantId, serverId, tool, source: 'call', outcome });
  }

  /**
   * Notes a verdict.
   * @throws SwitchboardError `query_not_found` for a search that is not the tenant's own, or too old; `invalid_request` for a
   * server that its answer did not have, for a tool that the server is known not to have, and for an endless name of a tool.
   */
  async recordFeedback(
    { tenantId }: Pick<Caller, 'tenantId'>,
    { queryLogId, serverId, tool = '', knownTools, outcome }: Feedback,
  ): Promise<void> {
    if (!isShort(tool))
      throw new SwitchboardError('invalid_request', `tool: must have at most ${MAX_TOOL_BYTES} bytes.`);
    const answer = await this.#queryLog.answerOf(queryLogId, tenantId);
    if (!answer)
      throw new SwitchboardError(
        'query_not_found',
        `No search of yours of the last ${RETENTION_DAYS} days has this query_log_id. Send the one from the metadata of the search's answer.`,
      );
    if (!answer.includes(serverId))
      throw new SwitchboardError(
        'invalid_request',
        `server_id: this server was not in the answer of that search${answer.length === 0 ? ', which was empty' : `. It had: ${answer.join(', ')}`}.`,
      );
    if (tool !== '' && knownTools?.includes(tool) === false) throw unknownTool(tool, knownTools);
    this.#put({ queryLogId, tenantId, serverId, tool, source: 'feedback', outcome });
  }

  /** Writes what is buffered; what could not be written is kept for the next time. */
  flush(): Promise<void> {
    return this.#rows.flush();
  }

  /** Deletes outcomes older than that. Resolves to their number. */
  purge(olderThanDays = RETENTION_DAYS): Promise<number> {
    return purgeWhere(this.#db, table, lt(table.createdAt, retainedSince(this.#clock, olderThanDays)));
  }

  close(): Promise<void> {
    return this.#rows.close();
  }

  #put(outcome: Omit<Outcome, 'createdAt'>): void {
    this.#rows.put({
      ...outcome,
      tool: storable(outcome.tool),
      createdAt: new Date(this.#clock.now()),
      sinceMs: monotonicMs(this.#clock),
    });
  }

  async #writeBatch(batch: readonly Buffered[]): Promise<void> {
    // A search just made may have its row only in the log's buffer.
    await this.#queryLog.flush();
    const { proven, unknown } = await this.#checked(batch);
    const nowMs = monotonicMs(this.#clock);
    if (proven.length > 0) {
      const changes = await this.#db.transaction(async tx => {
        const earlier = await earlierVerdicts(tx, proven);
        await tx
          .insert(table)
          .values([...proven])
          .onConflictDoUpdate({
            target: [table.queryLogId, table.serverId, table.tool, table.source],
            set: { outcome: excluded('outcome'), createdAt: excluded('created_at') },
          });
        return proven
          .filter(({ source }) => source === 'feedback')
          .map(row => ({ row, change: changeOf(earlier.get(keyOf(row)), row.outcome) }));
      });
      for (const { row, change } of changes)
        if (change.helpful !== 0 || change.unhelpful !== 0)
          this.#onVerdicts(row.serverId, row.tenantId, change);
    }
    this.#rows.keep(unknown.filter(({ sinceMs }) => nowMs - sinceMs < UNKNOWN_QUERY_MS));
  }

  /** `proven` follow from a search of their tenant that had the server; of `unknown` the search is not in the database. */
  async #checked(batch: readonly Buffered[]): Promise<{ proven: Buffered[]; unknown: Buffered[] }> {
    const found = await this.#db
      .select({ id: queries.id, tenantId: queries.tenantId, serverIds: queries.serverIds })
      .from(queries)
      .where(
        and(
          inArray(queries.id, [...new Set(batch.map(({ queryLogId }) => queryLogId))]),
          gte(queries.createdAt, retainedSince(this.#clock)),
        ),
      );
    const byId = new Map(found.map(query => [query.id, query]));
    return {
      unknown: batch.filter(row => !byId.has(row.queryLogId)),
      proven: batch.filter(row => {
        const query = byId.get(row.queryLogId);
        return query?.tenantId === row.tenantId && query.serverIds.includes(row.serverId);
      }),
    };
  }
}

/** Reads the verdicts that were written before under these keys. */
async function earlierVerdicts(
  db: Pick<Database, 'select'>,
  batch: readonly Outcome[],
): Promise<Map<string, SearchOutcome>> {
  const ids = batch.filter(({ source }) => source === 'feedback').map(({ queryLogId }) => queryLogId);
  if (ids.length === 0) return new Map();
  const found = await db
    .select()
    .from(table)
    .where(and(inArray(table.queryLogId, ids), eq(table.source, 'feedback')));
  return new Map(found.map(row => [keyOf(row), row.outcome]));
}

/** Returns the change of the server's counts when a verdict takes the place of an earlier one. */
const changeOf = (earlier: SearchOutcome | undefined, now: SearchOutcome): Verdicts => ({
  helpful: Number(now === 'helpful') - Number(earlier === 'helpful'),
  unhelpful: Number(now === 'not_helpful') - Number(earlier === 'not_helpful'),
});

/** The tenant is part of it: until the claim is checked, nobody's may take the place of another's. */
const isShort = (tool: string): boolean => Buffer.byteLength(tool) <= MAX_TOOL_BYTES;

const keyOf = ({ queryLogId, tenantId, serverId, source, tool }: Omit<Outcome, 'outcome'>): string =>
  JSON.stringify([queryLogId, tenantId, serverId, source, tool]);
