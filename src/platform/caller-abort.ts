/**
 * What a call rejects with once its caller has gone away (`caller.signal` aborted). Not a SwitchboardError: nobody is
 * left to read one. The `cause` is the signal's reason.
 */
export class CallerAbortError extends Error {
  override readonly name = 'AbortError';

  constructor(reason: unknown) {
    super('The caller went away before the MCP server answered.', { cause: reason });
  }
}

/** What a signal was aborted with. */
export function abortReason(signal: AbortSignal): Error {
  const reason: unknown = signal.reason;
  return reason instanceof Error ? reason : new CallerAbortError(reason);
}
