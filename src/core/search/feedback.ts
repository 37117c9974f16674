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
import { isQueryLogId, RETENTION_DAYS, retainedSince, type QueryLog } from './query-log.ts';
import { storable } from '../../platform/sanitize.ts';

/** The maximum bytes of a tool's name. It is part of a key, and an index accepts at most 2,704 bytes. */
const MAX_TOOL_BYTES = 512;
const MAX_BUFFERED_ROWS = 10_000;
/** A search that is not in the database may still be written by another process within this time. */
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
  /** Absent: the feedback is about the whole server. */
  readonly tool?: string | undefined;
  /** The tools of the server; undefined if unknown, so that any name is accepted. */
  readonly knownTools?: readonly string[] | undefined;
  readonly outcome: Verdict;
}

type Verdicts = Pick<UseCounts, 'helpful' | 'unhelpful'>;

interface Parts {
  readonly db: Database;
  readonly clock: Clock;
  readonly log: Log;
  readonly queryLog: QueryLog;
  /** Called with all written feedback that counts for or against its server; negative if it was taken back. */
  readonly onVerdicts: (serverId: string, tenantId: string, verdicts: Verdicts) => void;
}

/**
 * Records the outcomes of search results: calls that name the search they result from, and feedback from callers. For the same
 * search, server, tool and source, the last one wins. Nothing waits for the database. Kept as long as the searches themselves.
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
   * Records the outcome of a call that names a search. Never throws and never waits: the search is verified when the row is written
   * (own tenant, recent, server among its results). Calls that fail this check, or with an overlong tool name, are ignored.
   */
  recordCall({ queryLogId, tenantId, serverId, tool = '', outcome }: ClaimedCall): void {
    if (isQueryLogId(queryLogId) && isShort(tool))
      this.#put({ queryLogId, tenantId, serverId, tool, source: 'call', outcome });
  }

  /**
   * Records feedback.
   * @throws SwitchboardError `query_not_found` for a search that is not the tenant's own, or too old; `invalid_request` for a
   * server that it did not return, for a tool that the server is known not to have, and for an overlong tool name
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
        `None of your searches in the last ${RETENTION_DAYS} days has this query_log_id. Send the query_log_id from the metadata of a search response.`,
      );
    if (!answer.includes(serverId))
      throw new SwitchboardError(
        'invalid_request',
        `server_id: that search did not return this server${answer.length === 0 ? ' or any other' : `. It returned: ${answer.join(', ')}`}.`,
      );
    if (tool !== '' && knownTools?.includes(tool) === false) throw unknownTool(tool, knownTools);
    this.#put({ queryLogId, tenantId, serverId, tool, source: 'feedback', outcome });
  }

  /** Writes the buffered rows; failed writes are retried with the next ones. */
  flush(): Promise<void> {
    return this.#rows.flush();
  }

  /** Deletes older outcomes. Resolves to their number. */
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
    // The row of a recent search may still be in the log's buffer.
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

  /** `proven`: the search belongs to the tenant and returned the server; `unknown`: the search is not in the database. */
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

/** Reads earlier feedback under these keys. */
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

/** Returns the change of the server's counts when new feedback replaces the old. */
const changeOf = (earlier: SearchOutcome | undefined, now: SearchOutcome): Verdicts => ({
  helpful: Number(now === 'helpful') - Number(earlier === 'helpful'),
  unhelpful: Number(now === 'not_helpful') - Number(earlier === 'not_helpful'),
});

const isShort = (tool: string): boolean => Buffer.byteLength(tool) <= MAX_TOOL_BYTES;

/** The tenant is part of the key: until a claim is verified, it must not replace another tenant's. */
const keyOf = ({ queryLogId, tenantId, serverId, source, tool }: Omit<Outcome, 'outcome'>): string =>
  JSON.stringify([queryLogId, tenantId, serverId, source, tool]);
