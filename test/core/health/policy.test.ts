import { describe, expect, it } from 'vitest';
import type { Health, HealthState } from '../../../src/core/catalogue/health.ts';
import type { Server } from '../../../src/core/catalogue/entry.ts';
import {
  isDeadForLong,
  isDue,
  isOwnOutage,
  nextHealth,
  type Check,
} from '../../../src/core/health/policy.ts';

const DAY = 86_400_000;
const HOUR = 3_600_000;

/** Returns the health after checks on the days 1, 2, … */
const afterAll = (...states: HealthState[]) =>
  states.reduce<Health | undefined>(
    (before, state, at) => nextHealth(before, { state }, (at + 1) * DAY),
    undefined,
  );

describe('nextHealth', () => {
  it('marks a server as dead from its third consecutive failure on, of whichever kind', () => {
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

  it.each(['ok', 'needs_sign_in'] as const)('forgets the failures with %s', state => {
    expect(afterAll('unreachable', 'unreachable', 'unreachable', state)).toEqual({
      state,
      checkedAtMs: 4 * DAY,
      lastOkAtMs: 4 * DAY,
      failures: 0,
    });
    expect(afterAll('unreachable', 'unreachable', state, 'unreachable')).toMatchObject({ failures: 1 });
  });

  it('has only the latency of the last check', () => {
    const answered = nextHealth(undefined, { state: 'ok', latencyMs: 12 }, DAY);
    expect(answered.latencyMs).toBe(12);
    expect(nextHealth(answered, { state: 'unreachable' }, 2 * DAY)).not.toHaveProperty('latencyMs');
  });
});

it('a server is dead for long after 30 days, and not a moment before', () => {
  expect(isDeadForLong(DAY, 31 * DAY)).toBe(true);
  expect(isDeadForLong(DAY, 31 * DAY - 1)).toBe(false);
});

describe('isDue', () => {
  const active = {} as Server;
  const deactivated = { unreachable: true } as Server;
  const checkedAt = (checkedAtMs: number): Health => ({ state: 'ok', checkedAtMs, failures: 0 });

  it('is true for a server that was not checked within half the interval', () => {
    expect(isDue(active, undefined, DAY, 0)).toBe(true);
    expect(isDue(active, checkedAt(0), DAY, DAY / 2)).toBe(true);
    expect(isDue(active, checkedAt(0), DAY, DAY / 2 - 1)).toBe(false);
  });

  it('is true once a day for a deactivated server, however short the interval is', () => {
    expect(isDue(deactivated, checkedAt(0), 6 * HOUR, 20 * HOUR)).toBe(false);
    expect(isDue(deactivated, checkedAt(0), 6 * HOUR, DAY)).toBe(true);
  });

  it('is true when the last check lies in the future, as the clock was ahead then', () => {
    expect(isDue(active, checkedAt(1_000 * DAY), DAY, DAY)).toBe(true);
  });
});

describe('isOwnOutage', () => {
  const checks = (count: number, letter: string, check: Omit<Check, 'host'>) =>
    Array.from({ length: count }, (_, at) => ({ host: `${letter}${at}`, ...check }));
  const stayed = (count: number) => checks(count, 'a', { wasAlive: true, isAlive: true });
  const lost = (count: number) => checks(count, 'b', { wasAlive: true, isAlive: false });
  const neverAlive = (count: number) => checks(count, 'c', { wasAlive: false, isAlive: false });
  const firstAlive = (count: number) => checks(count, 'd', { wasAlive: false, isAlive: true });

  it('is true when more than half of at least ten hosts fail that were alive', () => {
    expect(isOwnOutage([...stayed(4), ...lost(6)])).toBe(true);
    expect(isOwnOutage([...stayed(5), ...lost(5)])).toBe(false);
    expect(isOwnOutage(lost(9))).toBe(false);
  });

  it('counts hosts that were never alive only while no host was', () => {
    expect(isOwnOutage(neverAlive(10))).toBe(true);
    expect(isOwnOutage([...firstAlive(5), ...neverAlive(6)])).toBe(true);
    expect(isOwnOutage([...firstAlive(6), ...neverAlive(5)])).toBe(false);
    expect(isOwnOutage([...stayed(1), ...neverAlive(90)])).toBe(false);
  });

  it('takes all servers of a host for one, which failed when none of them is alive', () => {
    const many = Array.from({ length: 20 }, () => ({ host: 'many', wasAlive: true, isAlive: false }));
    expect(isOwnOutage(many)).toBe(false);
    const halves = checks(10, 'b', { wasAlive: true, isAlive: true });
    expect(isOwnOutage([...lost(10), ...halves])).toBe(false);
  });
});
