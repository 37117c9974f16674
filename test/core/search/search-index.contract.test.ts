import { randomBytes } from 'node:crypto';
import { afterAll, expect } from 'vitest';
import { createEmbeddedIndex } from '../../../src/core/search/search-index-embedded.ts';
import { createMeilisearchIndex } from '../../../src/core/search/search-index-meilisearch.ts';
import { openDatabase } from '../../../src/infra/database.ts';
import { openMeilisearch } from '../../support/meilisearch.ts';
import { startMeilisearchDouble } from './meilisearch-double.ts';
import { describeSearchIndex, type StartedIndex } from './search-index.contract.ts';
import { controlledEmbedder, settableClock, silent } from './support.ts';

const database = await openDatabase();
const double = await startMeilisearchDouble();
const real = await openMeilisearch();
afterAll(async () => {
  await real?.[Symbol.asyncDispose]();
  await double.stop();
  await database.close();
});

/** The embedder has an id of its own, and so each index of an engine. */
function surroundings() {
  const control = controlledEmbedder();
  control.embedder = { ...control.embedder, id: `char-ngrams-${randomBytes(6).toString('hex')}` };
  return {
    control,
    context: { embedder: control.embedder, db: database.db, log: silent, clock: settableClock(Date.now()) },
  };
}

const onMeilisearch = (url: string, apiKey?: string) => async (): Promise<StartedIndex> => {
  const { control, context } = surroundings();
  const index = await createMeilisearchIndex({ ...context, url, apiKey, owner: 'tests' });
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

describeSearchIndex('embedded', async () => {
  const { control, context } = surroundings();
  const index = await createEmbeddedIndex(context);
  return { index, control, [Symbol.asyncDispose]: () => index.close() };
});

describeSearchIndex('Meilisearch (a double of its API)', onMeilisearch(double.url));

if (real) describeSearchIndex(`Meilisearch ${real.version}`, onMeilisearch(real.url, real.apiKey));
