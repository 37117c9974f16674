import type { Log } from '../../platform/telemetry/log.ts';
import type { Pause } from '../../platform/yield.ts';
import { reportSuspicious } from './tools/compare.ts';
import type { Entry, Server } from './entry.ts';
import type { Writer } from './precedence.ts';
import { LEFT_OUT } from './server-edits.ts';
import { toServer } from './store.ts';

/** What the entries are in the catalogue, by id; one that stands twice counts with its last entry. */
export async function serversOf(
  entries: readonly Entry[],
  { origin, registry, pause }: Pick<Writer, 'origin' | 'registry'> & { readonly pause: Pause },
  known: ReadonlyMap<string, Server>,
  log: Log | undefined,
): Promise<Map<string, Server>> {
  const wanted = new Map<string, Server>();
  for (const entry of entries) {
    await pause();
    const { server, leftOut } = await toServer(entry, origin, {
      known: known.get(entry.id),
      registry: registry?.marks.get(entry.id),
      pause,
    });
    for (const tool of leftOut)
      log?.warn({ serverId: server.id, tool, reason: 'invisible characters in its name' }, LEFT_OUT);
    reportSuspicious(log, server, known.get(server.id));
    wanted.set(entry.id, server);
  }
  return wanted;
}
