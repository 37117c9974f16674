import { setImmediate } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { CatalogueChange } from '../../../src/core/catalogue/catalogue.ts';
import { createEmbeddedIndex } from '../../../src/core/search/search-index-embedded.ts';
import type { SearchIndex } from '../../../src/core/search/search-index.ts';
import { openDatabase, type OpenDatabase } from '../../../src/infra/database.ts';
import { controlledEmbedder, recordingLog, server, settableClock } from './support.ts';

let database: OpenDatabase;
beforeAll(async () => {
  database = await openDatabase();
});
afterAll(() => database.close());

const weather = server('weather', 'Weather forecasts.', { get_forecast: 'Rain and sun for a city.' });
const mail = server('mail', 'Reads and sends e-mail.', {
  send: 'Sends a message.',
  search_inbox: 'Finds messages.',
});

async function start() {
  const control = controlledEmbedder();
  const { log, messages } = recordingLog();
  const clock = settableClock();
  const index = await createEmbeddedIndex({ embedder: control.embedder, db: database.db, log, clock });
  const find = async (query: string) => {
    const found = await index.candidates(query);
    return found.filter(({ keyword }) => keyword > 0).map(({ serverId }) => serverId);
  };
  return { index, control, messages, clock, find };
}

const update = async (index: SearchIndex, change: CatalogueChange) => {
  const takeEffect = await index.prepare(change);
  await takeEffect();
};

describe('EmbeddedIndex', () => {
  it('finds a server by its own text and by a tool, with the evidence of every tool', async () => {
    const { index } = await start();
    await update(index, { upserted: [weather, mail], removed: [] });
    const found = await index.candidates('search inbox');
    const best = found.find(({ serverId }) => serverId === 'mail');
    expect(best?.semantic).toBeGreaterThan(0.4);
    expect(best?.tools.map(tool => tool.index)).toEqual([0, 1]);
    expect(best?.tools[1]?.keyword).toBeGreaterThan(best?.tools[0]?.keyword ?? 0);
    expect(best?.tools[1]?.semantic).toBeCloseTo(best?.semantic ?? 0, 6);
    expect(index).toMatchObject({ size: 2, degraded: undefined, id: 'embedded:char-ngrams-v1' });
  });

  it('forgets what is removed, takes it back, and replaces what is rewritten', async () => {
    const { index, find } = await start();
    await update(index, { upserted: [weather, mail], removed: [] });
    await update(index, { upserted: [], removed: ['mail', 'unknown'] });
    expect(await find('inbox')).toEqual([]);
    expect(index.size).toBe(1);
    await update(index, { upserted: [mail], removed: [] });
    expect(await find('inbox')).toEqual(['mail']);
    await update(index, { upserted: [server('mail', 'Postage stamps.')], removed: [] });
    expect(await find('inbox')).toEqual([]);
    expect(await find('stamps')).toEqual(['mail']);
    expect((await index.candidates('stamps')).find(one => one.serverId === 'mail')?.tools).toEqual([]);
  });

  it('gives the same evidence after any detour as from the start', async () => {
    const [straight, detour] = [await start(), await start()];
    await update(straight.index, { upserted: [weather, mail], removed: [] });
    await update(detour.index, {
      upserted: [mail, server('old', 'Weather, mail and messages.', { a: 'x', b: 'y' })],
      removed: [],
    });
    await update(detour.index, { upserted: [weather], removed: ['old', 'mail'] });
    await update(detour.index, { upserted: [mail], removed: [] });
    const sorted = async ({ index }: typeof straight) =>
      (await index.candidates('send weather messages')).sort((a, b) => a.serverId.localeCompare(b.serverId));
    expect(await sorted(detour)).toEqual(await sorted(straight));
  });

  it('grows its epoch with every change and with no query', async () => {
    const { index } = await start();
    const epochs = [index.epoch];
    await update(index, { upserted: [weather], removed: [] });
    epochs.push(index.epoch);
    await index.candidates('rain');
    expect(index.epoch).toBe(epochs[1]);
    await update(index, { upserted: [], removed: ['weather'] });
    epochs.push(index.epoch);
    expect(epochs).toEqual(epochs.toSorted((a, b) => a - b));
    expect(new Set(epochs).size).toBe(3);
  });

  it('stays as it was when an update fails, and takes the next one', async () => {
    const { index, control, find } = await start();
    await update(index, { upserted: [weather], removed: [] });
    const { epoch } = index;
    control.failing = true;
    const updated = update(index, {
      upserted: [server('new', 'Never embedded text.')],
      removed: ['weather'],
    });
    await expect(updated).rejects.toThrow('the embedder is down');
    expect(index).toMatchObject({ size: 1, epoch });
    control.failing = false;
    expect(await find('forecast')).toEqual(['weather']);
    await update(index, { upserted: [server('new', 'Never embedded text.')], removed: ['weather'] });
    expect(await find('embedded')).toEqual(['new']);
  });

  it('shows a query every server before or after an update, never half of it', async () => {
    const { index } = await start();
    const versions = (version: string) =>
      Array.from({ length: 60 }, (_, at) =>
        server(`s${at}`, `Zebra ${version}`, {
          x: `Zebra ${version}`,
          y: `Zebra ${version}`,
          z: `Zebra ${version}`,
        }),
      );
    await update(index, { upserted: versions('old'), removed: [] });
    let updating = true;
    const updated = update(index, { upserted: versions('new'), removed: [] }).finally(() => {
      updating = false;
    });
    const stillUpdating = () => updating;
    let seen = 0;
    while (stillUpdating()) {
      // This embedder answers without leaving the microtask queue: the update needs a turn.
      await setImmediate();
      const found = await index.candidates('zebra old');
      expect(found).toHaveLength(60);
      for (const { tools } of found) {
        const scores = new Set(tools.map(tool => tool.keyword));
        expect([tools.length, scores.size]).toEqual([3, 1]);
        seen++;
      }
    }
    await updated;
    expect(seen).toBeGreaterThanOrEqual(60);
  });

  it('replaces everything at once: no query sees a mixture', async () => {
    const { index, find } = await start();
    const many = (word: string) =>
      Array.from({ length: 60 }, (_, at) => server(`${word}${at}`, `Zebra ${word}.`));
    await update(index, { upserted: many('old'), removed: [] });
    const removed = many('old').map(({ id }) => id);
    let updating = true;
    const replaced = update(index, { upserted: many('new'), removed }).finally(() => {
      updating = false;
    });
    const stillUpdating = () => updating;
    while (stillUpdating()) {
      await setImmediate();
      const found = await index.candidates('zebra');
      expect(found).toHaveLength(60);
      expect(new Set(found.map(({ serverId }) => serverId.slice(0, 3))).size).toBe(1);
    }
    await replaced;
    expect((await find('zebra')).every(id => id.startsWith('new'))).toBe(true);
  });

  it('answers by keyword while the embedder fails, says so once a minute, and recovers', async () => {
    const { index, control, messages, clock, find } = await start();
    await update(index, { upserted: [weather, mail], removed: [] });
    control.failing = true;
    expect(await find('forecast')).toEqual(['weather']);
    expect(await find('inbox')).toEqual(['mail']);
    expect(index.degraded).toMatch(/keyword only/);
    expect(messages()).toHaveLength(1);
    clock.time += 60_000;
    await find('forecast');
    expect(messages()).toHaveLength(2);
    control.failing = false;
    await find('forecast');
    expect(index.degraded).toBeUndefined();
  });

  it('keeps only the best few hundred of many servers', async () => {
    const { index } = await start();
    const many = Array.from({ length: 900 }, (_, at) =>
      server(`s${at}`, at === 777 ? 'Penguin' : `Server number ${at}`),
    );
    await update(index, { upserted: many, removed: [] });
    const found = await index.candidates('penguin');
    expect(found.length).toBeLessThanOrEqual(400);
    expect(found.some(({ serverId }) => serverId === 's777')).toBe(true);
  });

  it('knows a server by any one sentence of a longer request', async () => {
    const { index } = await start();
    await update(index, { upserted: [weather, mail], removed: [] });
    const semantic = async (query: string) =>
      (await index.candidates(query)).find(({ serverId }) => serverId === 'mail')?.semantic ?? 0;
    const alone = await semantic('Finds messages.');
    expect(await semantic('My grandmother collects porcelain. Finds messages.')).toBeCloseTo(alone, 6);
  });

  it('gives no candidates from an empty catalogue', async () => {
    const { index } = await start();
    expect(await index.candidates('anything')).toEqual([]);
  });
});
