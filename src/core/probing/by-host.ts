import { setTimeout as delay } from 'node:timers/promises';
import type { Server } from '../catalogue/entry.ts';

interface Pace {
  /** Hosts at once. */
  readonly atOnce: number;
  /** The pause after each server of one host, and before the next host. */
  readonly pauseMs: number;
  readonly signal: AbortSignal;
}

/**
 * Does the work for each server: at most one of a host at a time, and at most `atOnce` in all. Hosts with many servers come first, so
 * that none is left to go on alone at the end.
 * @throws the signal's reason, or what the work throws, once nothing is under way any more
 */
export async function byHost(
  servers: readonly Server[],
  { atOnce, pauseMs, signal }: Pace,
  work: (server: Server) => Promise<void>,
): Promise<void> {
  const hosts = Map.groupBy(servers, ({ remoteUrl }) => new URL(remoteUrl).host);
  const waiting = [...hosts.values()].sort((a, b) => b.length - a.length).values();
  const failing = new AbortController();
  const ended = AbortSignal.any([signal, failing.signal]);
  const workThrough = async () => {
    for (const host of waiting) {
      for (const server of host) {
        ended.throwIfAborted();
        await work(server);
        if (pauseMs > 0) await delay(pauseMs, undefined, { signal: ended });
      }
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
