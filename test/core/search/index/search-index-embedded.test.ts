import { expect, it } from 'vitest';
import { createEmbeddedIndex } from '../../../../src/core/search/index/search-index-embedded.ts';
import { openTestDatabase } from '../../../support/database.ts';
import { find, mail, update, weather } from './search-index.contract.ts';
import { controlledEmbedder, recordingLog, server, settableClock, silent, wholeOf } from '../support.ts';

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

it('refuses a change with which the catalogue would be too large, and stays as it was', async () => {
  const database = await openTestDatabase();
  const { embedder } = controlledEmbedder();
  const { db } = database;
  const context = { embedder, db, log: silent, clock: settableClock(), maxTexts: 5 };
  const index = await createEmbeddedIndex(context);
  const small = server('small', 'A zebra.');
  const large = server('small', 'A giraffe.', { a: 'A', b: 'B', c: 'C' });
  await update(index, { upserted: [small, server('other', 'Stripes.', { d: 'D', e: 'E' })] });
  const refused = {
    code: 'invalid_request',
    message: expect.stringMatching(/at most 5 .* have 7\. Set MEILI/),
  };
  await expect(index.prepare({ upserted: [large], removed: [] })).rejects.toMatchObject(refused);
  const whole = wholeOf([large, weather]);
  await expect(index.prepare({ upserted: [large], removed: [], whole })).rejects.toMatchObject({
    code: 'invalid_request',
  });
  expect(await find(index, 'zebra')).toEqual(['small']);
  await update(index, { upserted: [large], removed: ['other'] });
  expect(await find(index, 'giraffe')).toEqual(['small']);
  await index.close();
  await database.close();
});
