import { sql } from 'drizzle-orm';
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it } from 'vitest';
import { Catalogue, type CatalogueChange } from '../../../src/core/catalogue/catalogue.ts';
import {
  accessOf,
  toEntry,
  type AuthSpec,
  type Entry,
  type LearnedAccess,
} from '../../../src/core/catalogue/entry.ts';
import { servers } from '../../../src/core/catalogue/schema.ts';
import { rows, type OpenDatabase } from '../../../src/platform/database/database.ts';
import { openPostgres } from '../../../src/platform/database/postgres.ts';
import { openTestDatabase } from '../../support/database.ts';
import { createDatabase } from '../../support/postgres.ts';
import { wholeOf } from './whole.ts';

const OAUTH: LearnedAccess = {
  kind: 'oauth',
  issuer: 'https://login.example',
  scopes: ['read'],
  resourceMetadata: 'https://a.example/.well-known/oauth-protected-resource/mcp',
};

describe('access', () => {
  it.each<[AuthSpec['kind'], LearnedAccess | undefined, string]>([
    ['unknown', undefined, 'unknown: unknown'],
    ['unknown', { kind: 'none' }, 'none: open'],
    ['unknown', { kind: 'credentials' }, 'credentials: connect'],
    ['unknown', OAUTH, 'oauth: connect'],
    ['unknown', { ...OAUTH, needsSetup: true }, 'oauth: setup_needed'],
    ['none', undefined, 'none: open'],
    ['none', OAUTH, 'oauth: connect'],
    ['none', { kind: 'none' }, 'none: open'],
    ['static_header', OAUTH, 'credentials: connect'],
    ['static_header', { kind: 'none' }, 'credentials: connect'],
    ['static_header', { ...OAUTH, needsSetup: true }, 'credentials: connect'],
    ['own_oauth', undefined, 'oauth: connect'],
    ['own_oauth', { kind: 'none' }, 'oauth: connect'],
    ['own_oauth', { ...OAUTH, needsSetup: true }, 'oauth: setup_needed'],
    ['user_oauth', OAUTH, 'provider: unknown'],
    ['user_oauth', { kind: 'none' }, 'provider: unknown'],
  ])('of an entry of kind %s that has shown %j is %s', (kind, learned, expected) => {
    const access = accessOf({ auth: { kind }, ...(learned && { learned }) });
    expect(`${access.kind}: ${access.status}`).toBe(expected);
  });
});

async function openOnPostgres(): Promise<OpenDatabase> {
  const database = await createDatabase();
  const opened = await openPostgres(database.url);
  return { ...opened, close: () => opened.close().then(() => database[Symbol.asyncDispose]()) };
}

const entry = (id: string, description = `Does ${id}.`, remote_url = 'https://a.example/mcp'): Entry => ({
  id,
  name: id,
  description,
  remote_url,
});
const [URL_A, URL_B] = ['https://a.example/mcp', 'https://b.example/mcp'];

describe.each([
  { driver: 'PGlite', open: () => openTestDatabase(), skipped: false },
  { driver: 'Postgres', open: openOnPostgres, skipped: inject('postgresUrl') === undefined },
])('on $driver', ({ open, skipped }) => {
  describe.skipIf(skipped)('what a server has shown of its access', () => {
    let database: OpenDatabase;
    let catalogue: Catalogue;
    let indexed: CatalogueChange[];
    let gate: Promise<unknown>;
    beforeAll(async () => void (database = await open()));
    afterAll(() => database.close());
    beforeEach(async () => {
      await database.db.delete(servers);
      catalogue = await Catalogue.load(database.db);
      await catalogue.put([entry('a'), entry('b')], { origin: 'shipped', replace: true });
      indexed = [];
      gate = Promise.resolve();
      await catalogue.attachIndex(async change => {
        await gate;
        return () => Promise.resolve(void indexed.push(change));
      });
      indexed.length = 0;
    });

    const learnedOf = (one = catalogue) => one.get('a')?.learned;
    const stored = async () => learnedOf(await Catalogue.load(database.db));
    const upgrade = (...entries: readonly Entry[]) =>
      catalogue.put(entries, { origin: 'shipped', replace: true });
    /** Identifies the version of the row: every write makes a new one. */
    const version = async () =>
      (
        await rows<{ version: string }>(
          database.db,
          sql`select xmin::text as version from servers where id = 'a'`,
        )
      )[0]?.version;

    it('is shown and stored, and neither indexed nor part of the entry', async () => {
      const before = await wholeOf(catalogue, 'a');
      await catalogue.learnAccess('a', URL_A, OAUTH);
      const after = await wholeOf(catalogue, 'a');
      expect(after).toEqual({ ...before, learned: OAUTH });
      expect(await wholeOf(await Catalogue.load(database.db), 'a')).toEqual(after);
      expect(indexed).toEqual([]);
      expect(toEntry(after!)).toEqual(toEntry(before!));
    });

    it('is written once, however often the server shows it, and again when it differs', async () => {
      await Promise.all(Array.from({ length: 100 }, () => catalogue.learnAccess('a', URL_A, { ...OAUTH })));
      const first = await version();
      await catalogue.learnAccess('a', URL_A, { ...OAUTH });
      expect(await version()).toBe(first);
      await catalogue.learnAccess('a', URL_A, { ...OAUTH, scopes: ['read', 'write'] });
      expect(await version()).not.toBe(first);
      expect(await stored()).toEqual({ ...OAUTH, scopes: ['read', 'write'] });
    });

    it('is ignored for an unknown server and for another address', async () => {
      await catalogue.learnAccess('c', URL_A, OAUTH);
      await catalogue.learnAccess('a', URL_B, OAUTH);
      expect([learnedOf(), await stored(), catalogue.get('c')]).toEqual([undefined, undefined, undefined]);
    });

    it('stays through an upgrade, an import, a listing and a deactivation', async () => {
      await catalogue.learnAccess('a', URL_A, OAUTH);
      const shown = await wholeOf(catalogue, 'a');
      await upgrade(entry('a'), entry('b'));
      expect(await wholeOf(catalogue, 'a')).toEqual(shown);
      expect(indexed.flatMap(({ upserted }) => upserted)).toEqual([]);
      await upgrade(entry('a', 'Does more.'), entry('b'));
      expect(await wholeOf(catalogue, 'a')).toMatchObject({ description: 'Does more.', learned: OAUTH });
      await catalogue.put([entry('a', 'Does most.')], { origin: 'operator' });
      const listing = [{ name: 't', description: 'T.', inputSchema: { type: 'object' } }];
      await catalogue.refreshTools(catalogue.get('a')!, listing, 1_000);
      await catalogue.deactivate('a');
      const most = await wholeOf(catalogue, 'a');
      expect(most).toMatchObject({ description: 'Does most.', active: false, learned: OAUTH });
      expect(await wholeOf(await Catalogue.load(database.db), 'a')).toEqual(most);
    });

    it('ends when the server moves', async () => {
      await catalogue.learnAccess('a', URL_A, OAUTH);
      await upgrade(entry('a', 'Does a.', URL_B), entry('b'));
      expect([learnedOf(), await stored()]).toEqual([undefined, undefined]);
      await catalogue.learnAccess('a', URL_A, { kind: 'credentials' });
      await catalogue.learnAccess('a', URL_B, { kind: 'none' });
      expect([learnedOf(), await stored()]).toEqual([{ kind: 'none' }, { kind: 'none' }]);
    });

    it('does not wait for a long import, which keeps it', async () => {
      const ready = Promise.withResolvers<void>();
      gate = ready.promise;
      const importing = upgrade(entry('a', 'Does more.'), entry('b'));
      await catalogue.learnAccess('a', URL_A, OAUTH);
      expect([learnedOf(), await stored()]).toEqual([OAUTH, OAUTH]);
      ready.resolve();
      await importing;
      expect(await wholeOf(catalogue, 'a')).toMatchObject({ description: 'Does more.', learned: OAUTH });
      expect((await Catalogue.load(database.db)).get('a')).toEqual(catalogue.get('a'));
    });

    it('is not stored by a process that has not heard of the new address', async () => {
      const other = await Catalogue.load(database.db);
      await upgrade(entry('a', 'Does a.', URL_B), entry('b'));
      await other.learnAccess('a', URL_A, OAUTH);
      expect([learnedOf(), await stored()]).toEqual([undefined, undefined]);
    });
  });
});

it('what cannot be stored is not shown, so that the next refusal tries again', async () => {
  const database = await openTestDatabase();
  const catalogue = await Catalogue.load(database.db);
  await catalogue.put([entry('a')], { origin: 'operator' });
  const before = catalogue.get('a');
  await database.close();
  await expect(catalogue.learnAccess('a', URL_A, OAUTH)).rejects.toThrow();
  expect(catalogue.get('a')).toBe(before);
});
