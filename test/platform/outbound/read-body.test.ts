import { Readable } from 'node:stream';
import { expect, it } from 'vitest';
import { boundedChunks, readBody } from '../../../src/platform/outbound/fetch.ts';

const tooLarge = () => new Error('too large');

it('reads a stream of just as many bytes as are allowed', async () => {
  const stream = Readable.from([Buffer.from('abc'), Buffer.from('de')]);
  expect((await readBody(stream, 5, tooLarge)).toString()).toBe('abcde');
});

it('stops at the first byte beyond the limit, and destroys the stream', async () => {
  let given = 0;
  const stream = Readable.from(
    (function* () {
      for (; given < 100; given++) yield Buffer.alloc(10);
    })(),
    { highWaterMark: 1 },
  );
  await expect(readBody(stream, 25, tooLarge)).rejects.toThrow('too large');
  expect(given).toBeLessThan(10);
  expect(stream.destroyed).toBe(true);
});

it('fails with the stream', async () => {
  const stream = new Readable({ read: () => void stream.destroy(new Error('cut short')) });
  await expect(readBody(stream, 5, tooLarge)).rejects.toThrow('cut short');
});

it('passes chunks on until the limit', async () => {
  const chunks: Uint8Array[] = [];
  const stream = Readable.from([Buffer.alloc(3), Buffer.alloc(3)]);
  await expect(async () => {
    for await (const chunk of boundedChunks(stream, 5, tooLarge)) chunks.push(chunk);
  }).rejects.toThrow('too large');
  expect(chunks).toHaveLength(1);
});
