import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Catalogue } from '../../../src/core/catalogue/catalogue.ts';
import type { Entry } from '../../../src/core/catalogue/entry.ts';
import { RecentServers } from '../../../src/core/catalogue/recent-servers.ts';
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

const ids = Array.from({ length: 50 }, (_, at) => `s${String(at).padStart(2, '0')}`);
const entry = (id: string, description = `Does ${id}.`): Entry => ({
  id,
  name: id,
  description,
  remote_url: `https://${id}.example/mcp`,
  tools: [{ name: 'run', description: 'x'.repeat(1_000), input_schema: { type: 'object' } }],
});
const put = (...entries: Entry[]) => catalogue.put(entries, { origin: 'operator' });
const inMemory = (recent: RecentServers) => ids.filter(id => recent.peek(id) !== undefined);

describe('RecentServers', () => {
  it('holds no more than its bytes, and reads the others when they are wanted', async () => {
    await put(...ids.map(id => entry(id)));
    const recent = new RecentServers(database.db, 20_000);
    const read = await recent.read(ids);
    expect([...read.keys()].sort()).toEqual(ids);
    expect(inMemory(recent).length).toBeGreaterThan(5);
    expect(inMemory(recent).length).toBeLessThan(20);
    expect(await recent.read(ids)).toEqual(read);
  });

  it('displaces nothing when it reads all', async () => {
    await put(...ids.map(id => entry(id)));
    const recent = new RecentServers(database.db, 20_000);
    await recent.read(['s49']);
    const read: string[] = [];
    for await (const { id } of recent.active()) read.push(id);
    expect(read).toEqual(ids);
    expect(inMemory(recent)).toContain('s49');
  });

  it('does not keep a row that was read before a change', async () => {
    await put(entry('s00', 'Old.'));
    const recent = new RecentServers(database.db);
    const reading = recent.read(['s00']);
    const [old] = (await reading).values();
    recent.delete('s00');
    const again = recent.read(['s00']);
    // Written while the old row is on its way.
    recent.set({ ...old!, description: 'New.' });
    expect((await again).get('s00')).toMatchObject({ description: 'New.' });
    expect(recent.peek('s00')).toMatchObject({ description: 'New.' });
  });
});

describe('a catalogue in the database', () => {
  let isDown = false;

  it('has heads without tools, with their number', async () => {
    await put(entry('s00'));
    for (const one of [catalogue, await Catalogue.load(database.db)]) {
      expect(one.get('s00')).toMatchObject({ name: 's00', toolCount: 1 });
      expect(one.get('s00')).not.toHaveProperty('tools');
      expect(one.get('s00')).not.toHaveProperty('description');
    }
    expect(await wholeOf(catalogue, 's00')).not.toHaveProperty('toolCount');
  });

  it('calls a server without its tools while the database cannot be read', async () => {
    await put(entry('s00'));
    const failing = await Catalogue.load(
      new Proxy(database.db, {
        get: (db, name) =>
          name === 'select' && isDown
            ? () => {
                throw new Error('the database is down');
              }
            : Reflect.get(db, name),
      }),
    );
    isDown = true;
    const server = await failing.readCalled('s00');
    isDown = false;
    expect(server).toMatchObject({ remoteUrl: 'https://s00.example/mcp' });
    expect(server.tools).toBeUndefined();
    expect((await failing.readCalled('s00')).tools).toHaveLength(1);
  });
});
