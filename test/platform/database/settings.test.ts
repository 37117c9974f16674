import { afterAll, beforeAll, expect, it } from 'vitest';
import { z } from 'zod';
import type { MigratedDatabase } from '../../../src/platform/database/database.ts';
import { openTestDatabase } from '../../support/database.ts';
import {
  claimSetting,
  deleteSetting,
  readJsonSetting,
  readSetting,
  writeJsonSetting,
  writeSetting,
} from '../../../src/platform/database/settings.ts';

let database: MigratedDatabase;
beforeAll(async () => void (database = await openTestDatabase()));
afterAll(() => database.close());

it('keeps one text under a key', async () => {
  const { db } = database;
  expect(await readSetting(db, 'one')).toBeUndefined();
  await writeSetting(db, 'one', 'first');
  await writeSetting(db, 'one', 'second');
  expect(await readSetting(db, 'one')).toBe('second');
  expect(await db.transaction(tx => readSetting(tx, 'one', { lock: true }))).toBe('second');
  await deleteSetting(db, 'one');
  expect(await readSetting(db, 'one')).toBeUndefined();
});

it('gives a claimed key to the first who asks', async () => {
  const { db } = database;
  expect(await claimSetting(db, 'claimed', 'mine')).toBe('mine');
  expect(await claimSetting(db, 'claimed', 'another')).toBe('mine');
});

it('reads JSON back, and nothing that is not what it should be', async () => {
  const { db } = database;
  const schema = z.object({ atMs: z.number() });
  expect(await readJsonSetting(db, 'state', schema)).toBeUndefined();
  await writeJsonSetting(db, 'state', { atMs: 5 });
  expect(await readJsonSetting(db, 'state', schema)).toEqual({ atMs: 5 });
  await writeJsonSetting(db, 'state', { atMs: 'five' });
  expect(await readJsonSetting(db, 'state', schema)).toBeUndefined();
  await writeSetting(db, 'state', 'no JSON');
  expect(await readJsonSetting(db, 'state', schema)).toBeUndefined();
});
