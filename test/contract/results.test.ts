import { eq } from 'drizzle-orm';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { users } from '../../src/core/access/schema.ts';
import { startIdentity, type IdentityUnderTest } from '../support/identity.ts';
import { keepOn, RESULTS_ENV } from '../support/results.ts';
import type { Answer } from '../support/switchboard.ts';

const MINUTE_MS = 60_000;
const LINES = Array.from({ length: 20_000 }, (_, at) => `line ${at} 🐘`);
const TEXT = LINES.join('\n');
const LENGTH = Array.from(TEXT).length;

interface Key {
  readonly id: string;
  readonly key: string;
}

let sb: IdentityUnderTest;
let mine: Key;
let other: Key;
let handle: string;
beforeAll(async () => {
  sb = await startIdentity({ env: { ...RESULTS_ENV, SWITCHBOARD_RATE_LIMIT: 'off' } });
  mine = await createKey();
  other = await createKey();
  handle = await keepOn(sb.db, { keyId: mine.id }, TEXT);
});
afterAll(() => sb[Symbol.asyncDispose]());

const createKey = async (more: object = {}): Promise<Key> =>
  (await sb.admin.request('POST', '/keys', { name: 'test', scopes: ['proxy'], ...more })).json;

const get = (query = '', headers: Record<string, string> = {}, of = handle): Promise<Answer> =>
  sb.get(`/v1/results/${of}${query}`, { 'x-api-key': mine.key, ...headers });

const NOT_FOUND = { status: 404, json: { code: 'result_not_found' } };

describe('GET /v1/results/{handle}', () => {
  it('200: reads on in parts, to the end [results.read]', async () => {
    const first = await get();
    expect(first.headers.get('cache-control')).toBe('no-store');
    expect(first).toMatchObject({ status: 200, json: { handle, offset: 0, next_offset: 20_000 } });
    expect(Date.parse(first.json.expires_at)).toBeGreaterThan(Date.now() + 9 * MINUTE_MS);
    const texts: string[] = [];
    for (let offset: number | undefined = 0; offset !== undefined;) {
      const { status, json } = await get(`?offset=${offset}&max_chars=100000`);
      expect([status, json.offset, json.total_characters]).toEqual([200, offset, LENGTH]);
      texts.push(json.text);
      offset = json.next_offset;
    }
    expect(texts.join('')).toBe(TEXT);
    expect((await get(`?offset=${LENGTH - 2}`)).json).toEqual({
      handle,
      offset: LENGTH - 2,
      text: ' 🐘',
      total_characters: LENGTH,
      expires_at: first.json.expires_at,
    });
  });

  it('200: finds lines in either case, and where they are [results.find]', async () => {
    const { status, json } = await get('?find=LINE%2019998%20');
    expect(status).toBe(200);
    const shown = LINES.slice(19_997).join('\n');
    expect(json).toEqual({
      handle,
      matches: [{ offset: LENGTH - Array.from(shown).length, text: shown }],
      more_matches: false,
      total_characters: LENGTH,
      expires_at: expect.any(String),
    });
    expect((await get(`?offset=${json.matches[0].offset}`)).json.text).toBe(shown);
    expect((await get('?find=tiger')).json).toMatchObject({ matches: [], more_matches: false });
  });

  it('200: goes on finding from the first that had no room [results.find]', async () => {
    const found = await get('?find=000%20&max_chars=60');
    expect(found.json).toMatchObject({
      more_matches: true,
      matches: [{ text: LINES.slice(999, 1_002).join('\n') }],
    });
    const { json } = await get(`?find=000%20&max_chars=60&from=${found.json.next_from}`);
    expect(json.matches).toMatchObject([{ text: LINES.slice(1_999, 2_002).join('\n') }]);
  });

  it.each([
    ['offset=-1', 'offset: must be a whole number, 0 or more'],
    ['offset=', 'offset: must be a whole number, 0 or more'],
    ['offset=1.5', 'offset: must be a whole number, 0 or more'],
    ['offset=1&offset=2', 'offset: must be a whole number, 0 or more'],
    ['offset=9999999999', 'offset: must be a whole number, 0 or more'],
    ['offset=999999', `offset: must be at most ${LENGTH}, the length of the result in characters`],
    ['max_chars=0', 'max_chars: must be a whole number from 1 to 100000'],
    ['max_chars=100001', 'max_chars: must be a whole number from 1 to 100000'],
    ['max_chars=all', 'max_chars: must be a whole number from 1 to 100000'],
    ['find=', 'find: must be a string of 1 to 200 characters'],
    [`find=${encodeURIComponent('🐘'.repeat(201))}`, 'find: must be a string of 1 to 200 characters'],
    ['find=a&find=b', 'find: must be a string of 1 to 200 characters'],
    ['find=a&from=x', 'from: must be a whole number, 0 or more'],
    ['find=a&from=999999', `from: must be at most ${LENGTH}, the length of the result in characters`],
    ['find=a&offset=0', 'offset: cannot be combined with find: use from to set where the search starts'],
    ['from=5', 'from: requires find: use offset to set where to continue reading'],
    ['limit=5', 'Unknown field "limit" (the fields are offset, max_chars, find, from)'],
  ])('400: %s [results.request]', async (query, detail) => {
    const answer = await get(`?${query}`);
    expect(answer).toMatchObject({ status: 400, json: { code: 'invalid_request' } });
    expect(answer.json.detail).toContain(detail);
  });

  it('401: without a key, 403: with one that may not call [results.request]', async () => {
    expect((await get('', { 'x-api-key': '' })).status).toBe(401);
    const searching = await createKey({ scopes: ['search'] });
    expect(await get('', { 'x-api-key': searching.key })).toMatchObject({
      status: 403,
      json: { code: 'insufficient_scope' },
    });
  });

  it('404: for another key, another tenant, and what is no handle [results.own]', async () => {
    const unknown = `res_${'A'.repeat(22)}`;
    const answers = await Promise.all([
      get('', { 'x-api-key': other.key }),
      get('?offset=999999', { 'x-api-key': other.key }),
      get('', { 'x-api-key': sb.otherKey }),
      get('?find=line', { 'x-api-key': sb.otherKey }),
      get('', {}, unknown),
      get('', {}, 'nonsense'),
      get('', {}, `res_${'x'.repeat(3_000)}`),
      get('', {}, '%00'),
    ]);
    for (const answer of answers) expect(answer).toMatchObject(NOT_FOUND);
    expect(answers[4]?.json.detail).toBe(
      `There is no stored result "${unknown}". Results are stored for at most 10 minutes, and only for the key and the user that made the call. Repeat the call.`,
    );
  });

  it('is for the user that the call was made for, as long as the token holds [results.own]', async () => {
    const [ada, bob] = [await sb.connect('ada'), await sb.connect('bob')];
    const [row] = await sb.db.select().from(users).where(eq(users.externalId, 'ada'));
    const adas = await keepOn(sb.db, { keyId: mine.id, userId: row?.id ?? '' }, 'for Ada');
    const as = (headers: Record<string, string>) => get('', headers, adas);
    expect((await as(sb.as(ada))).json).toMatchObject({ text: 'for Ada' });
    expect(await as(sb.as(bob))).toMatchObject(NOT_FOUND);
    expect(await as({})).toMatchObject(NOT_FOUND);
    await sb.revoke('ada');
    expect(await as(sb.as(ada))).toMatchObject({ status: 401, json: { code: 'identity_token_invalid' } });
  });

  it('200: does not count as a call or against the quota', async () => {
    const small = await createKey({ monthly_quota: { calls: 1 } });
    const kept = await keepOn(sb.db, { keyId: small.id }, 'counted');
    expect((await get('?offset=x', { 'x-api-key': small.key }, kept)).status).toBe(400);
    for (let reads = 0; reads < 3; reads++)
      expect((await get('', { 'x-api-key': small.key }, kept)).status).toBe(200);
  });

  it('404: after ten minutes [results.own]', async () => {
    await sb.elapse(9 * MINUTE_MS);
    expect((await get()).status).toBe(200);
    await sb.elapse(MINUTE_MS + 1);
    expect(await get()).toMatchObject(NOT_FOUND);
    expect(await get('?find=line')).toMatchObject(NOT_FOUND);
  });
});
