import { readFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Catalogue } from '../../../src/core/catalogue/catalogue.ts';
import { readEntries } from '../../../src/core/catalogue/import-file.ts';
import { UNUSED } from '../../../src/core/catalogue/usage.ts';
import { createMiniLmEmbedder } from '../../../src/core/search/embed/minilm/embedder.ts';
import { createEmbeddedIndex } from '../../../src/core/search/index/search-index-embedded.ts';
import { createSearch, type Search } from '../../../src/core/search/search.ts';
import { openTestDatabase } from '../../support/database.ts';
import { caller, settableClock, silent } from './support.ts';

const opened = new AsyncDisposableStack();
let catalogue: Catalogue;
let search: Search;
let names: readonly string[];
beforeAll(async () => {
  const database = await openTestDatabase();
  opened.defer(() => database.close());
  const { db } = database;
  const clock = settableClock();
  const embedder = await createMiniLmEmbedder();
  opened.defer(() => embedder.close());
  catalogue = await Catalogue.load(db);
  const { entries } = readEntries(await readFile('catalogue/servers.jsonl', 'utf8'), { allowHttp: false });
  await catalogue.put(entries, { origin: 'shipped' });
  names = entries.map(({ name }) => name);
  const shippedVectors = 'catalogue/vectors.bin';
  const index = await createEmbeddedIndex({ embedder, db, log: silent, clock, shippedVectors });
  await catalogue.attachIndex(change => index.prepare(change));
  search = createSearch({ catalogue, index, db, log: silent, clock, use: () => UNUSED });
  opened.defer(() => search.close());
});
afterAll(() => opened.disposeAsync());

describe('a search of the shipped catalogue', () => {
  it('never says of a server that it does not exist when its name is searched for', async () => {
    const lost: string[] = [];
    for (const name of names) {
      const { servers } = await search.search(caller, { query: name, limit: 50 });
      if (!servers.some(server => server.name === name)) lost.push(name);
    }
    expect(lost).toEqual([]);
  });

  const searchesTheWeb = ({ tools }: Awaited<ReturnType<Search['search']>>['servers'][number]) =>
    tools.some(({ description }) => /search the (?:live )?web/i.test(description));

  it('is led by searches of the web for what only they know', async () => {
    for (const query of [
      'stamp duty threshold first time buyers',
      'how long do boiled eggs keep in the fridge',
      // No other server is near it.
      'my cat ate a lily leaf',
    ]) {
      const { servers } = await search.search(caller, { query, limit: 5 });
      expect(servers.slice(0, 2).every(searchesTheWeb), query).toBe(true);
    }
  });

  it('is not led by them for what another server does', async () => {
    for (const query of [
      'send an email to my boss',
      'create a github issue',
      'book a table for two tonight',
    ]) {
      const { servers } = await search.search(caller, { query, limit: 5 });
      expect(servers.slice(0, 2).some(searchesTheWeb), query).toBe(false);
    }
  });

  it.each(['pon en trello la lista de tareas', 'dopisz do trello: kupić farbę', 'mets ça dans trello'])(
    'is led by the server that "%s" names in lower case',
    async query => {
      const { servers } = await search.search(caller, { query, limit: 1 });
      expect(servers[0]?.name).toMatch(/Trello/);
    },
  );

  it('is not led by a server whose name is a word of another language', async () => {
    for (const [query, name] of [
      ['recomienda un vino a mi gusto', 'Gusto'],
      ['comprueba si el pago no era correcto', 'Era'],
      ['zoek in deel twee van het contract', 'Deel'],
    ] as const) {
      const { servers } = await search.search(caller, { query, limit: 1 });
      expect(servers[0]?.name, query).not.toMatch(name);
    }
  });
});
