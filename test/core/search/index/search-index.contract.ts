import { setImmediate, setTimeout } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import type { CatalogueChange } from '../../../../src/core/catalogue/catalogue.ts';
import type { Embedder } from '../../../../src/core/search/embed/embedder.ts';
import type { Asked, SearchIndex } from '../../../../src/core/search/index/search-index.ts';
import { server, wholeOf, type controlledEmbedder } from '../support.ts';

/** An index that holds nothing yet, and the embedder it uses. */
export interface StartedIndex extends AsyncDisposable {
  readonly index: SearchIndex;
  readonly control: ReturnType<typeof controlledEmbedder>;
}

export const weather = server('weather', 'Weather forecasts.', { get_forecast: 'Rain and sun for a city.' });
export const mail = server('mail', 'Reads and sends e-mail.', {
  send: 'Sends a message.',
  search_inbox: 'Finds messages.',
});

export const update = async (index: SearchIndex, change: Partial<CatalogueChange>) => {
  const takeEffect = await index.prepare({ upserted: [], removed: [], ...change });
  await takeEffect();
  // An engine may be done a little later.
  while (index.degraded?.includes('still indexing')) await setTimeout(10);
};

/** Ids of the servers for which a query has evidence in words. */
export const find = async (index: SearchIndex, query: string) => {
  const found = (await index.find(index.ask(query))).candidates;
  return found
    .filter(({ keyword }) => keyword > 0)
    .map(({ serverId }) => serverId)
    .sort();
};

/** What a query finds, by id. */
export const evidence = async (index: SearchIndex, query: string) =>
  (await index.find(index.ask(query))).candidates.toSorted((a, b) => a.serverId.localeCompare(b.serverId));

const many = (count: number, word: string, id = word) =>
  Array.from({ length: count }, (_, at) =>
    server(`${id}${at}`, `Zebra ${word}.`, { x: `Zebra ${word}`, y: `Zebra ${word}`, z: `Zebra ${word}` }),
  );

/** What every engine behind the port guarantees. */
export function describeSearchIndex(
  engine: string,
  start: (embedder?: Pick<Embedder, 'words'>) => Promise<StartedIndex>,
): void {
  describe(`a search index: ${engine}`, () => {
    it('finds a server by its own text and by a tool, with the evidence of every tool', async () => {
      await using started = await start();
      const { index } = started;
      await update(index, { upserted: [weather, mail] });
      const best = (await index.find(index.ask('search inbox'))).candidates.find(
        ({ serverId }) => serverId === 'mail',
      );
      expect(best?.semantic).toBeGreaterThan(0.4);
      expect(best?.tools).toMatchObject({ semantic: { length: 2 }, keyword: { length: 2 } });
      expect(best?.tools.keyword[1]).toBeGreaterThan(best?.tools.keyword[0] ?? 0);
      expect(best?.tools.semantic[1]).toBeCloseTo(best?.semantic ?? 0, 6);
      expect(index).toMatchObject({ size: 2, degraded: undefined });
      expect(index.id).toContain(started.control.embedder.id);
    });

    it('finds a server by an example, which is no tool', async () => {
      await using started = await start();
      const { index } = started;
      await update(index, { upserted: [weather, { ...mail, examples: ['tell grandma the news'] }] });
      const { candidates } = await index.find(index.ask('tell grandma the news'));
      const found = candidates.find(({ serverId }) => serverId === 'mail');
      expect(found?.semantic).toBeCloseTo(1, 1);
      expect(found).toMatchObject({ texts: 4, excess: 0, tools: { semantic: { length: 2 } } });
    });

    it('says by how much the best text exceeds what the examples support', async () => {
      await using started = await start();
      const { index } = started;
      await update(index, { upserted: [{ ...weather, examples: ['tell grandma the news', 'is it cold'] }] });
      const { candidates } = await index.find(index.ask('tell grandma the news'));
      const [found] = candidates;
      expect(found?.semantic).toBeCloseTo(1, 1);
      expect(found?.excess).toBeGreaterThan(0.3);
    });

    it('searches a misspelled query as it is and corrected, for a model that needs it', async () => {
      await using started = await start({ words: new Set(['inbox']) });
      const { index, control } = started;
      await update(index, { upserted: [weather, mail] });
      expect(await find(index, 'wether tomorow')).toEqual(['weather']);
      expect(control.embedded.slice(-2)).toEqual(['wether tomorow', 'weather tomorow']);
      expect(await find(index, 'inbxo')).toEqual(['mail']);
    });

    it('finds the clauses of a query one by one, with vectors of their own', async () => {
      await using started = await start();
      const { index } = started;
      await update(index, { upserted: [weather, mail] });
      const asked = index.ask('search the inbox today and then tell me the forecast');
      const { clauses } = asked;
      expect(clauses.map(({ text }) => text)).toEqual(['search the inbox today', 'tell me the forecast']);
      const vectors = await Promise.all(clauses.map(({ vectors: own }) => own));
      expect(vectors.map(one => one.length)).toEqual([1, 1]);
      const best = async (clause: Asked) =>
        (await index.find(clause)).candidates.toSorted((a, b) => b.semantic - a.semantic)[0]?.serverId;
      expect(await Promise.all(clauses.map(best))).toEqual(['mail', 'weather']);
    });

    it('compares the tools of a server that it does not hold, and leaves nothing of it behind', async () => {
      await using started = await start();
      const { index, control } = started;
      await update(index, { upserted: [weather] });
      const embedded = control.embedded.length;
      const tools = await index.compareTools('finds messages', mail);
      expect(tools).toMatchObject({ semantic: { length: 2 }, keyword: { length: 2 } });
      expect(tools.keyword[1]).toBeGreaterThan(tools.keyword[0] ?? 0);
      // The query alone: whoever asks must not make others wait for its tools.
      expect(control.embedded.length).toBe(embedded + 1);
      expect(await find(index, 'inbox')).toEqual([]);
      expect(await index.compareTools('finds messages', { ...mail, tools: [] })).toMatchObject({
        keyword: { length: 0 },
      });
    });

    it('compares the tools of a server by words alone while some of them are not embedded', async () => {
      await using started = await start();
      const { index } = started;
      const half = server('half', 'Half.', { one: 'Sends parcels', two: 'Finds messages in the inbox' });
      await update(index, { upserted: [server('half', 'Half.', { one: 'Sends parcels' })] });
      expect(Array.from((await index.compareTools('finds messages', half)).semantic)).toEqual([0, 0]);
      await update(index, { upserted: [half] });
      const tools = await index.compareTools('finds messages', half);
      expect(tools.semantic[1]).toBeGreaterThan(tools.semantic[0] ?? 0);
    });

    it('forgets what is removed, takes it back, and replaces what is rewritten', async () => {
      await using started = await start();
      const { index } = started;
      await update(index, { upserted: [weather, mail] });
      await update(index, { removed: ['mail', 'unknown'] });
      expect(await find(index, 'inbox')).toEqual([]);
      expect(index.size).toBe(1);
      await update(index, { upserted: [mail] });
      expect(await find(index, 'inbox')).toEqual(['mail']);
      await update(index, { upserted: [server('mail', 'Postage stamps.')] });
      expect(await find(index, 'inbox')).toEqual([]);
      expect(await find(index, 'stamps')).toEqual(['mail']);
      expect(
        (await index.find(index.ask('stamps'))).candidates.find(one => one.serverId === 'mail')?.tools,
      ).toMatchObject({ semantic: { length: 0 } });
    });

    it('gives the same evidence after any detour as from the start', async () => {
      await using straight = await start();
      await using detour = await start();
      await update(straight.index, { upserted: [weather, mail] });
      await update(detour.index, {
        upserted: [mail, server('old', 'Weather, mail and messages.', { a: 'x', b: 'y' })],
      });
      await update(detour.index, { upserted: [weather], removed: ['old', 'mail'] });
      await update(detour.index, { upserted: [mail] });
      const query = 'send weather messages';
      expect(await evidence(detour.index, query)).toEqual(await evidence(straight.index, query));
    });

    it('grows its epoch with every change and with no query', async () => {
      await using started = await start();
      const { index } = started;
      const epochs = [index.epoch];
      await update(index, { upserted: [weather] });
      epochs.push(index.epoch);
      await index.find(index.ask('rain'));
      expect(index.epoch).toBe(epochs[1]);
      await update(index, { removed: ['weather'] });
      epochs.push(index.epoch);
      expect(epochs).toEqual(epochs.toSorted((a, b) => a - b));
      expect(new Set(epochs).size).toBe(3);
    });

    it('stays as it was when a change fails, and takes the next one', async () => {
      await using started = await start();
      const { index, control } = started;
      await update(index, { upserted: [weather] });
      const { epoch } = index;
      control.failing = true;
      const fresh = server('new', 'Never embedded text.');
      await expect(update(index, { upserted: [fresh], removed: ['weather'] })).rejects.toThrow(
        'the embedder is down',
      );
      expect(index).toMatchObject({ size: 1, epoch });
      control.failing = false;
      expect(await find(index, 'forecast')).toEqual(['weather']);
      await update(index, { upserted: [fresh], removed: ['weather'] });
      expect(await find(index, 'embedded')).toEqual(['new']);
    });

    it('shows nothing of a change that never takes effect', async () => {
      await using started = await start();
      const { index } = started;
      await update(index, { upserted: [weather, mail] });
      await index.prepare({ upserted: [server('mail', 'Postage stamps.')], removed: ['weather'] });
      expect(await find(index, 'inbox')).toEqual(['mail']);
      expect(await find(index, 'forecast')).toEqual(['weather']);
      expect(await find(index, 'stamps')).toEqual([]);
    });

    it('shows a query every server before or after a change, never half of it', async () => {
      await using started = await start();
      const { index } = started;
      const versions = (version: string) => many(60, version, 'server');
      await update(index, { upserted: versions('old') });
      let updating = true;
      const updated = update(index, { upserted: versions('new') }).finally(() => {
        updating = false;
      });
      const stillUpdating = () => updating;
      let seen = 0;
      while (stillUpdating()) {
        // This embedder answers without leaving the microtask queue: the change needs a turn.
        await setImmediate();
        const found = (await index.find(index.ask('zebra old'))).candidates;
        expect(found).toHaveLength(60);
        for (const { tools } of found) {
          expect([tools.keyword.length, new Set(Array.from(tools.keyword)).size]).toEqual([3, 1]);
          seen++;
        }
      }
      await updated;
      expect(seen).toBeGreaterThanOrEqual(60);
    });

    it('scores a query as after a change that came while it was embedded', async () => {
      await using started = await start();
      const { index } = started;
      await update(index, { upserted: many(6, 'old') });
      const asked = index.ask('zebra quagga');
      const { promise, resolve } = Promise.withResolvers<void>();
      const finding = index.find({ ...asked, vectors: promise.then(() => asked.vectors) });
      await update(index, { upserted: many(3, 'new').concat(server('quagga', 'Quagga.')) });
      resolve();
      const scoresOf = ({ candidates }: Awaited<typeof finding>) =>
        Object.fromEntries(
          candidates
            .filter(({ serverId }) => serverId.startsWith('old'))
            .map(({ serverId, keyword }) => [serverId, keyword]),
        );
      const scores = scoresOf(await finding);
      expect(Object.keys(scores)).toHaveLength(6);
      expect(scores).toEqual(scoresOf(await index.find(index.ask('zebra quagga'))));
    });

    it('replaces everything at once: no query sees a mixture', async () => {
      await using started = await start();
      const { index } = started;
      await update(index, { upserted: many(60, 'old') });
      let updating = true;
      const removed = many(60, 'old').map(({ id }) => id);
      const replaced = update(index, { upserted: many(60, 'new'), removed }).finally(() => {
        updating = false;
      });
      const stillUpdating = () => updating;
      while (stillUpdating()) {
        await setImmediate();
        const found = (await index.find(index.ask('zebra'))).candidates;
        expect(found).toHaveLength(60);
        expect(new Set(found.map(({ serverId }) => serverId.slice(0, 3))).size).toBe(1);
      }
      await replaced;
      expect((await find(index, 'zebra')).every(id => id.startsWith('new'))).toBe(true);
    });

    it('changes a part of the whole at once: no query sees a mixture, and the rest stays', async () => {
      await using started = await start();
      const { index } = started;
      const kept = many(40, 'kept');
      await update(index, { upserted: [...kept, ...many(20, 'old')] });
      const fresh = many(20, 'new');
      const removed = many(20, 'old').map(({ id }) => id);
      let updating = true;
      const changed = update(index, {
        upserted: fresh,
        removed,
        whole: wholeOf([...kept, ...fresh]),
      }).finally(() => {
        updating = false;
      });
      const stillUpdating = () => updating;
      while (stillUpdating()) {
        await setImmediate();
        const words = (await index.find(index.ask('zebra'))).candidates.map(({ serverId }) =>
          serverId.slice(0, 3),
        );
        expect(words).toHaveLength(60);
        expect(new Set(words).size).toBe(2);
      }
      await changed;
      expect(await find(index, 'zebra old')).toEqual([...kept, ...fresh].map(({ id }) => id).sort());
      expect(index.size).toBe(60);
    });

    it('gives the same evidence after changes of a part of the whole, one of which never took effect', async () => {
      await using straight = await start();
      await using detour = await start();
      const rest = [
        weather,
        server('maps', 'Shows maps.', { route: 'The way to a city.', find: 'A place.' }),
      ];
      await update(straight.index, { upserted: [...rest, mail] });
      await update(detour.index, { upserted: [...rest, server('old', 'Weather messages.', { a: 'x' })] });
      const other = server('maps', 'Postage stamps for messages.');
      await detour.index.prepare({ upserted: [other], removed: ['old'], whole: wholeOf([weather, other]) });
      expect(await find(detour.index, 'stamps')).toEqual([]);
      await update(detour.index, { upserted: [mail], removed: ['old'], whole: wholeOf([...rest, mail]) });
      const query = 'send weather messages to a city';
      expect(await evidence(detour.index, query)).toEqual(await evidence(straight.index, query));
    });

    it('gives the same evidence after a change of a part of the whole that was ready, and then failed', async () => {
      await using straight = await start();
      await using detour = await start();
      const rest = [weather, mail, server('maps', 'Shows maps.', { route: 'The way to a city.' })];
      for (const { index } of [straight, detour]) await update(index, { upserted: rest });
      const failing = new AbortController();
      const other = server('maps', 'Postage stamps for messages.');
      const change = { upserted: [other], removed: [], whole: wholeOf([weather, mail, other]) };
      await detour.index.prepare(change, undefined, failing.signal);
      failing.abort(new Error('the database is down'));
      const query = 'send weather messages to a city';
      expect(await evidence(detour.index, query)).toEqual(await evidence(straight.index, query));
    });

    it('stays as it was when a change is ended on the way', async () => {
      await using started = await start();
      const { index } = started;
      await update(index, { upserted: [weather, mail] });
      const ending = new AbortController();
      const fresh = server('new', 'A zebra.');
      const preparing = index.prepare(
        { upserted: [fresh], removed: ['mail'], whole: wholeOf([weather, fresh]) },
        () => ending.abort(new Error('ended')),
        ending.signal,
      );
      await expect(preparing).rejects.toThrow('ended');
      expect(await find(index, 'zebra')).toEqual([]);
      expect(await find(index, 'inbox')).toEqual(['mail']);
      expect(index.size).toBe(2);
    });

    it('answers by keyword while the embedder fails, and recovers', async () => {
      await using started = await start();
      const { index, control } = started;
      await update(index, { upserted: [weather, mail] });
      control.failing = true;
      expect(await find(index, 'forecast')).toEqual(['weather']);
      expect(await find(index, 'inbox')).toEqual(['mail']);
      expect(index.degraded).toMatch(/keyword only/);
      control.failing = false;
      await find(index, 'forecast');
      expect(index.degraded).toBeUndefined();
    });

    it('keeps only the best few hundred of many servers', async () => {
      await using started = await start();
      const { index } = started;
      const servers = Array.from({ length: 900 }, (_, at) =>
        server(`s${at}`, at === 777 ? 'Penguin' : `Server number ${at}`),
      );
      await update(index, { upserted: servers });
      const found = (await index.find(index.ask('penguin'))).candidates;
      expect(found.length).toBeLessThanOrEqual(400);
      expect(found.some(({ serverId }) => serverId === 's777')).toBe(true);
    });

    it('knows a server by any one sentence of a longer request', async () => {
      await using started = await start();
      const { index } = started;
      await update(index, { upserted: [weather, mail] });
      const semantic = async (query: string) =>
        (await index.find(index.ask(query))).candidates.find(({ serverId }) => serverId === 'mail')
          ?.semantic ?? 0;
      const alone = await semantic('Finds messages.');
      expect(alone).toBeGreaterThan(0.5);
      expect(await semantic('My grandmother collects porcelain. Finds messages.')).toBeCloseTo(alone, 6);
    });

    it('knows every tool of a server with a thousand', async () => {
      await using started = await start();
      const { index } = started;
      const tools = Object.fromEntries(
        Array.from({ length: 1_000 }, (_, at) => [
          `tool_${at}`,
          at === 999 ? 'Feeds the penguins.' : `Task ${at}.`,
        ]),
      );
      await update(index, { upserted: [weather, mail, server('big', 'Does a lot.', tools)] });
      const found = (await index.find(index.ask('feeds penguins'))).candidates;
      const big = found.filter(({ serverId }) => serverId === 'big');
      expect(big).toHaveLength(1);
      expect(big[0]?.tools.semantic).toHaveLength(1_000);
      expect(big[0]?.tools.semantic[999]).toBeCloseTo(big[0]?.semantic ?? 0, 6);
      await update(index, { upserted: [server('big', 'Does a little.', { rest: 'Rests.' })] });
      expect(await find(index, 'penguins')).toEqual([]);
    });

    it('takes ids of every form', async () => {
      await using started = await start();
      const { index } = started;
      const ids = ['a.b', 'a-b', 'a_b', '0', `x${'.-_y'.repeat(31)}`];
      await update(index, { upserted: ids.map(id => server(id, 'A zebra.')) });
      expect(await find(index, 'zebra')).toEqual(ids.toSorted());
    });

    it('takes queries of every form', async () => {
      await using started = await start();
      const { index } = started;
      await update(index, { upserted: [weather, mail] });
      for (const query of [
        '"forecast',
        '-forecast',
        'forecast -rain "x y"',
        '…',
        '天気',
        'the',
        'a'.repeat(1_000),
      ])
        expect(Array.isArray((await index.find(index.ask(query))).candidates)).toBe(true);
      expect(await find(index, '-forecast "')).toEqual(['weather']);
    });

    it('gives no candidates from an empty catalogue', async () => {
      await using started = await start();
      expect((await started.index.find(started.index.ask('anything'))).candidates).toEqual([]);
    });
  });
}
