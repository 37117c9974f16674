import { describe, expect, it } from 'vitest';
import { ProbeSchedule } from '../../../src/core/health/probe-schedule.ts';
import type { ProbeReport } from '../../../src/core/health/rounds.ts';
import { createLog } from '../../../src/platform/telemetry/log.ts';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const EVERY = 24 * HOUR;
/** How long a round takes. */
const ROUND = 2 * HOUR;

/** @param round what becomes of one: done, in doubt, failed, or left to another process */
function scheduled(
  probedAtMs: number | undefined,
  round: () => 'done' | 'doubted' | 'failed' | 'left' = () => 'done',
) {
  let now = 100 * HOUR;
  let aheadMs = 0;
  const state = { probedAtMs };
  let rounds = 0;
  const probing = {
    probedAtMs: () => Promise.resolve(state.probedAtMs),
    probeUnlessProbed: (sinceMs: number, everyMs: number) => {
      expect([sinceMs, everyMs]).toEqual([now + aheadMs - EVERY / 2, EVERY]);
      rounds++;
      now += ROUND;
      const how = round();
      if (how === 'failed') return Promise.reject(new Error('down'));
      if (how === 'left') return Promise.resolve(undefined);
      if (how === 'doubted') return Promise.resolve({ doubted: 'outage' } as ProbeReport);
      state.probedAtMs = now - ROUND;
      return Promise.resolve({} as ProbeReport);
    },
  };
  const schedule = new ProbeSchedule({
    probing,
    everyMs: EVERY,
    clock: { now: () => now + aheadMs, monotonic: () => now },
    log: createLog('silent'),
  });
  return {
    schedule,
    state,
    setAhead: (ms: number) => void (aheadMs = ms),
    /** How many rounds there are then. */
    async after(ms: number) {
      now += ms;
      rounds = 0;
      await schedule.probeIfDue();
      return rounds;
    },
  };
}

describe('the schedule of probing', () => {
  it('has a round at first, and each time the time has passed', async () => {
    const { after } = scheduled(undefined);
    expect(await after(0)).toBe(1);
    expect(await after(EVERY - ROUND - MINUTE)).toBe(0);
    expect(await after(MINUTE)).toBe(1);
  });

  it('goes on after a restart where it was', async () => {
    const { after } = scheduled(100 * HOUR - EVERY + MINUTE);
    expect(await after(0)).toBe(0);
    expect(await after(MINUTE)).toBe(1);
  });

  it('is not kept from its rounds by a clock that was ahead when one failed', async () => {
    const { after, setAhead } = scheduled(undefined, () => 'failed');
    setAhead(30_000 * HOUR);
    expect(await after(0)).toBe(1);
    setAhead(0);
    expect(await after(HOUR - MINUTE)).toBe(0);
    expect(await after(MINUTE)).toBe(1);
  });

  it.each(['failed', 'doubted'] as const)(
    'tries again an hour after the end of a round that %s',
    async how => {
      const { after } = scheduled(undefined, () => how);
      expect(await after(0)).toBe(1);
      expect(await after(HOUR - MINUTE)).toBe(0);
      expect(await after(MINUTE)).toBe(1);
    },
  );

  it('looks again at once where another process had its turn', async () => {
    const { after, state } = scheduled(undefined, () => 'left');
    expect(await after(0)).toBe(1);
    expect(await after(MINUTE)).toBe(1);
    state.probedAtMs = 100 * HOUR + ROUND;
    expect(await after(MINUTE)).toBe(0);
  });

  it('begins nothing more once it is stopped', async () => {
    const { after, schedule } = scheduled(undefined);
    schedule.stop();
    expect(await after(0)).toBe(0);
  });
});
