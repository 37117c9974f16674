import { expect, it } from 'vitest';
import { createEmbeddedIndex } from '../../../../src/core/search/index/search-index-embedded.ts';
import { openTestDatabase } from '../../../support/database.ts';
import { find, mail, update, weather } from './search-index.contract.ts';
import { controlledEmbedder, recordingLog, settableClock } from '../support.ts';

// What both indexes guarantee is in search-index.contract.ts.
it('says once a minute that the embedder fails', async () => {
  const database = await openTestDatabase();
  const control = controlledEmbedder();
  const { log, messages } = recordingLog();
  const clock = settableClock();
  const index = await createEmbeddedIndex({ embedder: control.embedder, db: database.db, log, clock });
  await update(index, { upserted: [weather, mail] });
  control.failing = true;
  await find(index, 'forecast');
  await find(index, 'inbox');
  expect(messages()).toHaveLength(1);
  clock.time += 60_000;
  await find(index, 'forecast');
  expect(messages()).toHaveLength(2);
  await index.close();
  await database.close();
});
