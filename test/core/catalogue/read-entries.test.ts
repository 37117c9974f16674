import * as fc from 'fast-check';
import type { Entry } from '../../../src/core/catalogue/entry.ts';
import { describe, expect, it } from 'vitest';
import { readEntries, readEntryStream } from '../../../src/core/catalogue/import-file.ts';

const good = { id: 'a', name: 'A', description: 'Does a thing.', remote_url: 'https://a.example/mcp' };
const line = (change: Record<string, unknown>) => JSON.stringify({ ...good, ...change });
const read = (...lines: string[]) => readEntries(lines.join('\n'), { allowHttp: false });
const reasonFor = (change: Record<string, unknown>) => read(line(change)).problems[0]?.reason;

describe('readEntries', () => {
  it('reports a bad line by number and reason and still reads the others', () => {
    const { entries, problems } = read(
      line({ id: 'one' }),
      '{"id": broken',
      '',
      line({ id: 'Two!' }),
      line({ id: 'three' }),
    );
    expect(entries.map(entry => entry.id)).toEqual(['one', 'three']);
    expect(problems).toEqual([
      { line: 2, reason: 'is not valid JSON' },
      {
        line: 4,
        reason:
          'id: must have 1 to 128 characters from a-z, 0-9, ".", "_" and "-", and start with a letter or digit',
        id: 'Two!',
      },
    ]);
  });

  it.each([
    [{ id: 'switchboard' }, 'id: must not be "switchboard", which is reserved for Switchboard itself'],
    [{ description: '' }, 'description: must have 1 to 4000 characters'],
    [{ description: 'x'.repeat(4001) }, 'description: must have 1 to 4000 characters'],
    [{ name: '😀'.repeat(201) }, 'name: must have 1 to 200 characters'],
    [{ remote_url: 'ftp://a.example' }, 'remote_url: must be an http(s) URL'],
    [{ remote_url: 'not a url' }, 'remote_url: must be an http(s) URL'],
    [
      { remote_url: 'http://a.example/mcp' },
      'remote_url: must be https (http: only with SWITCHBOARD_ALLOW_PRIVATE_NETWORK=true)',
    ],
    [{ remote_url: 'https://user:pw@a.example/mcp' }, 'remote_url: must not contain a user name or password'],
    [
      { auth: { kind: 'user_oauth', scopes: ['read'] } },
      'auth.provider: provider requires the name of the identity provider whose tokens the server accepts',
    ],
    [
      { description: 'nul \u0000' },
      'contains a NUL character or an unpaired surrogate, which cannot be stored',
    ],
    [
      { tools: [{ name: 't', input_schema: { 'half \ud800': {} } }] },
      'contains a NUL character or an unpaired surrogate, which cannot be stored',
    ],
  ])('refuses case %# with its reason', (change, reason) => {
    expect(reasonFor(change)).toBe(reason);
  });

  it('takes a text that only mentions an escape, and a whole surrogate pair', () => {
    expect(reasonFor({ description: String.raw`writes \u0000 and \ud800 in C` })).toBeUndefined();
    expect(
      read(String.raw`{"id":"a","name":"A","description":"\ud83d\ude00","remote_url":"https://a.example"}`)
        .problems,
    ).toEqual([]);
  });

  it('refuses a line that is JSON but no object', () => {
    expect(read('[]', '"x"', 'null').problems).toHaveLength(3);
  });

  it('takes the last of two lines with one id, CRLF and a byte order mark, and lists unknown fields once', () => {
    const text = `\uFEFF${line({ name: 'old', colour: 1 })}\r\n${line({ name: 'new', colour: 2 })}\r\n`;
    const { entries, unknownFields, problems } = readEntries(text, { allowHttp: false });
    expect(problems).toEqual([]);
    expect(entries.map(entry => entry.name)).toEqual(['new']);
    expect(unknownFields).toEqual(['colour']);
  });

  it('allows http where private networks are allowed', () => {
    expect(
      readEntries(line({ remote_url: 'http://127.0.0.1:3001/mcp' }), { allowHttp: true }).problems,
    ).toEqual([]);
  });
});

describe('readEntryStream', () => {
  it('reads the same as readEntries, wherever the bytes are cut', async () => {
    const text = `\uFEFF${line({ id: 'one', name: 'Añ😀' })}\r\n\r\nbroken\r${line({ id: 'two' })}\n${line({ id: 'Bad' })}\r`;
    const expected = readEntries(text, { allowHttp: false });
    expect(expected.problems.map(problem => problem.line)).toEqual([3, 5]);
    const bytes = Buffer.from(text);
    await fc.assert(
      fc.asyncProperty(fc.array(fc.nat({ max: bytes.length })), async cuts => {
        const ends = [0, ...cuts.toSorted((a, b) => a - b), bytes.length];
        const chunks = ends.slice(1).map((end, at) => bytes.subarray(ends[at], end));
        async function* stream() {
          yield* chunks;
        }
        expect(await readEntryStream(stream(), { allowHttp: false })).toEqual(expected);
      }),
    );
  });

  it('keeps what the caller gives in the place of an entry', async () => {
    async function* stream() {
      yield Buffer.from(`${line({ id: 'one' })}\n${line({ id: 'two' })}\nbroken`);
    }
    const compact = (entry: Entry) => ({ ...entry, name: entry.id.toUpperCase() });
    const { entries, problems } = await readEntryStream(stream(), { allowHttp: false, compact });
    expect(entries.map(({ name }) => name)).toEqual(['ONE', 'TWO']);
    expect(problems).toHaveLength(1);
  });
});
