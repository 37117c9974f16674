import { beforeEach, describe, expect, it } from 'vitest';
import { StreamAllowance } from '../../../src/core/proxy/stream-rate-guard.ts';

const KIB = 1024;
const CALL_BYTES = 1024 * KIB;

let nowMs: number;
let allowance: StreamAllowance;

beforeEach(() => {
  nowMs = 5;
  allowance = new StreamAllowance(CALL_BYTES, () => nowMs);
});

const exceeded = expect.objectContaining({ code: 'upstream_protocol' });
const overBy = (bytes: number, events: number) =>
  expect(() => allowance.took(bytes, events)).toThrow(exceeded);

describe('a stream that stays open', () => {
  it('between calls carries 64 KiB and 1,000 events in any ten seconds', () => {
    for (const _ of [1, 2, 3]) {
      allowance.took(64 * KIB, 0);
      allowance.took(0, 1_000);
      nowMs += 10_000;
    }
    allowance.took(64 * KIB, 1_000);
    overBy(1, 0);
    overBy(0, 1);
    nowMs += 9_999;
    overBy(0, 1);
  });

  it('carries an answer of full size and 10,000 events more for each call that waits', () => {
    allowance.callBegins();
    allowance.callBegins();
    allowance.took(2 * CALL_BYTES, 20_000);
    allowance.took(64 * KIB, 1_000);
    overBy(1, 0);
  });

  it('keeps nothing of what calls have left over', () => {
    for (let i = 0; i < 100; i++) allowance.callBegins();
    for (let i = 99; i >= 1; i--) allowance.callEnds(i);
    allowance.took(CALL_BYTES, 10_000);
    allowance.callBegins();
    allowance.callEnds(0);
    allowance.took(64 * KIB, 1_000);
    overBy(1, 0);
  });
});
