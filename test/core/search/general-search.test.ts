import { describe, expect, it } from 'vitest';
import { Catalogue } from '../../../src/core/catalogue/catalogue.ts';
import { UNUSED } from '../../../src/core/catalogue/usage.ts';
import tuning from '../../../src/core/search/embed/minilm/tuning.json' with { type: 'json' };
import type { Asked, Candidate, SearchIndex } from '../../../src/core/search/index/search-index.ts';
import { GENERAL_REQUEST, Ranker } from '../../../src/core/search/ranking.ts';
import { tuningOf, verdictOn } from '../../../src/core/search/tuning.ts';
import { openTestDatabase } from '../../support/database.ts';
import { entry } from './support.ts';

const { general, answerability } = tuning;
const lengthOf = (vector: readonly number[]) => Math.hypot(...vector);

/** A vector in the direction of general questions and of answerable requests, with weights. */
function towards(question: number, answerable: number): Float32Array {
  const mixed = general.request.map(
    (weight, at) =>
      (question * weight) / lengthOf(general.request) +
      (answerable * (answerability.request[at] ?? 0)) / lengthOf(answerability.request),
  );
  return Float32Array.from(mixed, value => value / lengthOf(mixed));
}

const candidate = (serverId: string, semantic: number, tool = 0): Candidate => ({
  serverId,
  texts: 1,
  semantic,
  excess: 0,
  keyword: 1,
  tools: { semantic: [tool], keyword: [0] },
});

/** A ranker over an index that can fail; "web" and "old" search the web. */
async function start(question: Float32Array) {
  const database = await openTestDatabase();
  const catalogue = await Catalogue.load(database.db);
  await catalogue.put(
    ['a', 'b', 'c', 'web', 'old'].map(id => entry(id, `Server ${id}.`, { tool: 'Tool.' })),
    { origin: 'operator' },
  );
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
    ask: (text): Asked => ({ text, terms: [], vectors: Promise.resolve([question]), clauses: [] }),
    async find({ text, vectors }) {
      const isGeneral = text === GENERAL_REQUEST;
      if (isGeneral) control.finds++;
      const found = isGeneral
        ? [candidate('old', 0.72, 0.72), candidate('web', 0.7, 0.7), candidate('a', 0.6, 0.2)]
        : [candidate('a', 0.3), candidate('b', 0.29), candidate('c', 0.28)];
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
  const ask = async () =>
    (await ranker.rank({ query: 'qwx zvy', limit: 10, maxTools: 1 })).map(({ serverId }) => serverId);
  return { ask, ranker, control, [Symbol.asyncDispose]: () => database.close() };
}

/** Such a question has an answer; one further from what is answerable does not, but for a search of the web. */
const QUESTION = towards(1, 1);

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

  it('makes a server that is not shown one of an answered question', async () => {
    await using started = await start(QUESTION);
    expect(await started.ranker.examine('qwx zvy', 'elsewhere')).toMatchObject({
      own: undefined,
      isAnswerable: true,
    });
  });
});

describe('verdictOn', () => {
  const learned = tuningOf(tuning.embedder);
  const evidence = (vector: Float32Array, semantic = 0.3) => ({
    candidates: [candidate('far', 0), candidate('near', semantic)],
    vectors: [vector],
  });

  it('gives a question a general search, and a request that a server is near to none', () => {
    expect(verdictOn(evidence(QUESTION), learned).general).toBe('first');
    expect(verdictOn(evidence(towards(-1, 1), 0.6), learned)).toEqual({
      isAnswerable: true,
      mayBeSearched: false,
      general: undefined,
    });
  });

  it('turns a request away that is neither answerable nor a question', () => {
    expect(verdictOn(evidence(towards(-1, -1), 0.1), learned)).toMatchObject({
      isAnswerable: false,
      mayBeSearched: false,
    });
  });

  it('says nothing of embedders that nothing was learned for, and nothing without vectors', () => {
    const unknown = { isAnswerable: true, mayBeSearched: false, general: undefined };
    expect(verdictOn(evidence(QUESTION), undefined)).toEqual(unknown);
    expect(verdictOn({ candidates: [], vectors: [] }, learned)).toEqual(unknown);
  });
});
