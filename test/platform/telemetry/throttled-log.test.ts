import { beforeEach, describe, expect, it } from 'vitest';
import { createLog } from '../../../src/platform/telemetry/log.ts';
import { OutageLog, ThrottledLog } from '../../../src/platform/telemetry/throttled-log.ts';

let lines: { level: number; msg: string; tries?: number }[];
let nowMs: number;
const log = createLog('info', { write: line => void lines.push(JSON.parse(line) as (typeof lines)[number]) });
const clock = { now: () => nowMs };
const messages = () => lines.map(({ msg }) => msg);

beforeEach(() => {
  lines = [];
  nowMs = 0;
});

describe('a throttled log', () => {
  it('logs a warning of one kind at most once a minute', () => {
    const throttled = new ThrottledLog(log, clock);
    throttled.warn({ tries: 1 }, 'not written');
    throttled.warn({ tries: 2 }, 'not written');
    throttled.warn({}, 'not read');
    nowMs = 60_000;
    throttled.warn({ tries: 3 }, 'not written');
    expect(lines.map(({ msg, tries }) => [msg, tries])).toEqual([
      ['not written', 1],
      ['not read', undefined],
      ['not written', 3],
    ]);
  });

  it('treats warnings of one kind as equal, and logs immediately after a reset', () => {
    const throttled = new ThrottledLog(log, clock);
    throttled.warn({}, 'failed 3 times', 'failed');
    throttled.warn({}, 'failed 4 times', 'failed');
    throttled.reset();
    throttled.warn({}, 'failed 5 times', 'failed');
    expect(messages()).toEqual(['failed 3 times', 'failed 5 times']);
  });
});

describe('an outage', () => {
  it('is logged when it begins, changes and ends', () => {
    const outage = new OutageLog(log, 'used again');
    outage.succeeded();
    expect(outage.trouble).toBeUndefined();
    outage.failed('unavailable');
    outage.failed('unavailable');
    outage.failed('refuses', { tries: 3 }, 'refuses: check the key');
    expect(outage.trouble).toBe('refuses');
    outage.succeeded();
    outage.succeeded();
    expect(messages()).toEqual(['unavailable', 'refuses: check the key', 'used again']);
    expect(outage.trouble).toBeUndefined();
  });
});
