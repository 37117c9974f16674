import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Catalogue } from '../../../src/core/catalogue/catalogue.ts';
import type { Entry } from '../../../src/core/catalogue/entry.ts';
import type { OpenDatabase } from '../../../src/platform/database/database.ts';
import { openTestDatabase } from '../../support/database.ts';

const SOURCE = 'https://registry.example.com';

let database: OpenDatabase;
beforeAll(async () => void (database = await openTestDatabase()));
afterAll(() => database.close());

const entry = (id: string, name: string): Entry => ({
  id,
  name,
  description: `Does ${id}.`,
  remote_url: `https://${id}.example/mcp`,
});

/** A full sync with a registry that lists these. */
const sync = (catalogue: Catalogue, entries: readonly Entry[]) =>
  catalogue.put(entries, {
    origin: 'registry',
    replace: true,
    registry: {
      source: SOURCE,
      marks: new Map(
        entries.map(({ id }) => [
          id,
          { source: SOURCE, name: `x.y/${id}`, version: '1', status: 'active', document: {} },
        ]),
      ),
      ended: new Set(),
      approve: () => {},
    },
  });

describe("a registry's change", () => {
  it('leaves alone what the operator has taken over in another process meanwhile', async () => {
    const syncing = await Catalogue.load(database.db);
    await sync(syncing, [entry('rewritten', 'Old'), entry('ended', 'Old'), entry('own', 'Old')]);
    const other = await Catalogue.load(database.db);
    await other.put([entry('rewritten', 'Mine'), entry('ended', 'Mine'), entry('new', 'Mine')], {
      origin: 'operator',
    });

    const change = await sync(syncing, [entry('rewritten', 'New'), entry('own', 'New'), entry('new', 'New')]);
    expect(change.upserted.map(({ id }) => id)).toEqual(['own']);
    expect(change.removed).toEqual([]);
    expect([...(change.left ?? [])].sort()).toEqual(['ended', 'new', 'rewritten']);
    const stored = await Catalogue.load(database.db);
    expect([...stored.active()].map(({ id, name, origin }) => `${id}: ${name}, ${origin}`).sort()).toEqual([
      'ended: Mine, operator',
      'new: Mine, operator',
      'own: New, registry',
      'rewritten: Mine, operator',
    ]);
  });
});
