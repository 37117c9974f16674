import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Catalogue } from '../../../src/core/catalogue/catalogue.ts';
import type { Entry } from '../../../src/core/catalogue/entry.ts';
import { servers } from '../../../src/core/schema.ts';
import { openDatabase, type OpenDatabase } from '../../../src/infra/database.ts';

let database: OpenDatabase;
let catalogue: Catalogue;

beforeAll(async () => void (database = await openDatabase()));
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
const activeIds = (one: Catalogue) => [...one.active()].map(server => server.id).sort();

describe('put', () => {
  it('survives a restart: what was stored is what is loaded', async () => {
    const tools = [{ name: 't', description: 'Runs t.', input_schema: { type: 'object', properties: { x: { type: 'number' } } } }];
    await catalogue.put([entry('a', { tools, transport: 'sse', auth: { kind: 'none' }, categories: ['code'] })], { origin: 'operator' });
    const reloaded = await Catalogue.load(database.db);
    expect(reloaded.get('a')).toEqual(catalogue.get('a'));
    expect(reloaded.get('a')?.tools).toEqual(tools);
  });

  it('keeps the last of two tools with one name', async () => {
    const tool = (description: string) => ({ name: 't', description, input_schema: {} });
    await catalogue.put([entry('a', { tools: [tool('old'), tool('new')] })], { origin: 'operator' });
    expect(catalogue.get('a')?.tools.map(one => one.description)).toEqual(['new']);
  });

  it("an upgrade rewrites and retires what was shipped, and never touches an operator's entry", async () => {
    await catalogue.put([entry('kept'), entry('gone'), entry('mine')], { origin: 'shipped', replace: true });
    await catalogue.put([entry('mine', { name: 'My own' }), entry('extra')], { origin: 'operator' });
    const change = await catalogue.put([entry('kept', { name: 'Renamed' }), entry('mine')], { origin: 'shipped', replace: true });
    expect(change.removed).toEqual(['gone']);
    expect(catalogue.get('kept')?.name).toBe('Renamed');
    expect(catalogue.get('mine')?.name).toBe('My own');
    expect(activeIds(catalogue)).toEqual(['extra', 'kept', 'mine']);
    expect(activeIds(await Catalogue.load(database.db))).toEqual(['extra', 'kept', 'mine']);
  });

  it("does not bring back a shipped server that the operator deactivated", async () => {
    await catalogue.put([entry('a')], { origin: 'shipped', replace: true });
    await catalogue.deactivate('a');
    await catalogue.put([entry('a')], { origin: 'shipped', replace: true });
    expect(() => catalogue.require('a')).toThrow(expect.objectContaining({ code: 'server_inactive' }));
  });

  it('an operator replaces the whole catalogue at once: what is gone is inactive, what was never known is unknown', async () => {
    await catalogue.put([entry('a'), entry('b')], { origin: 'shipped', replace: true });
    await catalogue.put([entry('c')], { origin: 'operator', replace: true });
    expect(activeIds(catalogue)).toEqual(['c']);
    expect(() => catalogue.require('a')).toThrow(expect.objectContaining({ code: 'server_inactive', status: 410 }));
    expect(() => catalogue.require('zzz')).toThrow(expect.objectContaining({ code: 'server_not_found', status: 404 }));
  });

  it('stores all of a large file or none of it', async () => {
    const many = Array.from({ length: 250 }, (_, at) => entry(`s${at}`));
    const broken = { ...entry('broken'), name: 'half \u0000' };
    await expect(catalogue.put([...many, broken], { origin: 'operator' })).rejects.toThrow();
    expect(activeIds(catalogue)).toEqual([]);
    expect(await database.db.select().from(servers)).toEqual([]);
    await catalogue.put(many, { origin: 'operator' });
    expect(catalogue.activeCount).toBe(250);
  });

  it('tells the listener what changed before it resolves', async () => {
    const seen: string[] = [];
    catalogue.onChange(async ({ upserted, removed }) => {
      seen.push(...upserted.map(server => `+${server.id}`), ...removed.map(id => `-${id}`));
    });
    await catalogue.put([entry('a')], { origin: 'operator' });
    await catalogue.deactivate('a');
    expect(seen).toEqual(['+a', '-a']);
  });
});

describe('deactivate', () => {
  it('refuses an id nobody knows', async () => {
    await expect(catalogue.deactivate('nope')).rejects.toMatchObject({ code: 'server_not_found' });
  });
});
