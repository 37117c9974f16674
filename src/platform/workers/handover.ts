import type { ChildProcess } from 'node:child_process';

interface Closable {
  close(): void;
}

/** A message of node:cluster that hands over a connection. */
interface NewConnection {
  readonly act: 'newconn';
  readonly seq: number;
}

/** A message from a worker to node:cluster or to Node itself. */
interface Reply {
  readonly accepted?: boolean;
  readonly cmd?: string;
}

/**
 * Closes connections that a worker cannot take, which node:cluster keeps open, so that their clients would wait forever instead
 * of trying again: the one that was being handed to a worker that died, and one that a worker could not receive because it has
 * no file descriptor left. Such a worker gives node:cluster no reply, and without one it would never get a connection again.
 * @param worker just forked; node:cluster hands it one connection at a time, and the next one after its reply
 * @param onLost called when a worker could not receive a connection
 */
export function closeStranded(worker: ChildProcess, onLost: () => void): void {
  // A process that could not be started has no channel.
  if (!(worker.send as unknown)) return;
  let handed: { readonly handle: Closable; readonly seq: number } | undefined;
  const send = worker.send.bind(worker) as (
    message: unknown,
    handle?: unknown,
    ...rest: unknown[]
  ) => boolean;
  worker.send = (message: unknown, handle?: unknown, ...rest: unknown[]) => {
    if (isNewConnection(message)) handed = { handle: handle as Closable, seq: message.seq };
    return send(message, handle, ...rest);
  };
  // Before node:cluster's own listener, which hands over the next connection in reply.
  worker.prependListener('internalMessage', ({ accepted, cmd }: Reply) => {
    if (accepted !== undefined) handed = undefined;
    if (cmd !== 'NODE_HANDLE_NACK' || !handed) return;
    onLost();
    // In the worker's place: node:cluster closes the connection and hands over the next one.
    worker.emit('internalMessage', { cmd: 'NODE_CLUSTER', ack: handed.seq, accepted: true });
  });
  worker.once('exit', () => handed?.handle.close());
}

const isNewConnection = (message: unknown): message is NewConnection =>
  typeof message === 'object' && message !== null && 'act' in message && message.act === 'newconn';
