import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { embeddings } from '../../../../src/core/search/schema.ts';
import { pruneVectors, VectorCache, VectorPruning } from '../../../../src/core/search/index/vector-cache.ts';
import type { OpenDatabase } from '../../../../src/platform/database/database.ts';
import { openTestDatabase } from '../../../support/database.ts';
import { controlledEmbedder, server, silent, wholeOf } from '../support.ts';

let database: OpenDatabase;
beforeAll(async () => void (database = await openTestDatabase()));
afterAll(() => database.close());
beforeEach(async () => void (await database.db.delete(embeddings)));

const TOOLS = { get_forecast: 'The weather of the next days.', get_map: 'A map.' };
const catalogued = server('weather', 'Weather and maps.', TOOLS);

/** Vectors of the catalogue's three texts, of 700 that nobody needs, and of 600 by another embedder. */
async function fill() {
  const control = controlledEmbedder();
  const { db } = database;
  const needed = [
    'weather. Weather and maps.',
    'weather: get forecast. The weather of the next days.',
    'weather: get map. A map.',
  ];
  const texts = [...needed, ...Array.from({ length: 700 }, (_, at) => `old text ${at}`)];
  const cache = await VectorCache.open({ embedder: control.embedder, db, log: silent });
  await cache.vectorsOf(texts);
  const other = controlledEmbedder();
  const renamed = { ...other.embedder, id: 'another' };
  await (await VectorCache.open({ embedder: renamed, db, log: silent })).vectorsOf(texts.slice(0, 600));
  const parts = { db, index: { embedderId: control.embedder.id }, catalogue: wholeOf([catalogued]) };
  const embeddedAnew = async (wanted: readonly string[]) => {
    control.embedded.length = 0;
    await cache.vectorsOf(wanted);
    return control.embedded.length;
  };
  return { parts, needed, texts, embeddedAnew };
}

describe('pruneVectors', () => {
  it('deletes what no text of the catalogue needs with the embedder in use, and nothing else', async () => {
    const { parts, needed, embeddedAnew } = await fill();
    expect(await pruneVectors({ ...parts, spareRows: 0 })).toBe(1_300);
    expect(await database.db.$count(embeddings)).toBe(3);
    expect(await embeddedAnew(needed)).toBe(0);
  });

  it('spares a number of them: what was embedded of an import cut short is not embedded again', async () => {
    const { parts, texts, embeddedAnew } = await fill();
    expect(await pruneVectors(parts)).toBe(0);
    expect(await embeddedAnew(texts)).toBe(0);
    expect(await pruneVectors({ ...parts, spareRows: 900 })).toBe(400);
    expect(await database.db.$count(embeddings)).toBe(903);
    expect(await pruneVectors({ ...parts, spareRows: 900 })).toBe(0);
  });

  it('deletes nothing during an import, whose texts are not in the catalogue yet', async () => {
    const { parts } = await fill();
    const catalogue = { ...parts.catalogue, isWriting: true };
    expect(await pruneVectors({ ...parts, catalogue, spareRows: 0 })).toBe(0);
    expect(await database.db.$count(embeddings)).toBe(1_303);
  });
});

describe('VectorPruning', () => {
  afterEach(() => void vi.useRealTimers());

  it('prunes ten minutes after the start, then once a day, until it is closed', async () => {
    const { parts } = await fill();
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    let rounds = 0;
    const servers = () => {
      rounds++;
      return wholeOf([catalogued]).servers();
    };
    const pruning = new VectorPruning({ ...parts, catalogue: { servers }, spareRows: 0, log: silent });
    vi.advanceTimersByTime(599_999);
    expect(rounds).toBe(0);
    vi.advanceTimersByTime(1);
    await vi.waitFor(() => expect(rounds).toBe(1), { timeout: 20_000 });
    // The next round is planned when this one has ended.
    await vi.waitFor(() => expect(vi.getTimerCount()).toBe(1), { timeout: 20_000 });
    vi.advanceTimersByTime(86_400_000);
    await vi.waitFor(() => expect(rounds).toBe(2), { timeout: 20_000 });
    await pruning.close();
    vi.advanceTimersByTime(86_400_000);
    expect(rounds).toBe(2);
  });
});
