/**
 * A caller's feedback on a search result. `helpful`: it did what was searched for. `not_helpful`: it was relevant but did not
 * help. `irrelevant`: it is unrelated to the query, which counts against the search and not against the server.
 */
export const VERDICTS = ['helpful', 'not_helpful', 'irrelevant'] as const;
export type Verdict = (typeof VERDICTS)[number];

/**
 * The outcome of a proxied call. `failure`: caused by the server. `inconclusive`: refused, or possibly caused
 * by the caller. `listed`: only the tools were listed.
 */
export type CallOutcome = 'success' | 'failure' | 'inconclusive' | 'listed';

export type OutcomeSource = 'call' | 'feedback';
export type SearchOutcome = CallOutcome | Verdict;

/** A call that, according to its caller, resulted from a search. This is not verified yet. */
export interface ClaimedCall {
  readonly queryLogId: string;
  readonly tenantId: string;
  readonly serverId: string;
  /** Undefined: the call was not a tool call. */
  readonly tool: string | undefined;
  readonly outcome: CallOutcome;
}
