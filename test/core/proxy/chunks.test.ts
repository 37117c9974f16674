import { describe, expect, it } from 'vitest';
import { Chunks } from '../../../src/core/proxy/upstream/chunks.ts';

const TEXT = Array.from({ length: 40_000 }, (_, at) => String(at)).join(',');

/** Chunks of the text, of these sizes again and again. */
function chunksOf(sizes: readonly number[]): Chunks {
  const chunks = new Chunks();
  for (let at = 0, turn = 0; at < TEXT.length; turn++) {
    const size = sizes[turn % sizes.length] ?? 1;
    chunks.append(Buffer.from(TEXT.slice(at, at + size)));
    at += size;
  }
  return chunks;
}

describe('chunks', () => {
  it.each([[[1]], [[4_096]], [[65_536]], [[1, 4_096]], [[4_095, 5, 70_000, 3]]])(
    'of %j bytes have the same slices as the whole',
    sizes => {
      const chunks = chunksOf(sizes);
      expect(chunks.length).toBe(TEXT.length);
      for (const [start, end] of [
        [0, TEXT.length],
        [0, 1],
        [4_095, 4_097],
        [65_535, 140_000],
        [TEXT.length - 1, TEXT.length],
        [7, 7],
      ] as const)
        expect(Buffer.concat(chunks.slice(start, end)).toString()).toBe(TEXT.slice(start, end));
    },
  );

  it('that are short are joined, also between slices', () => {
    const chunks = new Chunks();
    for (const part of ['a', 'b', 'c']) chunks.append(Buffer.from(part));
    expect(chunks.slice(0, 2).map(String)).toEqual(['ab']);
    chunks.append(Buffer.from('d'));
    expect(chunks.slice(0, 4).map(String)).toEqual(['abc', 'd']);
    expect(chunksOf([1]).slice(0, TEXT.length).length).toBeLessThan(10);
  });
});
