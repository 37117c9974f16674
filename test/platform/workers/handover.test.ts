import type { ChildProcess } from 'node:child_process';
import { EventEmitter } from 'node:events';
import { expect, it, vi } from 'vitest';
import { closeStranded } from '../../../src/platform/workers/handover.ts';

it('closes the connection that was handed over in the reply to the one before', () => {
  const [first, second] = [{ close: vi.fn() }, { close: vi.fn() }];
  const process = Object.assign(new EventEmitter(), { send: (..._sent: unknown[]) => true });
  // As node:cluster, which listens first and hands over the next connection in its listener.
  process.on('internalMessage', () => process.send({ act: 'newconn' }, second));
  closeStranded(process as unknown as ChildProcess);
  process.send({ act: 'newconn' }, first);
  process.emit('internalMessage', { accepted: true });
  process.emit('exit', null, 'SIGKILL');
  expect(first.close).not.toHaveBeenCalled();
  expect(second.close).toHaveBeenCalledOnce();
});
