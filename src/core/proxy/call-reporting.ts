import type { CallKind } from '../metrics.ts';
import type { CallOutcome, ClaimedCall } from '../feedback-types.ts';

/** What a call is for. */
export interface Target {
  readonly serverId: string;
  /** The search it follows from, as the caller says. */
  readonly queryLogId?: string | undefined;
}

/** One piece of work on a server, as it is counted. */
export interface Use<T> extends Target {
  readonly tool?: string | undefined;
  /** As what its end is counted; absent: it is not, since it stays open for as long as its client likes. */
  readonly kind?: CallKind | undefined;
  /** Whether the client speaks with the server itself. */
  readonly isPassed?: true;
  /** What a result says of the server. Absent: the work only looks at what it offers, which is no use of it. */
  readonly judge?: ((result: T) => boolean | undefined) | undefined;
}

export interface Reports {
  /**
   * How each use of a server ended that says whether the server works (`verdicts.ts`); not called for listings, refusals and
   * callers that went away. Must not throw.
   */
  readonly onOutcome?: (outcome: { serverId: string; tenantId: string; ok: boolean }) => void;
  /** Told how every call ended that names a search, unless its caller went away. Must not throw. */
  readonly onClaimedCall?: (call: ClaimedCall) => void;
}

/** Passed-through methods that are a use of the server. */
const PASSED_USES: ReadonlySet<string | undefined> = new Set([
  'tools/call',
  'resources/read',
  'prompts/get',
  'completion/complete',
]);
export const isPassedUse = (method: string | undefined): boolean => PASSED_USES.has(method);

/** REST has more: it refuses what makes no sense there, and of the rest all is a use but these. */
export const isUse = (method: string): boolean => !/^(ping|server\/discover|.*\/list)$/.test(method);

/** @param ok what the end says of the server; undefined: nothing. */
export function report<T>(
  { onOutcome, onClaimedCall }: Reports,
  tenantId: string,
  { serverId, queryLogId, tool, judge }: Use<T>,
  ok: boolean | undefined,
  otherwise: Extract<CallOutcome, 'listed' | 'inconclusive'>,
): void {
  if (judge && ok !== undefined) onOutcome?.({ serverId, tenantId, ok });
  if (queryLogId === undefined) return;
  const conclusion = ok === true ? 'success' : 'failure';
  onClaimedCall?.({
    queryLogId,
    tenantId,
    serverId,
    tool,
    outcome: ok === undefined ? otherwise : conclusion,
  });
}
