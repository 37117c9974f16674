/**
 * Ends the wait of a caller that has gone away (its signal aborted). It is no error of the closed list, as nobody is left to
 * read one. The `cause` is the signal's reason.
 */
export class CallerAbortError extends Error {
  override readonly name = 'AbortError';

  constructor(reason: unknown) {
    super('The caller went away before there was an answer.', { cause: reason });
  }
}

/** Returns what a signal was aborted with, as an error. */
export function abortReason(signal: AbortSignal): Error {
  const reason: unknown = signal.reason;
  return reason instanceof Error ? reason : new CallerAbortError(reason);
}

/**
 * Resolves or rejects as the work does, unless the signal aborts first. The work itself goes on then, and its outcome is
 * ignored.
 * @throws the signal's reason
 */
export async function raceAbort<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const onAbort = () => reject(abortReason(signal));
  if (signal.aborted) onAbort();
  else signal.addEventListener('abort', onAbort, { once: true });
  try {
    return await raceLast(work, aborted);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

/**
 * Resolves or rejects as the work does, unless that takes longer than `ms`. An answer that has arrived while this process was
 * held up is in time.
 * @throws what `late` returns
 */
export async function raceDeadline<T>(work: Promise<T>, ms: number, late: () => Error): Promise<T> {
  const { promise: expired, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => setImmediate(() => reject(late())), ms);
  try {
    return await raceLast(work, expired);
  } finally {
    clearTimeout(timer);
  }
}

/** Waits for the work, for at most `ms`. Resolves to whether it has ended by then, well or not. */
export async function settledWithin(work: Promise<unknown>, ms: number): Promise<boolean> {
  try {
    await raceDeadline(
      work.catch(() => {}),
      ms,
      () => new Error('late'),
    );
    return true;
  } catch {
    return false;
  }
}

/** The end of the wait goes first: where both are there already, as with a signal that had aborted before, it wins. */
function raceLast<T>(work: Promise<T>, end: Promise<never>): Promise<T> {
  work.catch(() => {});
  return Promise.race([end, work]);
}
