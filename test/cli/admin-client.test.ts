import { expect, it } from 'vitest';
import { linesOf } from '../../src/cli/admin-client.ts';

async function read(...chunks: (string | Buffer)[]) {
  const lines: string[] = [];
  async function* stream() {
    for (const chunk of chunks) yield await Promise.resolve(Buffer.from(chunk));
  }
  const all = linesOf(stream());
  for (;;) {
    const { done, value } = await all.next();
    if (done) return { lines, rest: value };
    lines.push(value);
  }
}

it('splits at newlines only, wherever the chunks end', async () => {
  const [first, second] = [Buffer.from('é').subarray(0, 1), Buffer.from('é').subarray(1)];
  expect(await read('a\u2028b\r', '\nc', first, second, '\n\nd')).toEqual({
    lines: ['a\u2028b\r', 'cé', ''],
    rest: 'd',
  });
  expect(await read()).toEqual({ lines: [], rest: '' });
  expect(await read('a\n')).toEqual({ lines: ['a'], rest: '' });
});
