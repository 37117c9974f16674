import { Session } from 'node:inspector/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startMail, type MailUnderTest, type TokenSet } from './support/identity.ts';
import type { Answer } from './support/switchboard.ts';

const inspector = new Session();
let sb: MailUnderTest;
let tokens: TokenSet;

beforeAll(async () => {
  sb = await startMail('pglite');
  tokens = await sb.connect('reader');
  inspector.connect();
  await inspector.post('Profiler.enable');
  await inspector.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
});
afterAll(async () => {
  inspector.disconnect();
  await sb[Symbol.asyncDispose]();
});

const SOURCES = path.resolve('src');
const fileOf = (url: string) => (url.startsWith('file:') ? fileURLToPath(url) : url);

/** Returns the source files of which a function ran since the last time this was asked. */
async function entered(): Promise<string[]> {
  const { result } = await inspector.post('Profiler.takePreciseCoverage');
  return result
    .filter(({ functions }) => functions.some(({ ranges }) => (ranges[0]?.count ?? 0) > 0))
    .map(({ url }) => path.relative(SOURCES, fileOf(url)))
    .filter(file => !file.startsWith('..') && file.endsWith('.ts'))
    .sort();
}

/** Returns the files that each of several equal requests enters: what runs by itself in the background is in one or the other only. */
async function filesOf(send: () => Promise<Answer>): Promise<string[]> {
  expect((await send()).status).toBe(200);
  let common: string[] | undefined;
  for (let round = 0; round < 4; round++) {
    await entered();
    expect((await send()).status).toBe(200);
    const files = await entered();
    common = common?.filter(file => files.includes(file)) ?? files;
  }
  return common ?? [];
}

/**
 * The aim is 40, 40 and 25: these are what there is, so that it does not grow. A search has the glossary, the fusion, BM25, what a
 * query excludes, what was learned for the embedder, and the schemas that it shares with the console; both it and a call read from the cache of whole servers, and check scopes that imply
 * others. A call for a user is noted for the user's page.
 */
describe('the files that a request enters', () => {
  it('are few for a search', async () => {
    let asked = 0;
    const files = await filesOf(() => sb.post('/v1/search', { query: `read mail number ${asked++}` }));
    expect(files).toContain('core/search/search.ts');
    expect(files.length, files.join('\n')).toBeLessThanOrEqual(51);
  });

  it('are few for a call of a tool for a user', async () => {
    const files = await filesOf(() => sb.echo('hello', sb.as(tokens)));
    expect(files).toContain('core/proxy/proxy.ts');
    expect(files.length, files.join('\n')).toBeLessThanOrEqual(45);
  });

  it('are few for a refresh', async () => {
    let { refresh_token } = tokens;
    const files = await filesOf(async () => {
      const answer = await sb.refresh(refresh_token);
      refresh_token = answer.json.refresh_token;
      return answer;
    });
    expect(files).toContain('core/identity/tokens/refresh-tokens.ts');
    expect(files.length, files.join('\n')).toBeLessThanOrEqual(25);
  });
});
