import { once } from 'node:events';
import { createServer } from 'node:net';
import { expect, it } from 'vitest';
import { connectAdmin, linesOf } from '../../src/cli/admin-client.ts';
import { readConfig } from '../../src/config/index.ts';
import { controlSocketOf } from '../../src/platform/database/data-folder.ts';
import { temporaryFolder } from '../support/program.ts';

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

it('says that a server hangs that accepts connections and answers nothing', async () => {
  await using folder = temporaryFolder();
  const config = readConfig({ SWITCHBOARD_DATA_DIR: folder.path });
  await using silent = createServer(socket => socket.resume()).listen(controlSocketOf(folder.path));
  await once(silent, 'listening');
  await expect(connectAdmin(config, { mayCreate: false, answerMs: 100 })).rejects.toThrow(
    /^The server on \S+ has not answered for 0\.1 s: it hangs, or is still starting\./,
  );
});
