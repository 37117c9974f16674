import { describe, expect, it } from 'vitest';
import { FairSlots } from '../../src/platform/queues.ts';

const tooManyWait = () => new Error('too many wait');

const ORIGIN = 'https://a.test';

/** Takes slots and notes in which order they were got. */
function takers(slots: FairSlots) {
  const got: string[] = [];
  const releases: (() => void)[] = [];
  const failed: unknown[] = [];
  const take = (tenantId: string, { origin = ORIGIN, signal = new AbortController().signal } = {}) => {
    const taken = (async () => slots.take(origin, tenantId, signal))();
    void taken.then(
      release => {
        got.push(tenantId);
        releases.push(release);
      },
      (error: unknown) => failed.push(error),
    );
  };
  return { got, releases, failed, take };
}

/** What is resolved by now has been told. */
const settled = () => new Promise(resolve => setImmediate(resolve));

describe('slots', () => {
  it('a single tenant gets at most its share, and a later tenant still gets slots', async () => {
    const { got, take, releases } = takers(new FairSlots(8, 100, tooManyWait));
    for (let i = 0; i < 20; i++) take('a');
    for (const tenantId of ['b', 'c', 'd']) for (let i = 0; i < 20; i++) take(tenantId);
    await settled();
    const held = (tenantId: string) => got.filter(each => each === tenantId).length;
    expect(['a', 'b', 'c', 'd'].map(held)).toEqual([8, 4, 2, 1]);
    expect(releases).toHaveLength(15);
  });

  it('the waiting tenant with the fewest slots is next', async () => {
    const { got, take, releases } = takers(new FairSlots(4, 100, tooManyWait));
    for (const tenantId of ['a', 'a', 'a', 'a', 'b', 'b', 'c']) take(tenantId);
    await settled();
    for (const tenantId of ['a', 'b', 'c']) take(tenantId);
    await settled();
    expect(got.splice(0)).toEqual(['a', 'a', 'a', 'a', 'b', 'b', 'c']);
    for (let i = 0; i < 4; i++) {
      releases[i]?.();
      await settled();
    }
    expect(got).toEqual(['c', 'a', 'b']);
  });

  it('tenants that hold equally many take turns, however many calls one has queued', async () => {
    const { got, take, releases } = takers(new FairSlots(1, 100, tooManyWait));
    for (const tenantId of ['x', 'y', 'a', 'a', 'a', 'b', 'b']) take(tenantId);
    await settled();
    // Each slot given back goes to somebody at once.
    for (let i = 0; i < 7; i++) {
      releases[i]?.();
      await settled();
    }
    expect(got).toEqual(['x', 'y', 'a', 'b', 'a', 'b', 'a']);
  });

  it('calls of one tenant keep their order', async () => {
    const slots = new FairSlots(1, 100, tooManyWait);
    const order: number[] = [];
    const signal = new AbortController().signal;
    await Promise.all(
      [1, 2, 3, 4, 5].map(async number => {
        const release = await slots.take(ORIGIN, 'a', signal);
        order.push(number);
        release();
      }),
    );
    expect(order).toEqual([1, 2, 3, 4, 5]);
  });

  it('origins have nothing to do with each other', async () => {
    const { got, take } = takers(new FairSlots(1, 100, tooManyWait));
    take('a');
    take('a', { origin: 'https://b.test' });
    await settled();
    expect(got).toHaveLength(2);
  });

  it('a tenant with a full queue is refused while another may still wait', async () => {
    const { take, failed } = takers(new FairSlots(1, 4, tooManyWait));
    for (let i = 0; i < 6; i++) take('a');
    await settled();
    expect(failed).toEqual([new Error('too many wait')]);
    take('b');
    for (let i = 0; i < 2; i++) take('b');
    await settled();
    expect(failed).toHaveLength(1);
  });

  it('one that gives up while it waits leaves no trace, and gets the reason', async () => {
    const slots = new FairSlots(1, 1, tooManyWait);
    const { take, failed, releases, got } = takers(slots);
    take('a');
    const leaving = new AbortController();
    take('a', { signal: leaving.signal });
    await settled();
    const reason = new Error('gone');
    leaving.abort(reason);
    await settled();
    expect(failed).toEqual([reason]);
    take('a');
    releases[0]?.();
    await settled();
    expect(got).toEqual(['a', 'a']);
  });

  it('a slot given back twice counts once', async () => {
    const { take, releases, got } = takers(new FairSlots(1, 10, tooManyWait));
    for (const _ of [1, 2, 3]) take('a');
    await settled();
    releases[0]?.();
    releases[0]?.();
    await settled();
    expect(got).toEqual(['a', 'a']);
  });
});
