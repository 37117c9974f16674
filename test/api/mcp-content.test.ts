import { CallToolResultSchema } from '@modelcontextprotocol/sdk/types.js';
import { describe, expect, it } from 'vitest';
import { toAgentResult } from '../../src/api/mcp/content.ts';

const LIMIT = 44_000;
const text = (words: string) => ({ type: 'text', text: words });
const image = (length: number) => ({ type: 'image', data: 'A'.repeat(length), mimeType: 'image/png' });

/** What is shown, and what was kept of it. */
async function show(content: unknown[], more: object = {}) {
  const kept: string[] = [];
  const keep = (whole: string) => Promise.resolve(kept.push(whole) > 0 ? 'res_1' : undefined);
  const shown = await toAgentResult(
    { content, isError: false, ...more },
    { keep, reader: 'call_remote_tool' },
  );
  return { ...shown, kept };
}
const textsOf = ({ content }: { content: readonly unknown[] }) =>
  content.map(block => (block as { text?: string }).text ?? '');
const bytesOf = (shown: { content: readonly unknown[] }) => Buffer.byteLength(textsOf(shown).join(''));

describe('a result within the limit', () => {
  it.each([
    ['with text', [text('x'.repeat(LIMIT))]],
    ['in another script', [text('é'.repeat(LIMIT / 2))]],
    [
      'with everything there is',
      [
        text('a'),
        image(1_000_000),
        { type: 'audio', data: 'AAAA', mimeType: 'audio/wav' },
        { type: 'resource', resource: { uri: 'a:b', text: 'x' } },
        { type: 'resource', resource: { uri: 'a:b', blob: 'AAAA' } },
        { type: 'resource_link', uri: 'a:b', name: 'b' },
      ],
    ],
    ['with nothing', []],
  ])('%s is shown as it is', async (_what, content) => {
    expect(await show(content)).toEqual({ content, kept: [] });
  });

  it.each([[{ a: 1 }], [[1]], ['x'], [null], [0], [false]])(
    'keeps structured content: %j',
    async structuredContent => {
      expect(await show([], { structuredContent })).toEqual({ content: [], structuredContent, kept: [] });
    },
  );

  it('keeps text and structured content that are each within the limit', async () => {
    const structuredContent = { rows: ['x'.repeat(LIMIT - 100)] };
    const content = [text(JSON.stringify(structuredContent))];
    expect(await show(content, { structuredContent })).toEqual({ content, structuredContent, kept: [] });
  });
});

describe('a result over the limit', () => {
  it('ends with the call that reads on from the cut, and is kept whole', async () => {
    const words = 'x'.repeat(1_234_567);
    const shown = await show([text(words)]);
    expect(shown.content).toEqual([
      text('x'.repeat(LIMIT)),
      text(
        '[cut: 44,000 of 1,234,567 characters shown. To continue: call_remote_tool {"server_id":"switchboard","tool_name":"read_result",' +
          '"arguments":{"handle":"res_1","offset":44000}}. To search, pass "find":"the text" instead of "offset". Stored for 10 minutes.]',
      ),
    ]);
    expect(shown.cut).toEqual({ handle: 'res_1', total_characters: 1_234_567 });
    expect(shown.kept).toEqual([words]);
  });

  it('says what to do instead when it could not be kept', async () => {
    const shown = await toAgentResult(
      { content: [text('x'.repeat(50_000))], isError: false },
      { keep: () => Promise.resolve(undefined), reader: 'read_remote_tool' },
    );
    expect(shown).toEqual({
      content: [
        text('x'.repeat(LIMIT)),
        text('[cut: 44,000 of 50,000 characters shown. Ask the tool for less data.]'),
      ],
    });
  });

  it('is cut sooner when it is an error, as clients do', async () => {
    const shown = await show([text('x'.repeat(20_000))], { isError: true });
    expect(bytesOf(shown)).toBeLessThan(10_000);
    expect(textsOf(shown).at(-1)).toContain('"offset":9000');
  });

  it.each([
    ['é', 22_000],
    ['🎉', 11_000],
    ['漢', 14_666],
  ])(
    'is cut between characters, never inside one, and counted in bytes: %s',
    async (letter, shownLetters) => {
      const shown = await show([text(letter.repeat(44_001))]);
      const [first, marker] = textsOf(shown);
      expect(first).toBe(letter.repeat(shownLetters));
      expect(marker).toContain(`"offset":${shownLetters}`);
      expect(bytesOf(shown)).toBeLessThan(45_000);
    },
  );

  it('shows the first blocks whole and the next one in part, and keeps the text of all', async () => {
    const shown = await show([text('a'.repeat(40_000)), text('b'.repeat(10_000)), text('c'), image(4)]);
    expect(textsOf(shown).slice(0, 2)).toEqual(['a'.repeat(40_000), 'b'.repeat(4_000)]);
    expect(shown.content[2]).toEqual(image(4));
    expect(textsOf(shown)[3]).toMatch(/^\[cut: 44,001 of 50,023 characters shown\./);
    expect(shown.kept).toEqual([`${'a'.repeat(40_000)}\n${'b'.repeat(10_000)}\nc\n[image (image/png)]`]);
  });

  it.each([
    ['image (image/png)', image(4_000_004)],
    ['audio (audio/wav)', { type: 'audio', data: 'A'.repeat(4_000_004), mimeType: 'audio/wav' }],
    ['resource', { type: 'resource', resource: { uri: 'a:b', blob: 'A'.repeat(4_000_004) } }],
  ])('leaves out the %s, which nobody could read in parts', async (what, block) => {
    const shown = await show([text('before'), block, text('after')]);
    expect(textsOf(shown)).toEqual([
      'before',
      `[omitted: this ${what} has 4,000,004 base64 characters, too many to show]`,
      'after',
    ]);
    expect(shown.kept).toEqual([]);
  });

  it('shows a text resource in part', async () => {
    const shown = await show([{ type: 'resource', resource: { uri: 'a:b', text: 'A'.repeat(60_000) } }]);
    expect(textsOf(shown)[0]).toMatch(/^\[resource a:b\]\nA+$/);
    expect(shown.kept[0]).toHaveLength(60_000 + '[resource a:b]\n'.length);
  });

  it('shows the text in place of structured content that repeats it and does not fit', async () => {
    const rows = { rows: Array.from({ length: 5_000 }, (_, at) => `row ${at}`) };
    const shown = await show([text(JSON.stringify(rows).slice(0, 10))], { structuredContent: rows });
    expect(shown).not.toHaveProperty('structuredContent');
    expect(shown.kept[0]).toContain('"row 4999"');
    const repeated = await show([text(JSON.stringify(rows, null, 1))], { structuredContent: rows });
    expect(repeated.kept[0]).toBe(JSON.stringify(rows, null, 1));
  });

  it.each([
    ['as text', (words: string) => [text(words)], (words: string) => ({ result: words })],
    [
      'a block an item',
      (words: string) => [text(words), text('7')],
      (words: string) => ({ result: [words, 7] }),
    ],
  ])('recognises a value that SDKs wrap as a repetition: %s', async (_what, blocksOf, structuredOf) => {
    const near = 'wörter '.repeat(5_400);
    const quoted = (words: string) => (blocksOf(words).length > 1 ? JSON.stringify(words) : words);
    const below = await show(blocksOf(quoted(near)), { structuredContent: structuredOf(near) });
    expect(below.kept).toEqual([]);
    const long = 'wörter '.repeat(20_000);
    const above = await show(blocksOf(quoted(long)), { structuredContent: structuredOf(long) });
    expect(above.kept).toEqual([textsOf({ content: blocksOf(quoted(long)) }).join('\n')]);
  });

  it('counts its notes on blocks that are left out', async () => {
    const shown = await show([image(4_000_000), ...Array.from({ length: 2_000 }, () => image(400))]);
    expect(bytesOf(shown)).toBeLessThan(45_000);
    expect(textsOf(shown).at(-1)).toMatch(/^\[cut: /);
  });

  it('shows images after a cut text, and does not mention images that are left out there', async () => {
    const words = text('x'.repeat(LIMIT + 10));
    const shown = await show([words, image(1_000), ...Array.from({ length: 50 }, () => image(4_000_000))]);
    expect(shown.content.map(({ type }) => type)).toEqual(['text', 'image', 'text']);
    expect(shown.kept[0]?.endsWith('[image (image/png)]')).toBe(true);
  });

  it('shows part of structured content that comes without text', async () => {
    const shown = await show([], { structuredContent: { rows: ['x'.repeat(200_000)] } });
    expect(textsOf(shown)[0]).toMatch(/^\{"rows":\["x{43990}$/);
    expect(textsOf(shown)[1]).toContain('"offset":44000');
  });

  it('passes on structured content that fits even if the text is cut', async () => {
    const structuredContent = { rows: 7 };
    const shown = await show([text('x'.repeat(50_000))], { structuredContent });
    expect(shown.structuredContent).toEqual(structuredContent);
    expect(textsOf(shown)[1]).toContain('44,000 of 50,000');
  });

  it.each([
    ['empty texts', Array.from({ length: 300_000 }, () => text(''))],
    ['non-blocks', Array.from({ length: 300_000 }, () => 7)],
    ['_meta', [{ ...text('x'), _meta: { x: 'x'.repeat(1_000_000) } }]],
    ['images without end', Array.from({ length: 3_000 }, () => image(4))],
  ])('stays bounded however it is made up: %s', async (_what, content) => {
    const shown = await show(content);
    expect(JSON.stringify(shown.content).length).toBeLessThan(200_000);
    expect(shown.content.length).toBeLessThanOrEqual(2_201);
  });
});

describe('what a hostile server sends', () => {
  it('millions of blocks are read only up to a limit', async () => {
    const shown = await show(Array.from({ length: 4_000_000 }, () => 0));
    expect(shown.content.length).toBeLessThanOrEqual(2_201);
    expect(shown.kept[0]).toMatch(/\n\[3,950,000 more blocks, which were not stored\]$/);
  });

  it.each([
    ['of bad remarks', { ...text('x'), annotations: { audience: Array.from({ length: 1_500 }, () => 5) } }],
    [
      'of bad links',
      { type: 'resource_link', uri: 'a:b', name: 'b', icons: Array.from({ length: 1_500 }, () => 0) },
    ],
  ])('blocks %s are not validated value by value', async (_what, block) => {
    const shown = await show(Array.from({ length: 2_199 }, () => block));
    expect(bytesOf(shown)).toBeLessThan(45_000);
  });

  it('images beyond the limit of blocks are kept as one word each', async () => {
    const shown = await show(Array.from({ length: 2_300 }, () => image(1_000)));
    expect(shown.kept[0]).not.toContain('AAAA');
  });

  it.each([
    ['a number as blob', { uri: 'a:b', text: 'A'.repeat(50_000), blob: 5 }],
    ['a blob beside its text', { uri: 'a:b', text: 'A'.repeat(50_000), blob: 'AAAA' }],
  ])('%s loses no text', async (_what, resource) => {
    const shown = await show([{ type: 'resource', resource }]);
    expect(textsOf(shown)[0]).toContain('A'.repeat(40_000));
    expect(textsOf(shown).at(-1)).toMatch(/^\[cut: /);
  });

  it('long annotations of a block take no room from its text', async () => {
    const remarks = { _meta: { x: 'x'.repeat(50_000) }, annotations: { audience: ['user'] } };
    const content = [{ ...text('hi'), ...remarks }, { ...image(4), ...remarks }, text('important')];
    expect((await show(content)).content).toEqual([text('hi'), image(4), text('important')]);
  });

  it('endless types and numbers of images stay bounded', async () => {
    const long = { ...image(4), mimeType: `image/${'x'.repeat(50_000)}` };
    const shown = await show([long, ...Array.from({ length: 300 }, () => image(4))]);
    expect(shown.content.filter(({ type }) => type === 'image')).toHaveLength(100);
    expect(bytesOf(shown)).toBeLessThan(45_000);
  });
});

describe('a block that is not in the protocol', () => {
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
  ])('%s becomes text', async (_what, block, expected) => {
    const { content } = await show([block]);
    expect(content).toEqual([text(expected)]);
    expect(CallToolResultSchema.safeParse({ content }).success).toBe(true);
  });
});
