import { readFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { Catalogue } from '../../../src/core/catalogue/catalogue.ts';
import { readEntries } from '../../../src/core/catalogue/import-file.ts';
import { UNUSED } from '../../../src/core/catalogue/usage.ts';
import { createMiniLmEmbedder } from '../../../src/core/search/embed/minilm/embedder.ts';
import { createEmbeddedIndex } from '../../../src/core/search/index/search-index-embedded.ts';
import { createSearch } from '../../../src/core/search/search.ts';
import { openTestDatabase } from '../../support/database.ts';
import { caller, settableClock, silent } from './support.ts';

it('no server of the shipped catalogue is said not to exist when its name is searched for', async () => {
  await using opened = new AsyncDisposableStack();
  const database = await openTestDatabase();
  opened.defer(() => database.close());
  const { db } = database;
  const clock = settableClock();
  const embedder = await createMiniLmEmbedder();
  opened.defer(() => embedder.close());
  const catalogue = await Catalogue.load(db);
  const { entries } = readEntries(await readFile('catalogue/servers.jsonl', 'utf8'), { allowHttp: false });
  await catalogue.put(entries, { origin: 'shipped' });
  const index = await createEmbeddedIndex({
    embedder,
    db,
    log: silent,
    clock,
    shippedVectors: 'catalogue/vectors.bin',
  });
  await catalogue.attachIndex(change => index.prepare(change));
  const search = createSearch({ catalogue, index, db, log: silent, clock, use: () => UNUSED });
  opened.defer(() => search.close());
  const lost: string[] = [];
  for (const { name } of entries) {
    const { servers } = await search.search(caller, { query: name, limit: 50 });
    if (!servers.some(server => server.name === name)) lost.push(name);
  }
  expect(lost).toEqual([]);
});
