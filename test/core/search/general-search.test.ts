import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { Catalogue } from '../../../src/core/catalogue/catalogue.ts';
import { UNUSED } from '../../../src/core/catalogue/usage.ts';
import tuning from '../../../src/core/search/embed/minilm/tuning.json' with { type: 'json' };
import { encodedLength, viewVector } from '../../../src/core/search/index/vectors.ts';
import type { Asked, Candidate, SearchIndex } from '../../../src/core/search/index/search-index.ts';
import { GENERAL_REQUEST, Ranker } from '../../../src/core/search/ranking.ts';
import { tuningOf, verdictOn } from '../../../src/core/search/tuning.ts';
import { openTestDatabase } from '../../support/database.ts';
import { entry } from './support.ts';

const learned = tuningOf(tuning.embedder);
if (!learned) throw new Error('nothing was learned for the embedder of tuning.json');

const KNOWN = readFileSync(
  new URL('../../../src/core/search/embed/minilm/known-requests.bin', import.meta.url),
);
const ROW_BYTES = encodedLength(tuning.answerability.request.length);
const known = Array.from({ length: KNOWN.length / ROW_BYTES }, (_, row) => {
  const { values, scale } = viewVector(KNOWN.subarray(row * ROW_BYTES, (row + 1) * ROW_BYTES));
  return Float32Array.from(values, value => value * scale);
});
const questions = known.slice(0, tuning.general.questions);
const others = known.slice(tuning.general.questions);

const candidate = (serverId: string, semantic: number, tool = 0): Candidate => ({
  serverId,
  texts: 1,
  semantic,
  direct: semantic,
  excess: 0,
  keyword: 1,
  tools: { semantic: [tool], keyword: [0] },
});

/** A ranker over an index that can fail; "web" and "old" search the web. */
async function start(question: Float32Array) {
  const database = await openTestDatabase();
  const catalogue = await Catalogue.load(database.db);
  const entries = ['a', 'b', 'c', 'web', 'old'].map(id => entry(id, `Server ${id}.`, { tool: 'Tool.' }));
  const named = { ...entry('named', 'A server.'), name: 'Quibble' };
  const hub = { ...entry('hub', 'A hub.'), integrations: ['Quixo'] };
  await catalogue.put([...entries, named, hub], { origin: 'operator' });
  const control = {
    degraded: undefined as string | undefined,
    dead: undefined as string | undefined,
    finds: 0,
  };
  const index: Pick<SearchIndex, 'id' | 'embedderId' | 'epoch' | 'size' | 'degraded' | 'ask' | 'find'> = {
    id: 'stub',
    embedderId: tuning.embedder,
    epoch: 1,
    size: 5,
    get degraded() {
      return control.degraded;
    },
    ask: (text): Asked => ({
      text,
      terms: [],
      vectors: Promise.resolve([question]),
      clauses: [],
      language: undefined,
    }),
    async find({ text, vectors }) {
      const isGeneral = text === GENERAL_REQUEST;
      if (isGeneral) control.finds++;
      const found = isGeneral
        ? [candidate('old', 0.72, 0.72), candidate('web', 0.7, 0.7), candidate('a', 0.6, 0.2)]
        : [candidate('a', 0.3), candidate('b', 0.29), candidate('c', 0.28)];
      if (text.includes('quibble')) found.push(candidate('named', 0.1));
      return { candidates: control.degraded === undefined ? found : found.slice(-1), vectors: await vectors };
    },
  };
  const ranker = new Ranker({
    catalogue,
    // The ranker uses no more of it.
    index: index as SearchIndex,
    use: () => UNUSED,
    health: {
      of: ({ id }) =>
        id === control.dead
          ? { state: 'unreachable', checkedAtMs: 0, deadSinceMs: 0, failures: 3 }
          : undefined,
      epoch: 0,
    },
  });
  const ask = async (query = 'qwx zvy') =>
    (await ranker.rank({ query, limit: 10 })).map(({ serverId }) => serverId);
  return { ask, ranker, control, [Symbol.asyncDispose]: () => database.close() };
}

/** Returns the first of known requests with such a verdict, if its best server is as near as that. */
function requestWith(verdict: object, among: readonly Float32Array[], semantic: number): Float32Array {
  const isMeant = (one: Float32Array) =>
    Object.entries(verdict).every(
      ([name, value]) => verdictOn(evidence(one, semantic), learned)[name as never] === value,
    );
  const found = among.find(isMeant);
  if (!found) throw new Error(`no known request has the verdict ${JSON.stringify(verdict)}`);
  return found;
}

const evidence = (vector: Float32Array, semantic: number) => ({
  candidates: [candidate('far', 0), candidate('near', semantic)],
  vectors: [vector],
});

const QUESTION = requestWith({ general: 'first', isAnswerable: true }, questions, 0.3);

describe('a general search of the web', () => {
  it('leads for a question, is found once, and is none of what is near but no search', async () => {
    await using started = await start(QUESTION);
    const { ask, control } = started;
    expect(await ask()).toEqual(['old', 'web', 'a', 'b', 'c']);
    expect(await ask()).toEqual(['old', 'web', 'a', 'b', 'c']);
    expect(control.finds).toBe(1);
  });

  it('does not lead while it is dead', async () => {
    await using started = await start(QUESTION);
    started.control.dead = 'old';
    expect(await started.ask()).toEqual(['web', 'a', 'b', 'c']);
  });

  it('is not sought during an outage, and found again after one', async () => {
    await using started = await start(QUESTION);
    const { ask, control } = started;
    control.degraded = 'the engine is down';
    expect(await ask()).toEqual(['c']);
    expect(control.finds).toBe(0);
    control.degraded = undefined;
    expect(await ask()).toEqual(['old', 'web', 'a', 'b', 'c']);
  });

  it('does not come before what works with a product that is all of the query, but before it for a question about one', async () => {
    await using started = await start(QUESTION);
    expect((await started.ask('quixo'))[0]).toBe('hub');
    expect((await started.ask('qwx zvy in quixo')).slice(0, 3)).toEqual(['old', 'web', 'hub']);
  });

  it('makes a server that is not shown one of an answered question', async () => {
    await using started = await start(QUESTION);
    expect(await started.ranker.examine('qwx zvy', 'elsewhere')).toMatchObject({
      own: undefined,
      isAnswerable: true,
    });
  });
});

describe('a query that nothing can serve', () => {
  it('is turned away, unless it names a server or a product that one works with', async () => {
    const unanswerable = requestWith({ isAnswerable: false, mayBeSearched: false }, others, 0.3);
    await using started = await start(unanswerable);
    expect(await started.ask('qwx zvy')).toEqual([]);
    expect(await started.ask('qwx zvy for wby in quibble')).toContain('named');
    expect((await started.ask('qwx zvy in quixo'))[0]).toBe('hub');
  });
});

describe('verdictOn', () => {
  const share = (all: readonly Float32Array[], semantic: number) =>
    all.filter(one => verdictOn(evidence(one, semantic), learned).general === 'first').length / all.length;

  it('gives known questions a general search, and other requests none', () => {
    expect(share(questions.slice(0, 300), 0.3)).toBeGreaterThan(0.9);
    expect(share(others.slice(0, 300), 0.6)).toBeLessThan(0.1);
  });

  it('gives a question none if a server is near enough', () => {
    const placeOf = (one: Float32Array, semantic: number) =>
      verdictOn(evidence(one, semantic), learned).general;
    const close = questions.filter(one => placeOf(one, 0.3) === 'first' && placeOf(one, 0.9) === undefined);
    expect(close.length).toBeGreaterThan(0);
    expect(questions.filter(one => placeOf(one, 0.3) === undefined && placeOf(one, 0.9) === 'first')).toEqual(
      [],
    );
  });

  it('lets a question be searched that nothing else serves, if there is little doubt, and turns other requests away', () => {
    const doubtful = requestWith({ general: 'first', isAnswerable: false }, questions, 0.1);
    expect(verdictOn(evidence(doubtful, 0.1), learned).mayBeSearched).toBe(true);
    // Throws if there is none.
    requestWith({ general: 'first', isAnswerable: false, mayBeSearched: false }, questions, 0);
    const other = requestWith({ isAnswerable: false }, others, 0.1);
    expect(verdictOn(evidence(other, 0.1), learned)).toMatchObject({ mayBeSearched: false });
  });

  it('says nothing of embedders that nothing was learned for, and nothing without vectors', () => {
    const unknown = { isAnswerable: true, mayBeSearched: false, general: undefined };
    expect(verdictOn(evidence(QUESTION, 0.3), undefined)).toEqual(unknown);
    expect(verdictOn({ candidates: [], vectors: [] }, learned)).toEqual(unknown);
  });
});
