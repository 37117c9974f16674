import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SseParser, type SseEvent } from '../../../src/core/proxy/upstream/sse.ts';

const parse = (...chunks: (string | Buffer)[]) => {
  const parser = new SseParser();
  const events = chunks.flatMap(chunk => parser.push(Buffer.from(chunk)));
  return { events, midEvent: parser.midEvent };
};

const message = (data: string): SseEvent => ({ event: 'message', data });

describe('SseParser', () => {
  const cases: [name: string, text: string, events: SseEvent[], midEvent?: boolean][] = [
    ['LF', 'data: a\n\n', [message('a')]],
    ['CR', 'data: a\r\r', [message('a')]],
    ['CRLF', 'data: a\r\n\r\n', [message('a')]],
    ['mixed line ends', 'data: a\rdata: b\ndata: c\r\n\n', [message('a\nb\nc')]],
    ['one leading space goes, further ones stay', 'data:  a \n\n', [message(' a ')]],
    ['no space', 'data:a\n\n', [message('a')]],
    ['a field without a colon', 'data\n\n', [message('')]],
    ['empty data lines', 'data:\ndata:\n\n', [message('\n')]],
    ['comments', ':\n: hi\ndata: a\n:\n\n', [message('a')]],
    [
      'an event name, for one event only',
      'event: x\ndata: a\n\ndata: b\n\n',
      [{ event: 'x', data: 'a' }, message('b')],
    ],
    ['a name without data is no event', 'event: x\n\ndata: b\n\n', [message('b')]],
    ['id, retry and unknown fields', 'id: 1\nretry: 5\nfoo: bar\nDATA: x\ndata: a\n\n', [message('a')]],
    ['a byte order mark', '\u{feff}data: a\n\n', [message('a')]],
    ['a byte order mark further on is text', 'data: \u{feff}a\n\n', [message('\u{feff}a')]],
    ['nothing', '', []],
    ['blank lines', '\n\n\r\r\n', []],
    ['half an event', 'data: a\n\ndata: b\n', [message('a')], true],
    ['half a line', 'data: a\n\ndata: b', [message('a')], true],
  ];
  it.each(cases)('%s', (_name, text, events, midEvent = false) => {
    expect(parse(text)).toEqual({ events, midEvent });
  });

  it('refuses invalid UTF-8 in data instead of changing it', () => {
    expect(() => parse(Buffer.from([...Buffer.from('data: '), 0xc3, 0x28, 10]))).toThrow(SyntaxError);
  });

  it('an id with a NUL is ignored: the one before it stays', () => {
    const parser = new SseParser();
    parser.push(Buffer.from('id: 1\ndata: a\n\nid: 2\0\ndata: b\n\n'));
    expect(parser.lastEventId).toBe('1');
  });

  it('a line of 8 MiB in small chunks takes one pass', () => {
    const parser = new SseParser();
    const chunk = Buffer.alloc(1024, 'x');
    parser.push(Buffer.from('data: '));
    for (let i = 0; i < 8192; i++) parser.push(chunk);
    expect(parser.push(Buffer.from('\n\n'))[0]?.data.length).toBe(8192 * 1024);
  });

  it.each(['\n', '\r\n', '\r'])('8 MiB of %j are no event, and an event after them is found', lineEnd => {
    const parser = new SseParser();
    const chunk = Buffer.from(lineEnd.repeat(64 * 1024));
    for (let bytes = 0; bytes < 8 * 1024 * 1024; bytes += chunk.length)
      expect(parser.push(chunk)).toEqual([]);
    expect(parser.push(Buffer.from('data: a\n\n'))).toEqual([message('a')]);
  });

  const anyStream = fc
    .array(
      fc.oneof(
        fc.constantFrom(
          '\n',
          '\r',
          '\r\n',
          '\n\n',
          'data: ',
          'data:',
          'data',
          'dat',
          'datax',
          ': c',
          'event: e',
          'event',
          'id: 1',
          'x'.repeat(40),
          ':',
          ' ',
          '\u{feff}',
        ),
        fc.string({ unit: 'grapheme', maxLength: 8 }),
      ),
      { maxLength: 40 },
    )
    .map(parts => Buffer.from(parts.join('')));

  it('any chunking gives the same events', () => {
    fc.assert(
      fc.property(anyStream, fc.array(fc.nat({ max: 300 }), { maxLength: 30 }), (stream, cuts) => {
        const at = [0, ...cuts.filter(cut => cut <= stream.length).sort((a, b) => a - b), stream.length];
        const chunks = at.slice(1).map((end, i) => stream.subarray(at[i], end));
        expect(parse(...chunks)).toEqual(parse(stream));
        expect(parse(...Array.from(stream, byte => Buffer.from([byte])))).toEqual(parse(stream));
      }),
      { numRuns: 500 },
    );
  });

  /** HTML §9.2.6, word by word, of a stream that came whole. */
  const byTheStandard = (stream: Buffer): SseEvent[] => {
    const events: SseEvent[] = [];
    const lines = stream
      .toString()
      .replace(/^\u{feff}/u, '')
      .split(/\r\n|\r|\n/);
    let data: string[] = [];
    let event = '';
    // The last line has no end.
    for (const line of lines.slice(0, -1)) {
      const [, name, value = ''] = /^([^:]*)(?::(?: )?(.*))?$/s.exec(line) ?? [];
      if (line === '') {
        if (data.length > 0) events.push({ event: event || 'message', data: data.join('\n') });
        data = [];
        event = '';
      } else if (name === 'data') data.push(value);
      else if (name === 'event') event = value;
    }
    return events;
  };

  it('the events are those of the standard', () => {
    fc.assert(
      fc.property(anyStream, stream => {
        expect(parse(stream).events).toEqual(byTheStandard(stream));
      }),
      { numRuns: 1_000 },
    );
  });

  it('whatever is sent as an event arrives, with any line end', () => {
    const texts = fc.array(fc.string({ unit: 'grapheme' }), { maxLength: 5 });
    fc.assert(
      fc.property(texts, fc.constantFrom('\n', '\r', '\r\n'), (data, end) => {
        const json = data.map(text => JSON.stringify(text));
        expect(parse(json.map(text => `data: ${text}${end}${end}`).join('')).events).toEqual(
          json.map(message),
        );
      }),
    );
  });
});
