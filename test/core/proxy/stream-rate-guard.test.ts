import { beforeEach, describe, expect, it } from 'vitest';
import { StreamRateGuard } from '../../../src/core/proxy/upstream/http-sse.ts';

const KIB = 1024;
const CALL_BYTES = 1024 * KIB;

let nowMs: number;
let guard: StreamRateGuard;

beforeEach(() => {
  nowMs = 5;
  guard = new StreamRateGuard(CALL_BYTES, () => nowMs);
});

const exceeded = expect.objectContaining({ code: 'upstream_protocol' });
const overBy = (bytes: number, events: number) => expect(() => guard.took(bytes, events)).toThrow(exceeded);

describe('a stream that stays open', () => {
  it('between calls carries 64 KiB and 1,000 events in any ten seconds', () => {
    for (const _ of [1, 2, 3]) {
      guard.took(64 * KIB, 0);
      guard.took(0, 1_000);
      nowMs += 10_000;
    }
    guard.took(64 * KIB, 1_000);
    overBy(1, 0);
    overBy(0, 1);
    nowMs += 9_999;
    overBy(0, 1);
  });

  it('carries an answer of full size and 10,000 events more for each call that waits', () => {
    guard.callBegins();
    guard.callBegins();
    guard.took(2 * CALL_BYTES, 20_000);
    guard.took(64 * KIB, 1_000);
    overBy(1, 0);
  });

  it('keeps nothing of what calls have left over', () => {
    for (let i = 0; i < 100; i++) guard.callBegins();
    for (let i = 99; i >= 1; i--) guard.callEnds(i);
    guard.took(CALL_BYTES, 10_000);
    guard.callBegins();
    guard.callEnds(0);
    guard.took(64 * KIB, 1_000);
    overBy(1, 0);
  });
});
