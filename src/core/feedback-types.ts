/**
 * What a caller says of a search result. `helpful`: it did what the search was for. `not_helpful`: it was to the point and did
 * not. `irrelevant`: it has nothing to do with what was searched for, which says something about the search and nothing against the
 * server.
 */
export const VERDICTS = ['helpful', 'not_helpful', 'irrelevant'] as const;
export type Verdict = (typeof VERDICTS)[number];

/**
 * How a proxied call ended. `failure`: through the server's own fault. `inconclusive`: refused, or failed in a way that may be the
 * caller's doing. `listed`: its tools were only looked at.
 */
export type CallOutcome = 'success' | 'failure' | 'inconclusive' | 'listed';

export type OutcomeSource = 'call' | 'feedback';
export type SearchOutcome = CallOutcome | Verdict;

/** A call that was said to follow from a search. Whether it does is not checked yet. */
export interface ClaimedCall {
  readonly queryLogId: string;
  readonly tenantId: string;
  readonly serverId: string;
  /** Absent: no one tool was called. */
  readonly tool: string | undefined;
  readonly outcome: CallOutcome;
}
