import { randomBytes } from 'node:crypto';
import { afterAll, describe, expect, it, vi } from 'vitest';
import { createEmbeddedIndex } from '../../../../src/core/search/index/search-index-embedded.ts';
import { createMeilisearchIndex } from '../../../../src/core/search/index/search-index-meilisearch.ts';
import { openTestDatabase } from '../../../support/database.ts';
import { openMeilisearch } from '../../../support/meilisearch.ts';
import { startMeilisearchDouble } from './meilisearch-double.ts';
import { describeSearchIndex, evidence, find, update, weather } from './search-index.contract.ts';
import { catalogueDouble, controlledEmbedder, server, settableClock, silent } from '../support.ts';

const database = await openTestDatabase();
const double = await startMeilisearchDouble();
const real = await openMeilisearch();
afterAll(async () => {
  await real?.[Symbol.asyncDispose]();
  await double.stop();
  await database.close();
});

/** The embedder has an id of its own, and so each index of an engine. */
function surroundings(more?: Parameters<typeof controlledEmbedder>[0]) {
  const control = controlledEmbedder(more);
  control.embedder = { ...control.embedder, id: `char-ngrams-${randomBytes(6).toString('hex')}` };
  return {
    control,
    context: { embedder: control.embedder, db: database.db, log: silent, clock: settableClock(Date.now()) },
  };
}

type MeilisearchContext = Omit<Parameters<typeof createMeilisearchIndex>[0], 'readServers'>;

async function openOnMeilisearch(context: MeilisearchContext) {
  const catalogue = catalogueDouble();
  const index = await createMeilisearchIndex({ ...context, readServers: catalogue.readServers });
  return catalogue.follow(index);
}

type Start = Parameters<typeof describeSearchIndex>[1];

const onMeilisearch =
  (url: string, apiKey?: string): Start =>
  async embedder => {
    const { control, context } = surroundings(embedder);
    const index = await openOnMeilisearch({
      ...context,
      url,
      apiKey,
      searchTimeoutMs: 20_000,
    });
    return {
      index,
      control,
      async [Symbol.asyncDispose]() {
        // What stands in for the engine would have passed, too.
        expect(index.degraded ?? '').not.toContain('Meilisearch');
        await index.close();
      },
    };
  };

describeSearchIndex('embedded', async embedder => {
  const { control, context } = surroundings(embedder);
  const index = await createEmbeddedIndex(context);
  return { index, control, [Symbol.asyncDispose]: () => index.close() };
});

describeSearchIndex('Meilisearch (a double of its API)', onMeilisearch(double.url));

const WORDS = 'zebra penguin mail weather stock invoice repository calendar map song'.split(' ');
const word = (at: number) => WORDS[at % WORDS.length] ?? '';
const servers = Array.from({ length: 150 }, (_, at) => ({
  ...server(`s${at}`, `The ${word(at)} of ${word(at + 3)}.`, {
    [`get_${word(at * 7)}`]: `Gets a ${word(at * 7)} for the ${word(at + 1)}.`,
    [`list${at}`]: `Lists ${word(at * 3)}s.`,
  }),
  examples: at % 30 === 0 ? ['get the weather for the map', 'play a song', `list ${at}`] : [],
}));

it.each(real ? ['double', 'real'] : ['double'])(
  'Meilisearch and the embedded index have the same evidence, to the last bit (%s)',
  async name => {
    const { context } = surroundings();
    const engine = name === 'real' && real ? real : { url: double.url, apiKey: undefined };
    const embedded = await createEmbeddedIndex(context);
    const meilisearch = await openOnMeilisearch({
      ...context,
      ...engine,
      searchTimeoutMs: 20_000,
    });
    await update(embedded, { upserted: servers });
    await update(meilisearch, { upserted: servers });
    for (const query of [
      'get the weather',
      'penguins. And a song for the invoice, please.',
      'list9',
      'qwertz',
    ]) {
      const ours = await evidence(embedded, query);
      expect(ours.length).toBeGreaterThanOrEqual(100);
      const theirs = await evidence(meilisearch, query);
      const found = new Set(theirs.map(({ serverId }) => serverId));
      const ids = new Set(ours.map(({ serverId }) => serverId));
      expect(theirs.filter(({ serverId }) => ids.has(serverId))).toEqual(
        ours.filter(({ serverId }) => found.has(serverId)),
      );
      for (const by of ['semantic', 'keyword'] as const) {
        const best = ours.toSorted((a, b) => b[by] - a[by]).slice(0, 30);
        expect(best.filter(one => one[by] > 0 && !found.has(one.serverId))).toEqual([]);
      }
    }
    expect(meilisearch.degraded).toBeUndefined();
    await meilisearch.close();
  },
);

describe.skipIf(!real?.kill)('a Meilisearch that is killed', () => {
  it('leaves search and changes working, and is brought up to date when it is back', async () => {
    if (!real?.kill || !real.restart) throw new Error('not ours to kill');
    const { context } = surroundings();
    const { url, apiKey } = real;
    const retry = { firstMs: 50, lastMs: 200 };
    const index = await openOnMeilisearch({
      ...context,
      url,
      apiKey,
      retry,
      searchTimeoutMs: 20_000,
    });
    await update(index, { upserted: servers });
    await real.kill();
    expect(await find(index, 'list9')).toContain('s9');
    expect(index.degraded).toMatch(/Meilisearch unavailable/);
    await update(index, { upserted: [weather], removed: ['s9'] });
    await real.restart();
    await vi.waitFor(() => expect(index.degraded).toBeUndefined(), { timeout: 60_000, interval: 50 });
    expect(await find(index, 'forecast')).toEqual(['weather']);
    expect(await find(index, 'list9')).not.toContain('s9');
    expect(index.degraded).toBeUndefined();
    await index.close();
  });
});

if (real) describeSearchIndex(`Meilisearch ${real.version}`, onMeilisearch(real.url, real.apiKey));
