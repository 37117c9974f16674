import { setTimeout as delay } from 'node:timers/promises';
import type { Server } from '../catalogue/entry.ts';

interface Pace {
  /** Hosts at once. */
  readonly atOnce: number;
  /** The pause after each server. */
  readonly pauseMs: number;
  /** So many failures in a row of one host, and the rest of it is left. */
  readonly maxFailures: number;
  /** These before the others of their host, so that others' failures do not end it before their turn. */
  readonly isFirst?: (server: Server) => boolean;
  readonly signal: AbortSignal;
}

export const hostOf = ({ remoteUrl }: Pick<Server, 'remoteUrl'>): string => new URL(remoteUrl).host;

/**
 * Does the work for each server: at most one of a host at a time, and at most `atOnce` in all. It goes round the hosts, one server of
 * each, in the order in which they come: nobody's turn is later for another's many servers.
 * @param work resolves to whether it went well @throws the signal's reason, or what the work throws, once nothing is under way any more
 */
export async function byHost(
  servers: readonly Server[],
  { atOnce, pauseMs, maxFailures, isFirst = () => false, signal }: Pace,
  work: (server: Server) => Promise<boolean>,
): Promise<void> {
  // Without those that others are at: whoever finds none left is not needed any more.
  const waiting = [...Map.groupBy(servers, hostOf).values()].map(host => ({
    host: host.toSorted((a, b) => Number(isFirst(b)) - Number(isFirst(a))),
    failures: 0,
  }));
  const failing = new AbortController();
  const ended = AbortSignal.any([signal, failing.signal]);
  const workThrough = async () => {
    for (let turn = waiting.shift(); turn; turn = waiting.shift()) {
      const [server, ...rest] = turn.host;
      if (!server) continue;
      ended.throwIfAborted();
      const failures = (await work(server)) ? 0 : turn.failures + 1;
      if (pauseMs > 0) await delay(pauseMs, undefined, { signal: ended });
      if (rest.length > 0 && failures < maxFailures) waiting.push({ host: rest, failures });
    }
  };
  const workers = Array.from({ length: atOnce }, () =>
    workThrough().catch((error: unknown) => {
      failing.abort(error);
      throw error;
    }),
  );
  await Promise.allSettled(workers);
  ended.throwIfAborted();
}
