/**
 * Closes what is being opened when the stack is disposed of, after it is open. A failure to open it is left to whoever awaits the
 * returned promise, which is `opening`, and is no unhandled rejection until then.
 */
export function adoptLater<T>(
  stack: AsyncDisposableStack,
  opening: Promise<T>,
  close: (opened: T) => unknown,
): Promise<T> {
  const closing = opening.then(
    opened => () => close(opened),
    () => () => {},
  );
  stack.defer(async () => void (await (await closing)()));
  return opening;
}
