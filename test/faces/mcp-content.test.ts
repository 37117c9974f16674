import { CallToolResultSchema } from '@modelcontextprotocol/sdk/types.js';
import { describe, expect, it } from 'vitest';
import { toAgentResult } from '../../src/faces/mcp/content.ts';

const text = (words: string) => ({ type: 'text', text: words });
const image = (length: number) => ({ type: 'image', data: 'A'.repeat(length), mimeType: 'image/png' });
const show = (content: unknown[], more: object = {}) => toAgentResult({ content, isError: false, ...more });
const ADVICE = 'ask the tool for less at a time, or get the whole with POST /v1/mcp/tools/call (up to 8 MiB)';

describe('a result under the limit', () => {
  it.each([
    ['with text', [text('x'.repeat(90_000))]],
    ['of 100,000 characters that are two UTF-16 units each', [text('🎉'.repeat(100_000))]],
    [
      'with everything there is',
      [
        text('a'),
        image(8),
        { type: 'audio', data: 'AAAA', mimeType: 'audio/wav' },
        { type: 'resource', resource: { uri: 'a:b', text: 'x' } },
        { type: 'resource', resource: { uri: 'a:b', blob: 'AAAA' } },
        { type: 'resource_link', uri: 'a:b', name: 'b' },
      ],
    ],
    ['with nothing', []],
  ])('%s is shown as it is', (_what, content) => {
    expect(show(content)).toEqual({ content });
  });

  it.each([[{ a: 1 }], [[1]], ['x'], [null], [0], [false]])(
    'keeps structured content: %j',
    structuredContent => {
      expect(show([], { structuredContent })).toEqual({ content: [], structuredContent });
    },
  );
});

describe('a result over the limit', () => {
  it('says how much of the text is shown and how to get the rest', () => {
    const { content } = show([text('x'.repeat(1_234_567))]);
    expect(content).toEqual([
      text(`${'x'.repeat(100_000)}\n[cut: 100,000 of 1,234,567 characters shown; ${ADVICE}]`),
    ]);
  });

  it('is cut between characters, never inside one', () => {
    const [block] = show([text(`a${'🎉'.repeat(100_001)}`)]).content as { text: string }[];
    expect(block?.text.isWellFormed()).toBe(true);
    expect(block?.text).toBe(
      `a${'🎉'.repeat(99_999)}\n[cut: 100,000 of 100,002 characters shown; ${ADVICE}]`,
    );
  });

  it('shows the first blocks whole, one in part, and counts the rest', () => {
    const { content } = show([
      text('a'.repeat(60_000)),
      text('b'.repeat(60_000)),
      text('c'.repeat(10)),
      image(1_000),
    ]);
    expect(content).toEqual([
      text('a'.repeat(60_000)),
      text(`${'b'.repeat(40_000)}\n[cut: 40,000 of 60,000 characters shown; ${ADVICE}]`),
      text(expect.stringMatching(/^\[cut: 2 more blocks of 1,0\d\d characters; /) as unknown as string),
    ]);
  });

  it.each([
    ['image (image/png)', image(200_000)],
    ['audio (audio/wav)', { type: 'audio', data: 'A'.repeat(200_000), mimeType: 'audio/wav' }],
    ['resource', { type: 'resource', resource: { uri: 'a:b', blob: 'A'.repeat(200_000) } }],
    ['resource', { type: 'resource', resource: { uri: 'a:b', text: 'A'.repeat(200_000) } }],
  ])('leaves out the %s whole, and shows what fits beside it', (what, block) => {
    const { content } = show([text('before'), block, text('after')]);
    expect(content[0]).toEqual(text('before'));
    const marker = new RegExp(
      `^\\[cut: 0 of 200,0\\d\\d characters of this ${what.replaceAll(/[()]/g, '\\$&')} shown; `,
    );
    expect(content[1]).toEqual(text(expect.stringMatching(marker) as unknown as string));
    expect(content[2]).toEqual(text('after'));
  });

  it('leaves out structured content that does not fit beside the text, and says so', () => {
    const structuredContent = { rows: ['x'.repeat(99_000)] };
    const shown = show([text(JSON.stringify(structuredContent))], { structuredContent });
    expect(shown).toEqual({
      content: [
        text(JSON.stringify(structuredContent)),
        text(`[cut: 0 of 99,013 characters of structured_content shown; ${ADVICE}]`),
      ],
    });
  });

  it('shows structured content in part where it is all there is', () => {
    const [block, ...rest] = show([], { structuredContent: { rows: ['x'.repeat(200_000)] } }).content as {
      text: string;
    }[];
    expect(rest).toEqual([]);
    expect(block?.text).toMatch(
      /^\{"rows":\["x{99990}\n\[cut: 100,000 of 200,013 characters of structured_content shown; /,
    );
  });

  it.each([
    ['empty texts', Array.from({ length: 300_000 }, () => text(''))],
    ['images that do not fit', Array.from({ length: 60 }, () => image(120_000))],
    ['non-blocks', Array.from({ length: 300_000 }, () => 7)],
    ['_meta', [{ ...text('x'), _meta: { x: 'x'.repeat(1_000_000) } }]],
  ])('stays bounded however it is made up: %s', (_what, content) => {
    expect(
      JSON.stringify(show(content).content.map(block => ('text' in block ? block.text : block))).length,
    ).toBeLessThan(200_000);
    expect(show(content).content.length).toBeLessThanOrEqual(5_001);
  });
});

describe('what is no content block of the protocol', () => {
  it.each([
    ['a string', 'hello', 'hello'],
    ['a number', 7, '7'],
    ['null', null, 'null'],
    ['an array', [1], '[1]'],
    ['an object without a type', { a: 1 }, '{"a":1}'],
    ['an unknown type', { type: 'hologram', z: 1 }, '{"type":"hologram","z":1}'],
    ['a text block without text', { type: 'text' }, '{"type":"text"}'],
    ['a text block whose text is a number', { type: 'text', text: 5 }, '{"type":"text","text":5}'],
    ['a text block with bad annotations', { type: 'text', text: 'hi', annotations: { priority: 9 } }, 'hi'],
    [
      'an image that is not base64',
      { type: 'image', data: '%%', mimeType: 'image/png' },
      '{"type":"image","data":"%%","mimeType":"image/png"}',
    ],
    ['an image without a type', { type: 'image', data: 'AAAA' }, '{"type":"image","data":"AAAA"}'],
    ['a resource without contents', { type: 'resource' }, '{"type":"resource"}'],
  ])('%s becomes text', (_what, block, expected) => {
    const { content } = show([block]);
    expect(content).toEqual([text(expected)]);
    expect(CallToolResultSchema.safeParse({ content }).success).toBe(true);
  });
});
