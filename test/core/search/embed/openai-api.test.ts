import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { EmbeddingFailure, readAnswer } from '../../../../src/core/search/embed/openai-api.ts';
import { sendable } from '../../../../src/core/search/embed/openai.ts';

const base64 = (numbers: readonly number[]) =>
  Buffer.from(Float32Array.from(numbers).buffer).toString('base64');
const list = (...embeddings: unknown[]) => ({
  data: embeddings.map((embedding, index) => ({ index, embedding })),
});

describe('readAnswer', () => {
  it('puts vectors in the order of their texts, at unit length, from numbers and from base64', () => {
    const data = [
      { index: 1, embedding: base64([0, 5, 0]) },
      { index: 0, embedding: [3, 0, 4] },
    ];
    const { vectors, tokens } = readAnswer({ data, usage: { total_tokens: 9 } }, 2, 3);
    expect(vectors[0]).toEqual(Float32Array.of(3 / 5, 0, 4 / 5));
    expect(vectors[1]).toEqual(Float32Array.of(0, 1, 0));
    expect(tokens).toBe(9);
  });

  it('takes the order of the list where there is no index, and no word of tokens as 0', () => {
    const { vectors, tokens } = readAnswer(
      { data: [{ embedding: [2, 0] }, { embedding: [0, 2] }] },
      2,
      undefined,
    );
    expect(vectors).toEqual([Float32Array.of(1, 0), Float32Array.of(0, 1)]);
    expect(tokens).toBe(0);
  });

  it.each([
    ['no object', [1]],
    ['no list', { data: 'x' }],
    ['too few vectors', list([1, 0])],
    ['too many vectors', list([1, 0], [1, 0], [1, 0])],
    ['two lengths', list([1, 0], [1, 0, 0])],
    ['another length than the model has', list([1, 0, 0], [1, 0, 0])],
    ['a component that is no number', list([1, 0], [1, '0'])],
    ['a component that is null, as JSON has NaN', list([1, 0], [1, null])],
    ['NaN in base64', list(base64([1, 0]), base64([Number.NaN, 1]))],
    ['infinity in base64', list(base64([1, 0]), base64([Infinity, 1]))],
    ['zeros', list([1, 0], [0, 0])],
    ['empty vectors', list([], [])],
    ['base64 of no whole floats', list([1, 0], 'AAAA')],
    ['an index twice', { data: [0, 0].map(index => ({ index, embedding: [1, 0] })) }],
    ['an index out of range', { data: [0, 2].map(index => ({ index, embedding: [1, 0] })) }],
    ['an index that is no number', { data: [0, '1'].map(index => ({ index, embedding: [1, 0] })) }],
    ['an item that is no object', { data: [{ index: 0, embedding: [1, 0] }, null] }],
  ])('refuses %s', (_, body) => {
    expect(() => readAnswer(body, 2, 2)).toThrow(EmbeddingFailure);
  });

  it('is never misled into anything but unit vectors by any JSON', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.jsonValue(), (first, second) => {
        const body = { data: [{ embedding: first }, { index: 1, embedding: second }] };
        try {
          for (const vector of readAnswer(body, 2, undefined).vectors)
            expect(Math.hypot(...vector)).toBeCloseTo(1, 3);
        } catch (error) {
          expect(error).toBeInstanceOf(EmbeddingFailure);
        }
      }),
    );
  });
});

describe('sendable', () => {
  it('cuts long texts, not within a character, and sends no empty one', () => {
    expect(sendable('a'.repeat(10_000))).toHaveLength(6_000);
    expect(sendable(`${'a'.repeat(9)}😀`, 10).isWellFormed()).toBe(true);
    expect(sendable('  ')).toBe('-');
    expect(sendable('weather')).toBe('weather');
  });
});
