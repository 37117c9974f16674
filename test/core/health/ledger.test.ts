import { describe, expect, it } from 'vitest';
import type { Health, HealthState } from '../../../src/core/catalogue/health.ts';
import {
  after,
  isDeadForLong,
  isDoubtedForLong,
  isOwnOutage,
  Votes,
} from '../../../src/core/health/ledger.ts';

const DAY = 86_400_000;

/** What is known after visits on the days 1, 2, … */
const afterAll = (...states: HealthState[]) =>
  states.reduce<Health | undefined>(
    (before, state, at) => after(before, { state }, (at + 1) * DAY),
    undefined,
  );

describe('what is known of a server', () => {
  it('is that it is dead after the third failure in a row, of whichever kind, since then', () => {
    expect(afterAll('ok', 'unreachable', 'not_mcp')).toEqual({
      state: 'not_mcp',
      checkedAtMs: 3 * DAY,
      lastOkAtMs: DAY,
      failures: 2,
    });
    expect(afterAll('ok', 'unreachable', 'not_mcp', 'unreachable', 'unreachable')).toEqual({
      state: 'unreachable',
      checkedAtMs: 5 * DAY,
      lastOkAtMs: DAY,
      failures: 4,
      deadSinceMs: 4 * DAY,
    });
    expect(afterAll('not_mcp', 'not_mcp', 'not_mcp')).toMatchObject({ deadSinceMs: 3 * DAY });
  });

  it.each(['ok', 'needs_sign_in'] as const)('begins anew with %s', state => {
    expect(afterAll('unreachable', 'unreachable', 'unreachable', state)).toEqual({
      state,
      checkedAtMs: 4 * DAY,
      lastOkAtMs: 4 * DAY,
      failures: 0,
    });
    expect(afterAll('unreachable', 'unreachable', state, 'unreachable')).toMatchObject({ failures: 1 });
  });

  it('has the latency of the last visit alone', () => {
    const answered = after(undefined, { state: 'ok', latencyMs: 12 }, DAY);
    expect(answered.latencyMs).toBe(12);
    expect(after(answered, { state: 'unreachable' }, 2 * DAY)).not.toHaveProperty('latencyMs');
  });
});

it('30 days dead are too long, a moment less is not', () => {
  expect(isDeadForLong(DAY, 31 * DAY)).toBe(true);
  expect(isDeadForLong(DAY, 31 * DAY - 1)).toBe(false);
});

it('being dead takes no more than a week for the time between two visits, wherever the clock is', () => {
  const dead = afterAll('not_mcp', 'not_mcp', 'not_mcp')!;
  const failing = { state: 'not_mcp' } as const;
  const ahead = after(dead, failing, 403 * DAY);
  expect(ahead).toMatchObject({ failures: 4, deadSinceMs: 396 * DAY });
  // Set right again, it is dead from then on.
  expect(after(ahead, failing, 4 * DAY)).toMatchObject({ failures: 5, deadSinceMs: 4 * DAY });
  expect(after(dead, failing, 10 * DAY)).toMatchObject({ deadSinceMs: 3 * DAY });
});

describe('our own network is at fault', () => {
  const none = { alive: 0, failed: 0 };

  it('where more than half of at least ten hosts that were alive fail together', () => {
    expect(isOwnOutage({ alive: 10, failed: 6 }, { alive: 10, failed: 6 })).toBe(true);
    expect(isOwnOutage({ alive: 10, failed: 5 }, { alive: 10, failed: 5 })).toBe(false);
    expect(isOwnOutage({ alive: 9, failed: 9 }, { alive: 9, failed: 9 })).toBe(false);
  });

  it('perhaps, too, where most of those fail that had never been visited, unless half of those known answer', () => {
    expect(isOwnOutage(none, { alive: 11, failed: 6 })).toBe(true);
    expect(isOwnOutage({ alive: 3, failed: 3 }, { alive: 12, failed: 12 })).toBe(true);
    expect(isOwnOutage({ alive: 3, failed: 0 }, { alive: 12, failed: 9 })).toBe(false);
    expect(isOwnOutage({ alive: 2, failed: 1 }, { alive: 11, failed: 10 })).toBe(false);
    expect(isOwnOutage({ alive: 10, failed: 10 }, { alive: 100, failed: 10 })).toBe(false);
    expect(isOwnOutage({ alive: 10, failed: 0 }, { alive: 100, failed: 90 })).toBe(false);
  });

  it('by one vote of each host, which is that of most of its servers', () => {
    const votes = new Votes();
    for (let server = 0; server < 20; server++) votes.add('many', true);
    for (const hasFailed of [true, false]) votes.add('half', hasFailed);
    votes.add('one', false);
    expect(votes.losses).toEqual({ alive: 3, failed: 1 });
  });

  it('for three rounds and a day at most', () => {
    expect(isDoubtedForLong({ count: 3, sinceMs: 0 }, DAY)).toBe(true);
    expect(isDoubtedForLong({ count: 30, sinceMs: 0 }, DAY - 1)).toBe(false);
    expect(isDoubtedForLong({ count: 2, sinceMs: 0 }, 30 * DAY)).toBe(false);
  });
});
