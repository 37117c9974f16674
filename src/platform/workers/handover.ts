import type { ChildProcess } from 'node:child_process';

interface Closable {
  close(): void;
}

/**
 * Closes the connection that a primary was handing to a worker that died. node:cluster forgets it but keeps it open, so that its
 * client would wait forever instead of trying again.
 * @param worker just forked; node:cluster hands it one connection at a time, and the next one after its reply
 */
export function closeStranded(worker: ChildProcess): void {
  let handed: Closable | undefined;
  const send = worker.send.bind(worker) as (
    message: unknown,
    handle?: unknown,
    ...rest: unknown[]
  ) => boolean;
  worker.send = (message: unknown, handle?: unknown, ...rest: unknown[]) => {
    if (isNewConnection(message)) handed = handle as Closable;
    return send(message, handle, ...rest);
  };
  // Before node:cluster's own listener, which hands over the next connection in reply.
  worker.prependListener('internalMessage', (reply: object) => {
    if ('accepted' in reply) handed = undefined;
  });
  worker.once('exit', () => handed?.close());
}

const isNewConnection = (message: unknown): boolean =>
  typeof message === 'object' && message !== null && 'act' in message && message.act === 'newconn';
