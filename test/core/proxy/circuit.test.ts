import { beforeEach, describe, expect, it } from 'vitest';
import { Circuit } from '../../../src/core/proxy/upstream/circuit.ts';

let nowMs: number;
let circuit: Circuit;

beforeEach(() => {
  nowMs = 1_000_000;
  circuit = new Circuit();
});

const enter = () => circuit.enter(nowMs);
const fail = (entered = enter()) => circuit.failed(entered, nowMs, 'upstream_timeout');
const succeed = (entered = enter()) => circuit.succeeded(entered, nowMs);
const open = () => {
  for (let i = 0; i < 5; i++) fail();
};

describe('a circuit', () => {
  it('opens at the fifth failure in a row, for 5 s, and says so once', () => {
    expect([fail(), fail(), fail(), fail()]).toEqual([false, false, false, false]);
    expect(circuit.waitMs(nowMs)).toBe(0);
    expect(fail()).toBe(true);
    expect(circuit.waitMs(nowMs)).toBe(5_000);
    expect(circuit.waitMs(nowMs + 4_999)).toBe(1);
    expect(circuit.waitMs(nowMs + 5_000)).toBe(0);
    expect(circuit.lastFailure).toBe('upstream_timeout');
  });

  it('stays closed while a success comes now and then', () => {
    for (let i = 0; i < 50; i++) {
      for (const _ of [1, 2]) fail();
      for (const _ of [1, 2, 3]) succeed();
    }
    expect(circuit.waitMs(nowMs)).toBe(0);
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
    expect(circuit.waitMs(nowMs)).toBe(1_000);
    expect(succeed(probe)).toBe(true);
    expect(circuit.waitMs(nowMs)).toBe(0);
    expect(enter().probes).toBe(false);
  });

  it('waits twice as long after each failed probe, at most a minute, and 5 s again after a success', () => {
    open();
    const waits: number[] = [];
    for (let i = 0; i < 6; i++) {
      waits.push(circuit.waitMs(nowMs));
      nowMs += circuit.waitMs(nowMs);
      expect(fail()).toBe(false);
    }
    expect(waits).toEqual([5_000, 10_000, 20_000, 40_000, 60_000, 60_000]);
    nowMs += 60_000;
    succeed();
    open();
    expect(circuit.waitMs(nowMs)).toBe(5_000);
  });

  it('a probe that leaves without a verdict frees its place for the next', () => {
    open();
    nowMs += 5_000;
    circuit.leave(enter());
    expect(circuit.waitMs(nowMs)).toBe(0);
    expect(enter().probes).toBe(true);
  });

  it('a probe that takes longer than 10 s keeps the others out no longer, and may still close it', () => {
    open();
    nowMs += 5_000;
    const slow = enter();
    nowMs += 10_000;
    expect(circuit.waitMs(nowMs)).toBe(0);
    const next = enter();
    // Only the newest probe's failure counts; the older one's place is not its to free.
    expect(fail(slow)).toBe(false);
    circuit.leave(slow);
    expect(circuit.waitMs(nowMs)).toBe(1_000);
    expect(succeed(slow)).toBe(true);
    expect(fail(next)).toBe(false);
    expect(circuit.waitMs(nowMs)).toBe(0);
  });

  it('calls that began before it opened or closed say nothing any more', () => {
    const early = Array.from({ length: 20 }, enter);
    nowMs += 1;
    open();
    expect(succeed(early[0])).toBe(false);
    expect(circuit.waitMs(nowMs)).toBe(5_000);
    nowMs += 5_000;
    succeed();
    for (const entered of early) expect(fail(entered)).toBe(false);
    expect(circuit.waitMs(nowMs)).toBe(0);
  });
});
