import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { Catalogue } from '../../../src/core/catalogue/catalogue.ts';
import { UNUSED } from '../../../src/core/catalogue/usage.ts';
import { queryLog as queryLogTable } from '../../../src/core/search/schema.ts';
import { servers } from '../../../src/core/catalogue/schema.ts';
import { documentsOf } from '../../../src/core/search/documents.ts';
import { createEmbeddedIndex } from '../../../src/core/search/index/search-index-embedded.ts';
import { SwitchboardError } from '../../../src/errors.ts';
import { createSearch, readyGate, type Search } from '../../../src/core/search/search.ts';
import type { OpenDatabase } from '../../../src/platform/database/database.ts';
import { openTestDatabase } from '../../support/database.ts';
import { caller, controlledEmbedder, entry, settableClock, silent } from './support.ts';

const entries = [
  entry('weather', 'Weather forecasts.', {
    get_alerts: 'Storm warnings.',
    get_forecast: 'Rain and sun for a city.',
  }),
  entry('mail', 'Reads and sends e-mail.', { send: 'Sends a message.', search_inbox: 'Finds messages.' }),
  entry('maps', 'Maps of any city.'),
];

let database: OpenDatabase;
beforeAll(async () => {
  database = await openTestDatabase();
});
afterAll(() => database.close());
/** Closed after each test, so that none of their rows comes after it. */
const searches: Search[] = [];
afterEach(async () => {
  await Promise.all(searches.splice(0).map(search => search.close()));
});
beforeEach(async () => {
  await database.db.delete(servers);
  await database.db.delete(queryLogTable);
});

async function start(more: Pick<Parameters<typeof createSearch>[0], 'health'> = {}) {
  const { db } = database;
  const control = controlledEmbedder();
  const clock = settableClock();
  const catalogue = await Catalogue.load(db);
  const index = await createEmbeddedIndex({ embedder: control.embedder, db, log: silent, clock });
  await catalogue.attachIndex(change => index.prepare(change));
  await catalogue.put(entries, { origin: 'operator' });
  control.embedded.length = 0;
  const search = createSearch({
    catalogue,
    index,
    db,
    log: silent,
    clock,
    use: () => UNUSED,
    ...more,
  });
  searches.push(search);
  const ask = (query: string, options: { limit?: number; maxTools?: number } = {}) =>
    search.search(caller, { query, ...options });
  return { search, ask, catalogue, index, control, clock };
}

const ids = (answer: { servers: readonly { id: string }[] }) => answer.servers.map(({ id }) => id);

describe('search', () => {
  it('responds once the catalogue is indexed, and not with an empty list before', async () => {
    const { db } = database;
    const catalogue = await Catalogue.load(db);
    await catalogue.put(entries, { origin: 'operator' });
    const { embedder } = controlledEmbedder();
    const clock = settableClock();
    const index = await createEmbeddedIndex({ embedder, db, log: silent, clock });
    const { promise: indexed, resolve } = Promise.withResolvers<void>();
    const search = createSearch({
      catalogue,
      index,
      indexed: () => indexed,
      db,
      log: silent,
      clock,
      use: () => UNUSED,
    });
    searches.push(search);
    const answer = search.search(caller, { query: 'weather' });
    await catalogue.attachIndex(change => index.prepare(change));
    resolve();
    expect(ids(await answer)[0]).toBe('weather');
  });

  it('finds a server by its id, and by a name that a hundred others bear among their words', async () => {
    const { ask, catalogue } = await start();
    const crowd = Array.from({ length: 250 }, (_, at) =>
      entry(`crowd-${at}`, 'Word by word, word for word.'),
    );
    const lost = { ...entry('io.lost_42', 'Zzz.', { zzz: 'Zzz.' }), name: 'Word (beta)' };
    await catalogue.put([...crowd, lost], { origin: 'operator' });
    for (const query of ['io.lost_42', 'IO.Lost_42', 'word', 'Word (beta)'])
      expect(ids(await ask(query))[0]).toBe('io.lost_42');
    expect((await ask('word', { limit: 1 })).servers[0]?.tools.map(({ name }) => name)).toEqual(['zzz']);
    await catalogue.deactivate('io.lost_42');
    expect(ids(await ask('io.lost_42'))).not.toContain('io.lost_42');
  });

  it('puts the server of an id before one that is named so, and a whole name before one less what is in brackets', async () => {
    const { ask, catalogue } = await start();
    await catalogue.put([{ ...entry('a-plant', 'Waters plants.'), name: 'Maps' }], { origin: 'operator' });
    expect(ids(await ask('MAPS')).slice(0, 2)).toEqual(['maps', 'a-plant']);
    const twins = [
      { ...entry('official', 'Zzz.'), name: 'Quixo' },
      { ...entry('other', 'Quixo quixo: all of Quixo.', { quixo: 'Quixo.' }), name: 'Quixo (community)' },
    ];
    await catalogue.put(twins, { origin: 'operator' });
    expect(ids(await ask('quixo')).slice(0, 2)).toEqual(['official', 'other']);
  });

  it('finds a server by its exact name in a query of any language', async () => {
    const { ask, catalogue } = await start();
    await catalogue.put([{ ...entry('qx', 'Zzz.'), name: 'Quixo' }], { origin: 'operator' });
    expect(ids(await ask('wie viele Fehler hat denn heute schon wieder Quixo'))[0]).toBe('qx');
  });

  it('finds a server asked for by its name first, in any case', async () => {
    const { ask, catalogue } = await start();
    const named = { ...entry('way', 'Zzz.'), name: 'MapsMail' };
    await catalogue.put([named], { origin: 'operator' });
    expect(ids(await ask('mapsmail'))[0]).toBe('way');
    expect(ids(await ask('MapsMail'))[0]).toBe('way');
  });

  it('puts servers of a registry behind the one whose name they bear', async () => {
    const { ask, catalogue } = await start();
    const texts = 'Creates an issue in Quixo: Quixo issues.';

    const evil = { ...entry('evil_quixo', texts, { create_issue: texts }), name: 'Quixo' };
    const named = { ...entry('quixo-official', 'Zzz.', { create: 'Creates an issue.' }), name: 'Quixo' };
    await catalogue.put([evil], { origin: 'registry' });
    await catalogue.put([named], { origin: 'operator' });
    for (const query of ['quixo', 'Quixo', 'create an issue in Quixo'])
      expect(ids(await ask(query)).slice(0, 2)).toEqual(['quixo-official', 'evil_quixo']);
  });

  it.each(['🌧️', '!?', '— …'])('finds nothing for "%s", which has no words', async query => {
    const { ask } = await start();
    expect(ids(await ask(query))).toEqual([]);
  });

  it('puts a server that the query excludes behind others', async () => {
    const { ask, catalogue } = await start();
    const texts = 'Creates an issue in a project.';
    const both = ['Quixo', 'Zubo'].map(name =>
      Object.assign(entry(name, texts, { create: texts }), { name }),
    );
    await catalogue.put(both, { origin: 'operator' });
    expect(ids(await ask('create an issue in Quixo'))[0]).toBe('Quixo');
    expect(ids(await ask('create an issue, but not in Quixo'))[0]).toBe('Zubo');
    expect(ids(await ask('create an issue, anything but quixo'))[0]).toBe('Zubo');
    expect(ids(await ask('create an issue in Quixo, not in Zubo')).slice(0, 2)).toEqual(['Quixo', 'Zubo']);
  });

  it('puts a server that works with a named product first, or third behind a server that is named, too', async () => {
    const dead = { state: 'unreachable', checkedAtMs: 0, deadSinceMs: 0, failures: 3 } as const;
    const health = { epoch: 0, of: ({ id }: { id: string }) => (id === 'dead-hub' ? dead : undefined) };
    const { ask, catalogue, search } = await start({ health });
    const hub = (id: string) => ({ ...entry(id, 'Zzz.', { any: 'Zzz.' }), integrations: ['Quixo'] });
    const named = { ...entry('zubo', 'Zubo.', { zubo: 'Zubo.' }), name: 'Zubo' };
    await catalogue.put([hub('dead-hub'), hub('hub'), named], { origin: 'operator' });
    const [first, second] = ids(await ask('rain and sun for a city in quixo'));
    expect([first, second]).toEqual(['hub', 'weather']);
    const shown = await search.search(caller, {
      query: 'rain and sun for a city in quixo',
      nearBest: 0.7,
    });
    expect(shown.servers[0]?.tools.map(({ name }) => name)).toEqual(['any']);
    expect(ids(await ask('rain and sun for a city to ann@quixo.com'))[0]).toBe('weather');
    expect(ids(await ask('zubo quixo')).slice(0, 3)).toContain('hub');
    expect(ids(await ask('zubo quixo'))[0]).toBe('zubo');
    await catalogue.put([{ ...entry('own', 'Zzz.', { rain: 'Rain in a city.' }), name: 'Quixo Rain' }], {
      origin: 'operator',
    });
    expect(ids(await ask('rain and sun for a city in quixo'))).not.toContain('hub');
  });

  it("responds in the contract's fields, most relevant server and tool first", async () => {
    const { ask } = await start();
    const answer = await ask('forecast for a city');
    const [best] = answer.servers;
    expect(best).toEqual({
      id: 'weather',
      name: 'weather',
      description: 'Weather forecasts.',
      access: { kind: 'unknown', status: 'unknown' },
      remote_url: 'https://weather.example.com/mcp',
      tools: [
        { name: 'get_forecast', description: 'Rain and sun for a city.', input_schema: { type: 'object' } },
        { name: 'get_alerts', description: 'Storm warnings.', input_schema: { type: 'object' } },
      ],
      scores: { semantic: expect.closeTo(0.3, 0), popularity: 0 },
      final_score: expect.any(Number),
    });
    const scores = answer.servers.map(({ final_score }) => final_score);
    expect(scores).toEqual(scores.toSorted((a, b) => b - a));
    expect(answer.metadata).toEqual({
      latency_ms: 0,
      cache_hit: false,
      total_candidates: 3,
      query_log_id: expect.stringMatching(/^qry_\w{22}$/),
    });
  });

  it('has the best server for each clause of a query among the first five', async () => {
    const { ask, catalogue } = await start();
    const weather = 'hourly storm warnings with rain or snow for every city of my country';
    const alike = Array.from({ length: 9 }, (_, at) => entry(`alike-${at}`, `Has ${weather}.`));
    await catalogue.put(alike, { origin: 'operator' });
    expect(ids(await ask(`${weather} by a message`)).indexOf('mail')).toBeGreaterThan(4);
    const answer = await ask(`${weather}, and then sends a message`);
    expect(ids(answer).slice(0, 5)).toContain('mail');
    expect(answer.servers.find(({ id }) => id === 'mail')?.tools[0]?.name).toBe('send');
    const scores = answer.servers.map(server => server.final_score);
    expect(scores).toEqual(scores.toSorted((a, b) => b - a));
  });

  it('responds without the clauses if their searches fail', async () => {
    const { ask, index } = await start();
    const find = index.find.bind(index);
    vi.spyOn(index, 'find').mockImplementation((query, count) =>
      count === undefined ? find(query) : Promise.reject(new Error('the database is down')),
    );
    const answer = await ask('a forecast of the weather, and then send a message');
    expect(ids(answer)).toEqual(expect.arrayContaining(['weather', 'mail']));
  });

  it('keeps to limit and maxTools', async () => {
    const { ask } = await start();
    const answer = await ask('messages', { limit: 1, maxTools: 1 });
    expect(ids(answer)).toEqual(['mail']);
    expect(answer.servers[0]?.tools).toHaveLength(1);
  });

  it('gives equal results for equal questions', async () => {
    const [first, second] = [await start(), await start()];
    expect((await first.ask('city rain')).servers).toEqual((await second.ask('city rain')).servers);
  });

  it('is empty for an empty catalogue', async () => {
    const { ask, catalogue } = await start();
    await catalogue.put([], { origin: 'operator', replace: true });
    expect(await ask('rain')).toMatchObject({ servers: [], metadata: { total_candidates: 0 } });
  });

  it('leaves out a server that became inactive while the query was ranked', async () => {
    const { ask, catalogue, control } = await start();
    const gate = Promise.withResolvers<void>();
    control.gate = gate.promise;
    const answer = ask('forecast');
    const deactivated = catalogue.deactivate('weather');
    await deactivated;
    gate.resolve();
    expect(ids(await answer)).not.toContain('weather');
  });
});

describe('a stored server', () => {
  it('has the texts that it was imported with, whatever the order of its arguments', async () => {
    const properties = { subject: {}, to: { description: 'Who gets it.' }, body: {}, at: {} };
    const [tool] = entry('post', 'Posts letters.', { send: 'Sends a letter.' }).tools ?? [];
    const given = {
      ...entry('post', 'Posts letters.'),
      tools: [{ name: 'send', description: '', ...tool, input_schema: { type: 'object', properties } }],
    };
    const { catalogue } = await start();
    await catalogue.put([given], { origin: 'operator' });
    const stored = await (await Catalogue.load(database.db)).readActive('post');
    expect(documentsOf(stored)).toEqual(documentsOf(given));
    expect(documentsOf(stored).parts[1]?.keywords).toMatch(/at to Who gets it. body subject$/);
  });
});

describe('the query cache', () => {
  it('serves an equal query for 60 s, under an id of its own', async () => {
    const { ask, clock, control } = await start();
    const first = await ask('rain');
    clock.time += 59_999;
    const second = await ask('  rain ');
    expect(second.metadata.cache_hit).toBe(true);
    expect(second.servers).toEqual(first.servers);
    expect(second.metadata.query_log_id).not.toBe(first.metadata.query_log_id);
    clock.time += 2;
    expect((await ask('rain')).metadata.cache_hit).toBe(false);
    expect(control.embedded).toEqual(['rain', 'rain']);
  });

  it('normalises Unicode and white space, drops invisible characters, and keeps case and limit apart', async () => {
    const { ask } = await start();
    await ask('cafe\u0301 rain');
    expect((await ask(' caf\u00e9 rain\n')).metadata.cache_hit).toBe(true);
    expect((await ask('Caf\u00e9 rain')).metadata.cache_hit).toBe(false);
    expect((await ask('caf\u00e9 rain', { limit: 2 })).metadata.cache_hit).toBe(false);
    expect((await ask('caf\u00e9 \uff52ain\u200b', { maxTools: 2 })).metadata.cache_hit).toBe(true);
  });

  it('never serves a ranking from before a change of the catalogue', async () => {
    const { ask, catalogue } = await start();
    await ask('umbrella rain');
    await catalogue.put([entry('umbrella', 'Rents an umbrella.')], { origin: 'operator' });
    const after = await ask('umbrella rain');
    expect(after.metadata.cache_hit).toBe(false);
    expect(ids(after)[0]).toBe('umbrella');
  });

  it('never serves a ranking from before a server died', async () => {
    const died: string[] = [];
    const dead = { state: 'unreachable', checkedAtMs: 0, failures: 3, deadSinceMs: 0 } as const;
    const health = {
      of: ({ id }: { id: string }) => (died.includes(id) ? dead : undefined),
      get epoch() {
        return died.length;
      },
    };
    const { ask } = await start({ health });
    const [before] = (await ask('maps of a city')).servers;
    died.push('maps');
    const after = (await ask('maps of a city')).servers.find(({ id }) => id === 'maps');
    expect(after?.final_score).toBeCloseTo((before?.final_score ?? 0) / 2);
  });

  it('computes equal concurrent queries once', async () => {
    const { ask, control } = await start();
    const answers = await Promise.all([ask('rain'), ask('rain'), ask('rain')]);
    expect(control.embedded).toEqual(['rain']);
    expect(new Set(answers.map(({ metadata }) => metadata.query_log_id)).size).toBe(3);
    expect(answers.map(({ metadata }) => metadata.cache_hit)).toEqual([false, false, false]);
  });

  it('lets no tenant wait for all that another asks for at once', async () => {
    const { search, control } = await start();
    const gate = Promise.withResolvers<void>();
    control.gate = gate.promise;
    const flood = Array.from({ length: 100 }, (_, at) => search.search(caller, { query: `rain ${at}` }));
    const other = search.search({ ...caller, tenantId: 'other' }, { query: 'forecast' });
    gate.resolve();
    await Promise.all([...flood, other]);
    expect(control.embedded.indexOf('forecast')).toBeLessThanOrEqual(8);
    expect(control.embedded).toHaveLength(101);
  });

  it('gives up a search whose callers have all left while it waits for its turn', async () => {
    const { search, control } = await start();
    const gate = Promise.withResolvers<void>();
    control.gate = gate.promise;
    const busy = Array.from({ length: 16 }, (_, at) => search.search(caller, { query: `rain ${at}` }));
    const leaving = [new AbortController(), new AbortController()];
    const left = leaving.map(({ signal }) => search.search({ ...caller, signal }, { query: 'left' }));
    const [half, stays] = [new AbortController(), new AbortController()].map(one => ({
      one,
      answer: search.search({ ...caller, signal: one.signal }, { query: 'shared' }),
    }));
    for (const controller of [...leaving, half?.one]) controller?.abort(new Error('gone'));
    for (const answer of [...left, half?.answer]) await expect(answer).rejects.toThrow('gone');
    gate.resolve();
    await Promise.all([...busy, stays?.answer]);
    expect(control.embedded).toContain('shared');
    expect(control.embedded).not.toContain('left');
  });

  it('does not keep a ranking that was made without the embedder', async () => {
    const { ask, control } = await start();
    control.failing = true;
    const degraded = await ask('forecast');
    expect(ids(degraded)[0]).toBe('weather');
    expect(degraded.servers[0]?.scores.semantic).toBe(0);
    control.failing = false;
    const recovered = await ask('rain');
    expect(recovered.metadata.cache_hit).toBe(false);
    expect((await ask('forecast')).servers[0]?.scores.semantic).toBeGreaterThan(0);
  });
});

describe('the query log', () => {
  it('has a row for every search, cached or not', async () => {
    const { ask, search } = await start();
    const answers = [await ask('rain'), await ask('rain')];
    await search.close();
    const rows = await database.db.select().from(queryLogTable);
    expect(new Map(rows.map(row => [row.id, row.serverIds]))).toEqual(
      new Map(answers.map(answer => [answer.metadata.query_log_id, ids(answer)])),
    );
    expect(rows.filter(({ cacheHit }) => cacheHit)).toHaveLength(1);
  });
});

describe('readyGate', () => {
  it('waits for the index, and asks no more once it is filled', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    let asked = 0;
    const untilIndexed = readyGate(() => {
      asked++;
      return promise;
    });
    const waiting = Promise.all([untilIndexed(), untilIndexed()]);
    resolve();
    await waiting;
    await untilIndexed();
    expect(asked).toBe(2);
  });

  it.each([
    ['is not filled in time', () => new Promise(() => {})],
    ['could not be filled', () => Promise.reject(new Error('the embedder left'))],
  ])('is unavailable where the index %s', async (_, indexed) => {
    await expect(readyGate(indexed, 1)()).rejects.toMatchObject({ code: 'unavailable', retryable: true });
  });

  it('says why the index could not be filled if the index does', async () => {
    const indexed = () =>
      Promise.reject(new SwitchboardError('invalid_request', 'The catalogue is too large.'));
    const said = { code: 'unavailable', detail: 'The catalogue is too large.' };
    await expect(readyGate(indexed)()).rejects.toMatchObject(said);
  });
});
