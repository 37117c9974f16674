import { describe, expect, it } from 'vitest';
import type { RegistrySync, SyncState } from '../../../src/core/registry/registry-sync.ts';
import { SyncSchedule } from '../../../src/core/registry/sync-schedule.ts';
import { createLog } from '../../../src/infra/log.ts';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

function scheduled(states: Record<string, SyncState>, fails: (source: string) => boolean = () => false) {
  let now = 100 * HOUR;
  const synced: string[] = [];
  const sync = {
    state: (source: string) => Promise.resolve(states[source] ?? {}),
    sync: (source: string, { full }: { full: boolean }) => {
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

  it('waits as long after a failure, which keeps no other registry waiting', async () => {
    const { after } = scheduled({}, source => source === 'a');
    expect(await after(0)).toEqual(['a full', 'b full']);
    expect(await after(MINUTE)).toEqual([]);
    expect(await after(HOUR)).toEqual(['a full', 'b changes']);
  });

  it('begins nothing more once it is stopped', async () => {
    const { after, schedule } = scheduled({});
    schedule.stop();
    expect(await after(0)).toEqual([]);
  });
});
