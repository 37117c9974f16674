import { eq, sql } from 'drizzle-orm';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Catalogue } from '../../../src/core/catalogue/catalogue.ts';
import type { Entry } from '../../../src/core/catalogue/entry.ts';
import { settings } from '../../../src/platform/database/settings.ts';
import type { OpenDatabase } from '../../../src/platform/database/database.ts';
import { openTestDatabase } from '../../support/database.ts';

const entry = (id: string, remote_url = `https://${id}.example/mcp`): Entry => ({
  id,
  name: id,
  description: `Does ${id}.`,
  remote_url,
});
const nothing = () => Promise.resolve();
/** PGlite's clock counts milliseconds: two writes in one would have the same time. */
const LATER = sql`now() + interval '1 second'`;

let database: OpenDatabase;
let catalogue: Catalogue;
beforeEach(async () => {
  database = await openTestDatabase();
  catalogue = await Catalogue.load(database.db);
  await catalogue.put([entry('tides'), entry('maps')], { origin: 'shipped', replace: true });
});
afterEach(() => database.close());

const tides = () => catalogue.get('tides')!;
const upgrade = (entries: readonly Entry[]) => catalogue.put(entries, { origin: 'shipped', replace: true });

describe('a server that is inactive for not answering', () => {
  beforeEach(async () => void (await catalogue.setUnreachable(tides(), true, nothing)));

  it('stays so after a restart and is not indexed', async () => {
    const again = await Catalogue.load(database.db);
    expect(again.get('tides')).toEqual({ ...tides(), active: false, unreachable: true });
    const indexed: string[] = [];
    await again.attachIndex(async ({ whole }) => {
      for await (const { id } of whole?.servers() ?? []) indexed.push(id);
      return nothing;
    });
    expect(indexed).toEqual(['maps']);
  });

  it('stays so after an upgrade, is active at a new address, and ends with an upgrade without it', async () => {
    await upgrade([entry('tides'), entry('maps')]);
    expect(tides()).toMatchObject({ active: false, unreachable: true });
    await upgrade([entry('tides', 'https://new.example/mcp'), entry('maps')]);
    expect(tides()).toMatchObject({ active: true });
    expect(tides()).not.toHaveProperty('unreachable');
    await catalogue.setUnreachable(tides(), true, nothing);
    await upgrade([entry('maps')]);
    expect(tides()).toMatchObject({ active: false });
    expect(tides()).not.toHaveProperty('unreachable');
    expect(await catalogue.setUnreachable(tides(), false, nothing)).toBe(false);
  });

  it('is not reactivated after the operator has deactivated it in another process', async () => {
    const other = await Catalogue.load(database.db);
    await other.deactivate('tides');
    const written: string[] = [];
    const inSameTransaction = () => Promise.resolve(void written.push('audit'));
    expect(await catalogue.setUnreachable(tides(), false, inSameTransaction)).toBe(false);
    expect(written).toEqual([]);
    expect((await Catalogue.load(database.db)).get('tides')).toMatchObject({
      active: false,
      origin: 'operator',
    });
  });

  it('is reactivated together with its audit entry, or not at all', async () => {
    const failing = () => Promise.reject(new Error('no audit'));
    await expect(catalogue.setUnreachable(tides(), false, failing)).rejects.toThrow('no audit');
    expect(tides()).toMatchObject({ active: false });
    const noting = async (tx: OpenDatabase['db']) =>
      void (await tx.insert(settings).values({ key: 'noted', value: 'yes' }));
    expect(await catalogue.setUnreachable(tides(), false, noting)).toBe(true);
    expect(tides()).toMatchObject({ active: true });
    expect(await database.db.select().from(settings).where(eq(settings.key, 'noted'))).toHaveLength(1);
  });

  it.each([
    ['made it active', sql`update servers set active = true, updated_at = ${LATER}`, true],
    [
      'deactivated it for good',
      sql`update servers set active = false, origin = 'operator', updated_at = ${LATER}`,
      false,
    ],
  ])('is a common one where a program from before the mark has %s', async (_what, update, isActive) => {
    await database.db.execute(sql`${update} where id = 'tides'`);
    const again = await Catalogue.load(database.db);
    expect(again.get('tides')).toMatchObject({ active: isActive });
    expect(again.get('tides')).not.toHaveProperty('unreachable');
    expect(await again.setUnreachable(tides(), isActive, nothing)).toBe(isActive);
  });

  it("is so no more, too, where that program has deactivated a row that was the operator's already", async () => {
    await catalogue.put([entry('maps')], { origin: 'operator' });
    await catalogue.setUnreachable(catalogue.get('maps')!, true, nothing);
    await database.db.execute(
      sql`update servers set active = false, origin = 'operator', updated_at = ${LATER} where id = 'maps'`,
    );
    expect((await Catalogue.load(database.db)).get('maps')).not.toHaveProperty('unreachable');
  });

  it('stays so when only the parts of its tools are written', async () => {
    await database.db.execute(sql`update servers set revision = 0 where id = 'tides'`);
    expect((await Catalogue.load(database.db)).get('tides')).toMatchObject({ unreachable: true });
  });
});

it('a server that has moved or is inactive already is not made inactive for not answering', async () => {
  expect(
    await catalogue.setUnreachable({ ...tides(), remoteUrl: 'https://old.example/' }, true, nothing),
  ).toBe(false);
  await catalogue.deactivate('maps');
  expect(await catalogue.setUnreachable(catalogue.get('maps')!, true, nothing)).toBe(false);
  expect(catalogue.get('maps')).not.toHaveProperty('unreachable');
});
