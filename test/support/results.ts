import { randomBytes } from 'node:crypto';
import type { Caller } from '../../src/core/access/caller.ts';
import { Results } from '../../src/core/results/results.ts';
import { Sealing } from '../../src/platform/sealing.ts';
import { systemClock, type Clock } from '../../src/platform/time.ts';
import type { Database } from '../../src/platform/database/database.ts';
import { createLog } from '../../src/platform/telemetry/log.ts';

const KEK = randomBytes(32);

/** The environment of a Switchboard that reads what `keepOn` has kept. */
export const RESULTS_ENV = { SWITCHBOARD_KEKS: `k1:${KEK.toString('base64')}` };

/** Keeps a result as another process on the database does; gives its handle. */
export async function keepOn(
  db: Database,
  { keyId, userId }: { keyId: string; userId?: string },
  text: string,
  clock: Clock = systemClock,
): Promise<string> {
  const caller: Caller = {
    tenantId: 'local',
    keyId,
    scopes: new Set(['proxy']),
    ...(userId === undefined ? {} : { subject: { userId, epoch: 1 } }),
    requestId: 'req_1',
    signal: new AbortController().signal,
  };
  const sealing = new Sealing([{ id: 'k1', key: new Uint8Array(KEK) }], clock);
  const results = new Results({ db, sealing, clock, log: createLog('silent'), shared: false });
  const kept = await results.keep(caller, text);
  if (!kept) throw new Error('not kept');
  return kept.handle;
}
