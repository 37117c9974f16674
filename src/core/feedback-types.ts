/**
 * A caller's verdict on a search result. `helpful`: it did what the search was for. `not_helpful`: it was relevant, but did not.
 * `irrelevant`: it has nothing to do with the query, which counts against the search and not against the server.
 */
export const VERDICTS = ['helpful', 'not_helpful', 'irrelevant'] as const;
export type Verdict = (typeof VERDICTS)[number];

/**
 * The end of a proxied call. `failure`: through the server's own fault. `inconclusive`: refused, or failed in a way that may be the
 * caller's doing. `listed`: only the tools were listed.
 */
export type CallOutcome = 'success' | 'failure' | 'inconclusive' | 'listed';

export type OutcomeSource = 'call' | 'feedback';
export type SearchOutcome = CallOutcome | Verdict;

/** A call whose caller says that it followed from a search. That is not checked yet. */
export interface ClaimedCall {
  readonly queryLogId: string;
  readonly tenantId: string;
  readonly serverId: string;
  /** Undefined: no single tool was called. */
  readonly tool: string | undefined;
  readonly outcome: CallOutcome;
}
