import { describe, expect, it } from 'vitest';
import { Channel } from '../../../src/platform/workers/channel.ts';

/** Two ends whose messages arrive as they do between processes: as JSON, a turn of the event loop later. */
function connected() {
  const ends: Channel[] = [];
  const to = (at: number) => (message: object) =>
    void setImmediate(() => ends[at]?.receive(JSON.parse(JSON.stringify(message))));
  ends.push(new Channel(to(1)), new Channel(to(0)));
  const [one, other] = ends;
  if (!one || !other) throw new Error('two ends');
  return { one, other };
}

describe('a channel', () => {
  it('answers what is asked, each to its own question', async () => {
    const { one, other } = connected();
    other.on('double', (number: number) => Promise.resolve(2 * number));
    one.on('double', (number: number) => -number);
    expect(await Promise.all([one.ask('double', 1), one.ask('double', 2), other.ask('double', 3)])).toEqual([
      2, 4, -3,
    ]);
  });

  it('gives no answer in place of one that is late, fails or has no handler', async () => {
    const { one, other } = connected();
    other.on('late', () => new Promise(() => {}));
    other.on('failing', () => Promise.reject(new Error('it failed')));
    expect(await one.ask('late', undefined, 20)).toBeUndefined();
    expect(await one.ask('failing')).toBeUndefined();
    expect(await one.ask('unknown')).toBeUndefined();
  });

  it('ends waiting and sends nothing more once it is closed', async () => {
    const sent: object[] = [];
    const channel = new Channel(message => void sent.push(message));
    const waiting = channel.ask('anything');
    channel.close();
    expect(await waiting).toBeUndefined();
    channel.tell('more');
    expect(await channel.ask('more')).toBeUndefined();
    expect(sent).toHaveLength(1);
  });

  it.each([undefined, null, 'text', 7, {}, { channel: 'answer' }, { channel: 'tell' }])(
    'ignores %j',
    message => {
      const sent: object[] = [];
      new Channel(one => void sent.push(one)).receive(message);
      expect(sent).toEqual([]);
    },
  );
});
