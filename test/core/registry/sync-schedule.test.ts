import { describe, expect, it } from 'vitest';
import { SyncSchedule, type RegistrySync, type SyncState } from '../../../src/core/registry/sync.ts';
import { createLog } from '../../../src/platform/telemetry/log.ts';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

/** @param others what another process on the database does when this one wants to sync */
function scheduled(
  states: Record<string, SyncState>,
  { fails = () => false, others }: { fails?: (source: string) => boolean; others?: () => void } = {},
) {
  let now = 100 * HOUR;
  const synced: string[] = [];
  const sync = {
    state: (source: string) => Promise.resolve(states[source] ?? {}),
    syncUnlessSynced: (source: string, sinceMs: number, full: boolean) => {
      others?.();
      if ((states[source]?.syncedAtMs ?? -Infinity) > sinceMs) return Promise.resolve(undefined);
      synced.push(`${source} ${full ? 'full' : 'changes'}`);
      if (fails(source)) return Promise.reject(new Error('down'));
      states[source] = { ...states[source], syncedAtMs: now, ...(full ? { fullAtMs: now } : {}) };
      return Promise.resolve({});
    },
  } as unknown as RegistrySync;
  const log = createLog('silent');
  const schedule = new SyncSchedule({
    sync,
    sources: ['a', 'b'],
    everyMs: HOUR,
    clock: { now: () => now },
    log,
  });
  return {
    async after(ms: number) {
      now += ms;
      synced.length = 0;
      await schedule.syncDue();
      return [...synced];
    },
    schedule,
  };
}

describe('the schedule', () => {
  it('asks for everything at first and once a day, and for changes each time in between', async () => {
    const { after } = scheduled({});
    expect(await after(0)).toEqual(['a full', 'b full']);
    expect(await after(59 * MINUTE)).toEqual([]);
    expect(await after(MINUTE)).toEqual(['a changes', 'b changes']);
    expect(await after(23 * HOUR)).toEqual(['a full', 'b full']);
  });

  it('goes on after a restart where it was', async () => {
    const { after } = scheduled({
      a: { syncedAtMs: 100 * HOUR - MINUTE, fullAtMs: 90 * HOUR },
      b: { syncedAtMs: 90 * HOUR, fullAtMs: 90 * HOUR },
    });
    expect(await after(0)).toEqual(['b changes']);
  });

  it('waits as long after a failure, which delays no other registry', async () => {
    const { after } = scheduled({}, { fails: source => source === 'a' });
    expect(await after(0)).toEqual(['a full', 'b full']);
    expect(await after(MINUTE)).toEqual([]);
    expect(await after(HOUR)).toEqual(['a full', 'b changes']);
  });

  it('leaves a registry to the process that has just synced it, and takes over when that one is gone', async () => {
    const states: Record<string, SyncState> = { b: { syncedAtMs: 200 * HOUR } };
    let isThere = true;
    const others = () => {
      if (isThere) states['a'] = { syncedAtMs: 100 * HOUR - MINUTE, fullAtMs: 100 * HOUR - MINUTE };
    };
    const { after } = scheduled(states, { others });
    expect(await after(0)).toEqual([]);
    isThere = false;
    expect(await after(58 * MINUTE)).toEqual([]);
    expect(await after(MINUTE)).toEqual(['a changes']);
  });

  it('begins nothing more once it is stopped', async () => {
    const { after, schedule } = scheduled({});
    schedule.stop();
    expect(await after(0)).toEqual([]);
  });
});
