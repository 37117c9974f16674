import { beforeEach, describe, expect, it } from 'vitest';
import { Breaker } from '../../src/platform/breaker.ts';

const LIMITS = {
  failuresInARow: 5,
  window: { ms: 30_000, minCalls: 20 },
  firstOpenMs: 5_000,
  maxOpenMs: 60_000,
  maxProbeMs: 10_000,
};
let nowMs: number;
let breaker: Breaker;

beforeEach(() => {
  nowMs = 1_000_000;
  breaker = new Breaker(LIMITS);
});

const enter = () => breaker.enter(nowMs);
const fail = (entered = enter()) => breaker.failed(entered, nowMs, 'upstream_timeout');
const succeed = (entered = enter()) => breaker.succeeded(entered, nowMs);
const open = () => {
  for (let i = 0; i < 5; i++) fail();
};

describe('a breaker', () => {
  it('opens at the fifth failure in a row, for 5 s, and says so once', () => {
    expect([fail(), fail(), fail(), fail()]).toEqual([false, false, false, false]);
    expect(breaker.waitMs(nowMs)).toBe(0);
    expect(fail()).toBe(true);
    expect(breaker.waitMs(nowMs)).toBe(5_000);
    expect(breaker.waitMs(nowMs + 4_999)).toBe(1);
    expect(breaker.waitMs(nowMs + 5_000)).toBe(0);
    expect(breaker.lastFailure).toBe('upstream_timeout');
  });

  it('stays closed while a success comes now and then', () => {
    for (let i = 0; i < 50; i++) {
      for (const _ of [1, 2]) fail();
      for (const _ of [1, 2, 3]) succeed();
    }
    expect(breaker.waitMs(nowMs)).toBe(0);
  });

  it('opens when half of at least 20 calls within 30 s fail', () => {
    for (let i = 0; i < 9; i++) {
      succeed();
      expect(fail()).toBe(false);
    }
    succeed();
    expect(fail()).toBe(true);
  });

  it('forgets what was more than 30 s ago', () => {
    for (let i = 0; i < 9; i++) {
      succeed();
      fail();
    }
    nowMs += 30_000;
    for (let i = 0; i < 9; i++) {
      succeed();
      expect(fail()).toBe(false);
    }
  });

  it('lets exactly one call through once the time is up; its success closes it', () => {
    open();
    nowMs += 5_000;
    const probe = enter();
    expect(probe.probes).toBe(true);
    expect(breaker.waitMs(nowMs)).toBe(1_000);
    expect(succeed(probe)).toBe(true);
    expect(breaker.waitMs(nowMs)).toBe(0);
    expect(enter().probes).toBe(false);
  });

  it('waits twice as long after each failed probe, at most a minute, and 5 s again after a success', () => {
    open();
    const waits: number[] = [];
    for (let i = 0; i < 6; i++) {
      waits.push(breaker.waitMs(nowMs));
      nowMs += breaker.waitMs(nowMs);
      expect(fail()).toBe(false);
    }
    expect(waits).toEqual([5_000, 10_000, 20_000, 40_000, 60_000, 60_000]);
    nowMs += 60_000;
    succeed();
    open();
    expect(breaker.waitMs(nowMs)).toBe(5_000);
  });

  it('a probe that leaves without a verdict frees its place for the next', () => {
    open();
    nowMs += 5_000;
    breaker.leave(enter());
    expect(breaker.waitMs(nowMs)).toBe(0);
    expect(enter().probes).toBe(true);
  });

  it('a probe that takes longer than 10 s keeps the others out no longer, and may still close it', () => {
    open();
    nowMs += 5_000;
    const slow = enter();
    nowMs += 10_000;
    expect(breaker.waitMs(nowMs)).toBe(0);
    const next = enter();
    // Only the newest probe's failure counts; the older one's place is not its to free.
    expect(fail(slow)).toBe(false);
    breaker.leave(slow);
    expect(breaker.waitMs(nowMs)).toBe(1_000);
    expect(succeed(slow)).toBe(true);
    expect(fail(next)).toBe(false);
    expect(breaker.waitMs(nowMs)).toBe(0);
  });

  it('calls that began before it opened or closed say nothing any more', () => {
    const early = Array.from({ length: 20 }, enter);
    nowMs += 1;
    open();
    expect(succeed(early[0])).toBe(false);
    expect(breaker.waitMs(nowMs)).toBe(5_000);
    nowMs += 5_000;
    succeed();
    for (const entered of early) expect(fail(entered)).toBe(false);
    expect(breaker.waitMs(nowMs)).toBe(0);
  });

  it('stays open for as long as the service asks, within its bound', () => {
    breaker = new Breaker({ ...LIMITS, failuresInARow: 1 });
    expect(breaker.failed(enter(), nowMs, 'busy', 30_000)).toBe(true);
    expect(breaker.waitMs(nowMs)).toBe(30_000);
    nowMs += 30_000;
    breaker.failed(enter(), nowMs, 'busy', 1e9);
    expect(breaker.waitMs(nowMs)).toBe(60_000);
  });

  it('is tripped by one failure that leaves no doubt', () => {
    expect(breaker.trip(nowMs, 'refused')).toBe(true);
    expect(breaker.trip(nowMs, 'refused')).toBe(false);
    expect(breaker.waitMs(nowMs)).toBe(5_000);
    nowMs += 5_000;
    expect(succeed()).toBe(true);
    expect(breaker.isOpen).toBe(false);
  });
});
