import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { Catalogue } from '../../../src/core/catalogue/catalogue.ts';
import type { Entry, Server } from '../../../src/core/catalogue/entry.ts';
import { servers } from '../../../src/core/catalogue/schema.ts';
import type { OpenDatabase } from '../../../src/platform/database/database.ts';
import { openTestDatabase } from '../../support/database.ts';
import { wholeOf } from './whole.ts';

let database: OpenDatabase;
let catalogue: Catalogue;

beforeAll(async () => void (database = await openTestDatabase()));
afterAll(() => database.close());
beforeEach(async () => {
  await database.db.delete(servers);
  catalogue = await Catalogue.load(database.db);
});

const entry = (id: string, more: Partial<Entry> = {}): Entry => ({
  id,
  name: id.toUpperCase(),
  description: `Does ${id}.`,
  remote_url: `https://${id}.example/mcp`,
  ...more,
});
const tool = (name: string, description: string) => ({
  name,
  description,
  input_schema: { type: 'object', properties: { x: { type: 'number', description: 'A number.' } } },
});
/** The ids of the servers, sorted. */
async function idsOf(whole: AsyncIterable<Server>): Promise<string[]> {
  const ids: string[] = [];
  for await (const { id } of whole) ids.push(id);
  return ids.sort();
}
const activeIds = (one: Catalogue) => [...one.active()].map(server => server.id).sort();

describe('put', () => {
  it('survives a restart: what was stored is what is loaded', async () => {
    const tools = [
      {
        name: 't',
        description: 'Runs t.',
        input_schema: { type: 'object', properties: { x: { type: 'number' } } },
      },
    ];
    await catalogue.put(
      [entry('a', { tools, transport: 'sse', auth: { kind: 'none' }, categories: ['code'] })],
      { origin: 'operator' },
    );
    const reloaded = await Catalogue.load(database.db);
    expect(reloaded.get('a')).toEqual(catalogue.get('a'));
    expect(await wholeOf(reloaded, 'a')).toEqual(await wholeOf(catalogue, 'a'));
    expect((await wholeOf(reloaded, 'a'))?.tools).toEqual(tools);
  });

  it('keeps the last of two tools with one name', async () => {
    await catalogue.put([entry('a', { tools: [tool('t', 'old'), tool('t', 'new')] })], {
      origin: 'operator',
    });
    expect((await wholeOf(catalogue, 'a'))?.tools.map(one => one.description)).toEqual(['new']);
  });

  it("an upgrade rewrites and retires what was shipped, and never touches an operator's entry", async () => {
    await catalogue.put([entry('kept'), entry('gone'), entry('mine')], { origin: 'shipped', replace: true });
    await catalogue.put([entry('mine', { name: 'My own' }), entry('extra')], { origin: 'operator' });
    const change = await catalogue.put([entry('kept', { name: 'Renamed' }), entry('mine')], {
      origin: 'shipped',
      replace: true,
    });
    expect(change.removed).toEqual(['gone']);
    expect(catalogue.get('kept')?.name).toBe('Renamed');
    expect(catalogue.get('mine')?.name).toBe('My own');
    expect(activeIds(catalogue)).toEqual(['extra', 'kept', 'mine']);
    expect(activeIds(await Catalogue.load(database.db))).toEqual(['extra', 'kept', 'mine']);
  });

  it('does not bring back a shipped server that the operator deactivated', async () => {
    await catalogue.put([entry('a')], { origin: 'shipped', replace: true });
    await catalogue.deactivate('a');
    await catalogue.put([entry('a')], { origin: 'shipped', replace: true });
    expect(() => catalogue.require('a')).toThrow(expect.objectContaining({ code: 'server_inactive' }));
  });

  it('an operator replaces the whole catalogue at once: what is gone is inactive, what was never known is unknown', async () => {
    await catalogue.put([entry('a'), entry('b')], { origin: 'shipped', replace: true });
    await catalogue.put([entry('c')], { origin: 'operator', replace: true });
    expect(activeIds(catalogue)).toEqual(['c']);
    expect(() => catalogue.require('a')).toThrow(
      expect.objectContaining({ code: 'server_inactive', status: 410 }),
    );
    expect(() => catalogue.require('zzz')).toThrow(
      expect.objectContaining({ code: 'server_not_found', status: 404 }),
    );
  });

  it('stores all of a large file or none of it', async () => {
    const many = Array.from({ length: 250 }, (_, at) => entry(`s${at}`));
    const broken = { ...entry('broken'), homepage: 'half \u0000' };
    await expect(catalogue.put([...many, broken], { origin: 'operator' })).rejects.toThrow();
    expect(activeIds(catalogue)).toEqual([]);
    expect(await database.db.select().from(servers)).toEqual([]);
    await catalogue.put(many, { origin: 'operator' });
    expect(catalogue.activeCount).toBe(250);
  });

  it('shows nothing of a change before it is ready and stored, then all of it', async () => {
    const seen: string[] = [];
    await catalogue.attachIndex(({ upserted, removed }) => {
      const names = [...upserted.map(server => `+${server.id}`), ...removed.map(id => `-${id}`)].join();
      seen.push(`ready ${names}, a is ${catalogue.get('a')?.active}`);
      return Promise.resolve(async () => void seen.push(`seen ${names}, a is ${catalogue.get('a')?.active}`));
    });
    await catalogue.put([entry('a')], { origin: 'operator' });
    await catalogue.deactivate('a');
    expect(seen.slice(2)).toEqual([
      'ready +a, a is undefined',
      'seen +a, a is true',
      'ready -a, a is true',
      'seen -a, a is false',
    ]);
  });

  it('gives the index only what has changed, and all servers of a replacement', async () => {
    const prepared: string[][] = [];
    const wholes: (string[] | undefined)[] = [];
    await catalogue.put([entry('a'), entry('b'), entry('c')], { origin: 'operator' });
    await catalogue.attachIndex(async ({ upserted, whole }) => {
      prepared.push(upserted.map(server => server.id).sort());
      wholes.push(whole && (await idsOf(whole.servers())));
      return () => Promise.resolve();
    });
    const again = [entry('a'), entry('b', { name: 'Renamed' }), entry('c')];
    const change = await catalogue.put(again, { origin: 'operator' });
    expect(change.upserted).toHaveLength(3);
    await catalogue.put([...again, entry('d')], {
      origin: 'operator',
      replace: true,
      exclude: new Set(['e']),
    });
    await catalogue.deactivate('a');
    await catalogue.put(again, { origin: 'operator' });
    expect(prepared).toEqual([[], ['b'], ['d'], [], ['a']]);
    expect(wholes).toEqual([['a', 'b', 'c'], undefined, ['a', 'b', 'c', 'd'], undefined, undefined]);
  });

  it('stores entries even when they look unchanged, as another process may have written since', async () => {
    await catalogue.attachIndex(() => Promise.resolve(() => Promise.resolve()));
    await catalogue.put([entry('a')], { origin: 'operator' });
    await database.db.update(servers).set({ active: false });
    await catalogue.put([entry('a')], { origin: 'operator' });
    expect(activeIds(await Catalogue.load(database.db))).toEqual(['a']);
  });

  it('does not take a definition that was cleaned for the clean one', async () => {
    const described = (description: string) => entry('a', { tools: [tool('t', description)] });
    await catalogue.put([described('Runs\u200b t.')], { origin: 'operator' });
    expect((await wholeOf(catalogue, 'a'))?.tools[0]?.suspicious).toBeDefined();
    await catalogue.put([described('Runs t.')], { origin: 'operator' });
    expect((await wholeOf(catalogue, 'a'))?.tools[0]?.suspicious).toBeUndefined();
  });

  it.each(['while it is prepared', 'while it is written', 'while it waits for another write'])(
    'changes nothing when it is ended %s',
    async when => {
      await catalogue.put([entry('a')], { origin: 'operator' });
      const ending = new AbortController();
      const { signal } = ending;
      let takesEffect = false;
      await catalogue.attachIndex(async (change, _onProgress, ended) => {
        const isReplacement = change.whole && !change.whole.isAnew;
        if (when === 'while it is prepared' && isReplacement) ending.abort();
        ended?.throwIfAborted();
        return () => Promise.resolve(void (takesEffect ||= isReplacement === true));
      });
      const many = Array.from({ length: 250 }, (_, at) => entry(`s${at}`));
      if (when === 'while it is written') {
        // The second statement of the transaction finds it ended.
        const { transaction } = database.db;
        vi.spyOn(database.db, 'transaction').mockImplementationOnce((work, config) => {
          queueMicrotask(() => ending.abort());
          return transaction.call(database.db, work, config);
        });
      }
      const ahead =
        when === 'while it waits for another write'
          ? catalogue.put([entry('b')], { origin: 'operator' })
          : undefined;
      const put = catalogue.put(many, { origin: 'operator', replace: true, signal });
      if (ahead) {
        expect(catalogue.isWriting).toBe(true);
        ending.abort();
      }
      expect(await put.catch((error: unknown) => error)).toBe(signal.reason);
      const left = ahead ? ['a', 'b'] : ['a'];
      expect(takesEffect).toBe(false);
      expect(activeIds(catalogue)).toEqual(left);
      expect(activeIds(await Catalogue.load(database.db))).toEqual(left);
      expect(catalogue.isWriting).toBe(false);
    },
  );

  it('changes nothing if the index rejects the change', async () => {
    await catalogue.put([entry('a')], { origin: 'operator' });
    const attached = catalogue.attachIndex(() => Promise.reject(new Error('no model')));
    await expect(attached).rejects.toThrow('no model');
    await expect(catalogue.put([entry('b')], { origin: 'operator', replace: true })).rejects.toThrow(
      'no model',
    );
    await expect(catalogue.deactivate('a')).rejects.toThrow('no model');
    expect(activeIds(catalogue)).toEqual(['a']);
    expect(activeIds(await Catalogue.load(database.db))).toEqual(['a']);
  });

  it('runs writes one after another: of two replacements at once, the second wins whole', async () => {
    await Promise.all([
      catalogue.put([entry('a'), entry('b')], { origin: 'operator', replace: true }),
      catalogue.put([entry('c'), entry('d')], { origin: 'operator', replace: true }),
    ]);
    expect(activeIds(catalogue)).toEqual(['c', 'd']);
    expect(activeIds(await Catalogue.load(database.db))).toEqual(['c', 'd']);
  });
});

describe('deactivate', () => {
  it('refuses an unknown id', async () => {
    await expect(catalogue.deactivate('nope')).rejects.toMatchObject({ code: 'server_not_found' });
  });
});
