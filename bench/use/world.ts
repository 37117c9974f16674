import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { SCOPES, type Caller } from '../../src/core/access/caller.ts';
import { Catalogue } from '../../src/core/catalogue/catalogue.ts';
import type { Entry } from '../../src/core/catalogue/entry.ts';
import { readEntries } from '../../src/core/catalogue/import-file.ts';
import { UNUSED, type UseSignals } from '../../src/core/catalogue/use-tally.ts';
import { createMiniLmEmbedder } from '../../src/core/search/embed/embedder-minilm.ts';
import { createEmbeddedIndex } from '../../src/core/search/index/search-index-embedded.ts';
import type { Findings, SearchIndex } from '../../src/core/search/index/search-index.ts';
import { createSearch } from '../../src/core/search/search.ts';
import { openDatabase } from '../../src/platform/database/database.ts';
import { createLog } from '../../src/platform/telemetry/log.ts';

const fileOf = (name: string) => fileURLToPath(new URL(`../../catalogue/${name}`, import.meta.url));
const DAY_MS = 86_400_000;

export interface Found {
  readonly id: string;
  readonly score: number;
}

/** What is known of a server's use, by its id. */
export type UseOf = (serverId: string) => UseSignals;

/** A catalogue in the real index and the real search, and the time, which passes as it is told to. */
export interface World extends AsyncDisposable {
  /** Whole days since the epoch. */
  day: number;
  /** Best first. */
  search(query: string, useOf?: UseOf, limit?: number): Promise<Found[]>;
}

export async function shippedEntries(): Promise<readonly Entry[]> {
  return readEntries(await readFile(fileOf('servers.jsonl'), 'utf8'), { allowHttp: false }).entries;
}

export async function openWorld(entries: readonly Entry[]): Promise<World> {
  await using opened = new AsyncDisposableStack();
  const database = await openDatabase();
  opened.defer(() => database.close());
  const { db } = database;
  const embedder = await createMiniLmEmbedder();
  opened.defer(() => embedder.close());
  const log = createLog('error');
  const time = { day: 20_778 };
  const clock = { now: () => time.day * DAY_MS };
  const catalogue = await Catalogue.load(db);
  await catalogue.put(entries, { origin: 'operator', replace: true });
  const shippedVectors = fileOf('vectors.bin');
  const index = await createEmbeddedIndex({ embedder, db, log, clock, shippedVectors });
  opened.defer(() => index.close());
  await catalogue.attachIndex(change => index.prepare(change));
  let use: UseOf = () => UNUSED;
  const search = createSearch({ catalogue, index: remembering(index), db, log, clock, use: id => use(id) });
  opened.defer(() => search.close());
  const stack = opened.move();
  return {
    get day() {
      return time.day;
    },
    set day(day) {
      time.day = day;
    },
    async search(query, useOf = () => UNUSED, limit = 10) {
      use = useOf;
      const { servers } = await search.search(CALLER, { query, limit, maxTools: 0 });
      return servers.map(({ id, final_score }) => ({ id, score: final_score }));
    },
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

const CALLER: Caller = {
  tenantId: 'bench',
  keyId: 'bench',
  scopes: new Set(SCOPES),
  requestId: 'bench',
  signal: new AbortController().signal,
};

/** The catalogue does not change: evidence is looked for once a query, and no ranking is cached, as use does change. */
function remembering(index: SearchIndex): SearchIndex {
  const known = new Map<string, Promise<Findings>>();
  let epoch = 0;
  return {
    id: index.id,
    embedderId: index.embedderId,
    size: index.size,
    degraded: undefined,
    get epoch() {
      return ++epoch;
    },
    prepare: change => index.prepare(change),
    close: () => index.close(),
    compareTools: (query, server) => index.compareTools(query, server),
    find(query) {
      const found = known.get(query) ?? index.find(query);
      known.set(query, found);
      return found;
    },
  };
}

export const pick = <T>(items: readonly T[], random: () => number): T => {
  const item = items[Math.floor(random() * items.length)];
  if (item === undefined) throw new Error('nothing to pick from');
  return item;
};

/** Without a share of its words. */
export const thinned = (text: string, share: number, random: () => number): string =>
  text
    .split(' ')
    .filter((_word, at) => at === 0 || random() >= share)
    .join(' ');

/** What people might ask that a server is for: each of its tools' descriptions, or its own, less a share of the words. */
export const queriesFor = (
  { description, tools = [] }: Entry,
  random: () => number,
  without = 0.4,
): string[] =>
  (tools.length === 0 ? [description] : tools.map(tool => tool.description))
    .filter(text => text.trim() !== '')
    .map(text => thinned(text, without, random).slice(0, 500));

export const mean = (values: readonly number[]): number =>
  values.length === 0 ? Number.NaN : values.reduce((sum, value) => sum + value, 0) / values.length;
