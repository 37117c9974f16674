import cluster from 'node:cluster';
import { once } from 'node:events';
import type { Config } from '../../config/index.ts';
import { Channel } from '../../platform/workers/channel.ts';
import { MESSAGES, WorkerSeat, type Listening } from '../../platform/workers/seat.ts';
import { UsageError } from '../command.ts';
import { failureOf, startOn } from '../failure.ts';

/** The argument that makes the program a worker; its number follows. Only `workers.ts` uses it. */
export const WORKER = 'worker';

/**
 * Serves as one of several workers, until the primary says so, SIGTERM or SIGINT arrives, or the primary is gone. Returns the
 * exit code. The primary is told why a start fails, and says it.
 * @throws UsageError if no primary has started this process
 */
export async function work(config: Config, number: number): Promise<number> {
  const { worker } = cluster;
  if (!worker || !Number.isInteger(number)) throw new UsageError('only a primary process starts workers');
  const stopping = new AbortController();
  const stopped = once(stopping.signal, 'abort');
  const orphaned = new AbortController();
  const stop = () => stopping.abort();
  // Both may arrive at all processes at once: from a terminal, or from a service manager.
  process.on('SIGTERM', stop).on('SIGINT', stop);
  const primary = new Channel(message => void worker.send(message, undefined, () => {})).on(
    MESSAGES.stop,
    stop,
  );
  process.on('message', message => primary.receive(message));
  worker.once('disconnect', () => {
    // Otherwise Node ends the process at once, in the middle of calls.
    worker.exitedAfterDisconnect = true;
    primary.close();
    orphaned.abort();
    stop();
  });
  const seat = new WorkerSeat(number, primary, orphaned.signal);
  try {
    await using switchboard = await startOn(config, { signal: stopping.signal, worker: seat });
    const { url = '', servers } = switchboard;
    primary.on(MESSAGES.firstKey, () => switchboard.createFirstKey());
    primary.tell(MESSAGES.listening, { url, servers } satisfies Listening);
    await Promise.race([stopped, switchboard.indexed.then(() => stopped)]);
    return 0;
  } catch (error) {
    if (error === stopping.signal.reason) return 0;
    primary.tell(MESSAGES.failed, failureOf(error));
    return 1;
  } finally {
    worker.disconnect();
  }
}
