import { isUtf8 } from 'node:buffer';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  JsonScan,
  JsonScanError,
  scanJson,
  type FoundJson,
  type JsonScanOptions,
} from '../../../src/platform/json/scan.ts';

const FIND = { id: {}, error: { code: {} }, result: { content: {}, isError: {} }, __proto__: {} };
/** In a literal, `__proto__` would be the prototype. */
Object.defineProperty(FIND, '__proto__', { value: {}, enumerable: true });
const OPTIONS: JsonScanOptions = { find: FIND, maxDepth: 1_000 };

/** Scans the text in pieces that end at these offsets. */
function scanPieces(bytes: Buffer, ends: readonly number[], options = OPTIONS): FoundJson {
  const scan = new JsonScan(options);
  let start = 0;
  for (const end of [...ends, bytes.length]) {
    // A chunk of its own, which is overwritten after use, as a reader with one buffer does.
    const chunk = Buffer.from(bytes.subarray(start, end));
    scan.push(chunk);
    chunk.fill(0);
    start = end;
  }
  return scan.end();
}

const attempt = <T>(action: () => T): T | undefined => {
  try {
    return action();
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
};

/** Returns what JSON.parse finds. Invalid UTF-8, which `toString` would replace, is invalid. */
const parse = (bytes: Buffer): { value: unknown } | undefined =>
  isUtf8(bytes) ? attempt(() => ({ value: JSON.parse(bytes.toString()) as unknown })) : undefined;

const own = (value: unknown, name: string): unknown =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && Object.hasOwn(value, name)
    ? (value as Record<string, unknown>)[name]
    : undefined;

/** Expects that each found range has the value that JSON.parse finds, and that nothing wanted is missing. */
function expectSame(bytes: Buffer, found: FoundJson, value: unknown, wanted: object): void {
  expect(JSON.parse(bytes.subarray(found.start, found.end).toString())).toEqual(value);
  expect(bytes.subarray(found.start, found.end).toString()).toMatch(/^[^ \t\r\n](?:[^]*[^ \t\r\n])?$/);
  const names = Object.keys(wanted).filter(name => own(value, name) !== undefined);
  expect([...found.members.keys()].toSorted()).toEqual(names.toSorted());
  for (const [name, member] of found.members)
    expectSame(bytes, member, own(value, name), own(wanted, name) as object);
}

/** Expects the same verdict and the same values as from JSON.parse, whole and in pieces. */
function expectLikeParse(bytes: Buffer, ends: readonly number[] = []): void {
  const parsed = parse(bytes);
  const found = attempt(() => scanPieces(bytes, ends));
  expect(found !== undefined).toBe(parsed !== undefined);
  if (found && parsed) expectSame(bytes, found, parsed.value, FIND);
}

const VALID = [
  '0',
  ' -0.0e-0\t\r\n',
  '12E+3',
  '1e400',
  '9'.repeat(400),
  'true',
  '[]',
  '{}',
  '""',
  '[[],{},[{}],[[]]]',
  String.raw`{"a":"\"\\\/\b\f\n\r\t\u0041\uD83D\uDE00\ud800\uDFFF"}`,
  '{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"é😀\u2028\u007f"}],"isError":false}}',
  '{"id":1,"id":"2","result":null,"result":{"isError":true,"isError":[false]}}',
  '{"result":{"content":1},"result":{"isError":0}}',
  '{"result":[{"content":1}],"error":{"result":{"content":2},"code":-1.5}}',
  String.raw`{"__proto__":{"id":1},"\u0069\u0064":3,"r\u0065sult":{"is\u0045rror":true}}`,
  '{"constructor":1,"toString":2,"hasOwnProperty":3}',
  ' { "id" : 1 , "result" : { "isError" : [ true , null ] } } ',
  `{"${'long'.repeat(200)}":1,"id":2}`,
  `["${'x'.repeat(1_000)}\\n${'y'.repeat(300)}"]`,
];

const INVALID = [
  '',
  ' ',
  '{',
  ']',
  '[1,]',
  '[,1]',
  '{"a":1,}',
  '{"a" 1}',
  '{a:1}',
  '{"a":}',
  "{'a':1}",
  '[1}',
  '{"a":1]',
  '1 2',
  '{}{}',
  '01',
  '-',
  '+1',
  '1.',
  '.5',
  '1e',
  '1e+',
  '0x1',
  '-01',
  'NaN',
  'Infinity',
  'tru',
  'truee',
  'True',
  'nul',
  '"',
  '"\\"',
  String.raw`"\x41"`,
  String.raw`"\u12G4"`,
  String.raw`"\u123"`,
  '"a\nb"',
  '"\0"',
  `"${'x'.repeat(1_000)}\u001f"`,
  '\u{feff}{}',
  '\u00a01',
  '// c\n1',
  '[1 2]',
  '{"a":1 "b":2}',
  '{"a":1,"b"}',
  '[:]',
  ',',
];

describe('the verdict of JSON.parse', () => {
  it.each([...VALID, ...INVALID])('%j, split anywhere', text => {
    const bytes = Buffer.from(text);
    expect(parse(bytes) !== undefined).toBe(VALID.includes(text));
    expectLikeParse(bytes);
    for (let at = 0; at <= bytes.length; at++) expectLikeParse(bytes, [at]);
    expectLikeParse(
      bytes,
      Array.from(bytes, (_byte, at) => at),
    );
  });

  it('on every byte in every place of a document', () => {
    const document = Buffer.from('{"id":-1.5e3,"a":["\\n\\u00e9é",true,null]}');
    for (let at = 0; at < document.length; at++) {
      for (let byte = 0; byte < 256; byte++) {
        const bytes = Buffer.from(document);
        bytes[at] = byte;
        const isValid = parse(bytes) !== undefined;
        if ((attempt(() => scanJson(bytes)) !== undefined) !== isValid)
          expect(`byte ${byte} at ${at}`).toBe(isValid ? 'valid' : 'invalid');
      }
    }
  });

  it('on documents with random changes, in random pieces', () => {
    const name = fc.constantFrom(
      'id',
      'result',
      'error',
      'code',
      'content',
      'isError',
      '__proto__',
      'é"\\\n',
    );
    const { json } = fc.letrec(tie => ({
      json: fc.oneof(
        { depthSize: 'medium' },
        fc.oneof(fc.string({ unit: 'binary' }), fc.double(), fc.boolean(), fc.constant(null), fc.string()),
        fc.array(tie('json')),
        fc.array(fc.tuple(name, tie('json'))),
      ),
    }));
    /** Writes arrays of pairs as objects, with names more than once and escapes that need not be. */
    const write = (value: unknown, space: string): string => {
      if (!Array.isArray(value)) return JSON.stringify(value);
      const pairs = value.filter(
        (one): one is [string, unknown] => Array.isArray(one) && typeof one[0] === 'string',
      );
      if (pairs.length < value.length || value.length === 0)
        return `[${space}${value.map(one => write(one, space)).join(`${space},`)}]`;
      const members = pairs.map(([key, one]) => `${escaped(key)}${space}:${write(one, space)}${space}`);
      return `{${members.join(`,${space}`)}}${space}`;
    };
    const escaped = (key: string) =>
      key === 'code' ? String.raw`"\u0063ode"` : JSON.stringify(key).replaceAll('/', String.raw`\/`);
    const change = fc.record({
      at: fc.nat(),
      remove: fc.nat(3),
      insert: fc.oneof(
        fc.constantFrom(
          '',
          '"',
          '\\',
          '{',
          '}',
          '[',
          ']',
          ',',
          ':',
          '0',
          '-',
          'e',
          '.',
          '\\u',
          ' ',
          '\n',
          'true',
        ),
        fc.uint8Array({ maxLength: 4 }).map(bytes => Buffer.from(bytes).toString('latin1')),
      ),
    });
    fc.assert(
      fc.property(
        json,
        fc.constantFrom('', ' ', '\r\n\t'),
        fc.array(change, { maxLength: 2 }),
        fc.array(fc.nat(), { maxLength: 5 }),
        (value, space, changes, cuts) => {
          let bytes = Buffer.from(write(value, space));
          for (const { at, remove, insert } of changes) {
            const start = at % (bytes.length + 1);
            const rest = bytes.subarray(start + remove);
            bytes = Buffer.concat([bytes.subarray(0, start), Buffer.from(insert, 'latin1'), rest]);
          }
          expectLikeParse(
            bytes,
            cuts.map(cut => cut % (bytes.length + 1)).toSorted((a, b) => a - b),
          );
        },
      ),
      { numRuns: 1_000, seed: 17 },
    );
  });

  it('on a byte that ends a long string, wherever the chunk lies in memory', () => {
    for (const byte of [0x00, 0x1f, 0x20, 0x22, 0x5c, 0x7f, 0x80, 0xff]) {
      for (let skew = 0; skew < 4; skew++) {
        for (let at = 270; at < 290; at++) {
          const bytes = Buffer.from(new ArrayBuffer(310), skew, 303).fill('x');
          bytes.write('"');
          bytes.write('"', 302);
          bytes[at] = byte;
          expectLikeParse(bytes);
        }
      }
    }
  });
});

describe('invalid UTF-8', () => {
  it.each([
    ['a continuation byte alone', [0x80]],
    ['two bytes for ASCII', [0xc1, 0x81]],
    ['three bytes for two', [0xe0, 0x80, 0x80]],
    ['a surrogate', [0xed, 0xa0, 0x80]],
    ['beyond Unicode', [0xf4, 0x90, 0x80, 0x80]],
    ['a character without its end', [0xf0, 0x9f, 0x98]],
    ['a character cut by ASCII', [0xe2, 0x82, 0x41]],
    ['five bytes', [0xf8, 0x88, 0x80, 0x80, 0x80]],
  ])('is refused: %s', (_name, bad) => {
    const bytes = Buffer.from([0x22, ...bad, 0x22]);
    expect(() => scanPieces(bytes, [])).toThrow(expect.objectContaining({ reason: 'encoding' }));
    for (let at = 0; at <= bytes.length; at++) expect(() => scanPieces(bytes, [at])).toThrow(JsonScanError);
    expect(() => scanPieces(bytes, [...bytes.keys()])).toThrow(JsonScanError);
  });
});

it('finds the last of members with one name, and says that there were more', () => {
  const bytes = Buffer.from('{"result":{"isError":false,"isError":true},"id":1,"id":2}');
  const { members } = scanJson(bytes, OPTIONS);
  const isError = members.get('result')?.members.get('isError');
  expect(bytes.subarray(isError?.start, isError?.end).toString()).toBe('true');
  expect(isError?.repeated).toBe(true);
  expect(members.get('id')?.repeated).toBe(true);
  expect(members.get('result')?.repeated).toBe(false);
});

it('counts offsets over all chunks and a byte order mark, which it skips if allowed', () => {
  const bytes = Buffer.from('\u{feff} {"id":12}');
  for (let at = 0; at <= bytes.length; at++) {
    const found = scanPieces(bytes, [at], { find: { id: {} }, allowBom: true });
    expect(found).toMatchObject({ start: 4, end: 13 });
    expect(found.members.get('id')).toMatchObject({ start: 10, end: 12 });
  }
  expect(() => scanJson(Buffer.from('\u{feff}\u{feff}1'), { allowBom: true })).toThrow(JsonScanError);
  expect(() => scanJson(Buffer.from('\u{feff}'), { allowBom: true })).toThrow(JsonScanError);
  expect(scanJson(Buffer.from(' 1'), { allowBom: true })).toMatchObject({ start: 1, end: 2 });
});

it.each([
  ['arrays', '[', ']'],
  ['objects', '{"id":', '}'],
])('allows 200 levels of %s', (_name, open, close) => {
  const nested = (levels: number) => Buffer.from(`${open.repeat(levels)}1${close.repeat(levels)}`);
  expect(scanJson(nested(200))).toMatchObject({ start: 0 });
  expect(() => scanJson(nested(201))).toThrow(expect.objectContaining({ reason: 'depth' }));
  expect(scanJson(nested(201), { maxDepth: 201 })).toMatchObject({ start: 0 });
});

it('quotes nothing of the text in an error', () => {
  const secret = 'sbk_live_secret';
  expect(() => scanJson(Buffer.from(`{"a":"${secret}" ${secret}}`))).toThrow(
    /^invalid JSON before byte \d+$/,
  );
});
