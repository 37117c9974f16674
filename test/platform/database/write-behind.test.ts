import { afterEach, describe, expect, it, vi } from 'vitest';
import { WriteBehind } from '../../../src/platform/database/write-behind.ts';
import { recordingLog, settableClock } from '../../core/search/support.ts';

interface Row {
  readonly key: string;
  readonly count: number;
}
const HOUR_MS = 3_600_000;

afterEach(() => void vi.useRealTimers());

function start(parts: { maxRows?: number; merge?: (a: Row, b: Row) => Row } = {}) {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  const { log, messages, text } = recordingLog();
  const clock = settableClock();
  const state = { down: false, purgeFails: false, batches: [] as Row[][], written: 0, purges: 0, ticks: 0 };
  const rows = new WriteBehind<Row>({
    clock,
    log,
    what: 'rows',
    keyOf: ({ key }) => key,
    writeBatch: batch => {
      if (state.down) return Promise.reject(new Error('the database is down'));
      state.batches.push([...batch]);
      return Promise.resolve();
    },
    onWritten: all => void (state.written += all.length),
    purge: () => {
      state.purges++;
      return state.purgeFails ? Promise.reject(new Error('no')) : Promise.resolve();
    },
    onTick: () => void state.ticks++,
    ...parts,
  });
  const put = (count: number, at = 'row') => {
    for (let key = 0; key < count; key++) rows.put({ key: `${at}${key}`, count: 1 });
  };
  return { rows, state, clock, messages, text, put, [Symbol.asyncDispose]: () => rows.close() };
}

describe('WriteBehind', () => {
  it('writes once a second, in batches of 100, and only when there is something', async () => {
    await using at = start();
    vi.advanceTimersByTime(1_000);
    at.put(250);
    vi.advanceTimersByTime(999);
    await at.rows.settled();
    expect(at.state.batches).toEqual([]);
    vi.advanceTimersByTime(1);
    await at.rows.settled();
    expect(at.state.batches.map(batch => batch.length)).toEqual([100, 100, 50]);
    expect([at.state.written, at.state.ticks, at.rows.size]).toEqual([250, 2, 0]);
  });

  it('makes one of the rows of a key: the last, or what is merged of them', async () => {
    await using last = start();
    await using sum = start({ merge: (a, b) => ({ ...b, count: a.count + b.count }) });
    for (const { rows } of [last, sum]) {
      for (const count of [1, 2, 4]) rows.put({ key: 'a', count });
      await rows.flush();
    }
    expect(last.state.batches).toEqual([[{ key: 'a', count: 4 }]]);
    expect(sum.state.batches).toEqual([[{ key: 'a', count: 7 }]]);
  });

  it('keeps what could not be written, behind what came meanwhile under the same key', async () => {
    await using last = start();
    await using sum = start({ merge: (a, b) => ({ ...b, count: a.count + b.count }) });
    for (const { rows, state } of [last, sum]) {
      state.down = true;
      rows.put({ key: 'a', count: 1 });
      const flushed = rows.flush();
      await Promise.resolve();
      rows.put({ key: 'a', count: 2 });
      await flushed;
      state.down = false;
      await rows.flush();
    }
    expect(last.state.batches).toEqual([[{ key: 'a', count: 2 }]]);
    expect(sum.state.batches).toEqual([[{ key: 'a', count: 3 }]]);
    expect(last.messages()).toEqual(['rows not written: will try again']);
  });

  it('says that rows are not taken at once, once a minute, and at once again after they were taken', async () => {
    await using at = start();
    const tryAgain = async () => {
      at.put(1);
      await at.rows.flush();
      return at.messages().length;
    };
    at.state.down = true;
    expect(await tryAgain()).toBe(1);
    at.clock.time += 59_999;
    expect(await tryAgain()).toBe(1);
    at.clock.time += 1;
    expect(await tryAgain()).toBe(2);
    at.state.down = false;
    await tryAgain();
    at.state.down = true;
    expect(await tryAgain()).toBe(3);
  });

  it('drops the oldest beyond a bound, with one warning until all is written, and says how many', async () => {
    await using at = start({ maxRows: 3 });
    at.state.down = true;
    at.put(5);
    await at.rows.flush();
    expect([at.rows.find('row1'), at.rows.find('row2')]).toEqual([undefined, { key: 'row2', count: 1 }]);
    expect(at.messages()).toEqual([expect.stringMatching(/^rows full/), 'rows not written: will try again']);
    expect(at.text()).toContain('"dropped":2');
    at.state.down = false;
    await at.rows.flush();
    at.put(4, 'more');
    expect(at.messages().filter(message => message?.startsWith('rows full'))).toHaveLength(2);
  });

  it('works after a flush while nothing is written, and goes on when the work is done', async () => {
    await using at = start();
    at.put(1);
    const seen: number[] = [];
    await Promise.all([
      at.rows.afterFlush(async () => {
        at.put(1);
        await Promise.resolve();
        seen.push(at.state.written);
      }),
      at.rows.flush(),
    ]);
    expect([seen, at.state.written]).toEqual([[1], 2]);
  });

  it('purges at the first second and once an hour; one that fails is told and tried an hour later', async () => {
    await using at = start();
    at.state.purgeFails = true;
    vi.advanceTimersByTime(2_000);
    expect(at.state.purges).toBe(1);
    await expect.poll(at.messages).toEqual(['rows not purged']);
    at.clock.time += HOUR_MS;
    vi.advanceTimersByTime(2_000);
    expect(at.state.purges).toBe(2);
  });

  it('writes what is left when it is closed, and nothing by itself after that', async () => {
    const at = start();
    at.put(1);
    await at.rows.close();
    expect(at.state.written).toBe(1);
    at.put(1);
    vi.advanceTimersByTime(5_000);
    await at.rows.settled();
    expect(at.state.written).toBe(1);
  });
});
