import type { ChildProcess } from 'node:child_process';
import { EventEmitter } from 'node:events';
import { expect, it, vi } from 'vitest';
import { closeStranded } from '../../../src/platform/workers/handover.ts';

/** A worker's process, and node:cluster, which hands over the next connection when it hears of the one before. */
function handover(count: number) {
  const handles = Array.from({ length: count }, () => ({ close: vi.fn() }));
  const process = Object.assign(new EventEmitter(), { send: (..._sent: unknown[]) => true });
  const onLost = vi.fn();
  let seq = 0;
  const hand = () => {
    const handle = handles[seq];
    if (handle) process.send({ act: 'newconn', seq: seq++ }, handle);
  };
  // As node:cluster, which listens before anybody else can, and closes its copy of what a worker has accepted.
  process.on('internalMessage', ({ ack, accepted }: { ack?: number; accepted?: boolean }) => {
    if (ack === undefined) return;
    if (accepted) handles[ack]?.close();
    hand();
  });
  closeStranded(process as unknown as ChildProcess, onLost);
  hand();
  const reply = (ack: number) =>
    process.emit('internalMessage', { cmd: 'NODE_CLUSTER', ack, accepted: true });
  const closed = () => handles.map(handle => handle.close.mock.calls.length);
  return { process, reply, closed, onLost };
}

it('closes the connection that was handed over in the reply to the one before', () => {
  const { process, reply, closed } = handover(2);
  reply(0);
  process.emit('exit', null, 'SIGKILL');
  expect(closed()).toEqual([1, 1]);
});

it('closes a connection that the worker could not receive, and hands over the next one', () => {
  const { process, reply, closed, onLost } = handover(3);
  process.emit('internalMessage', { cmd: 'NODE_HANDLE_NACK' });
  expect(onLost).toHaveBeenCalledOnce();
  expect(closed()).toEqual([1, 0, 0]);
  reply(1);
  expect(closed()).toEqual([1, 1, 0]);
});
