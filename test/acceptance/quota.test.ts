import { describe, expect, inject, it } from 'vitest';
import { databasesOfRun } from '../support/full-run.ts';
import {
  eventually,
  install,
  installOnPostgres,
  parallel,
  statusesOf,
  type Installation,
  type Process,
} from '../support/processes.ts';

interface Key {
  readonly id: string;
  readonly key: string;
}

const DATABASES = [
  { name: 'PGlite', open: () => install(), skipped: false },
  { name: 'Postgres', open: () => installOnPostgres(), skipped: inject('postgresUrl') === undefined },
] as const;

async function newKey(on: Process, searches: number): Promise<Key> {
  const made = await on.command('keys', 'create', '--name', 'held', '--searches', String(searches), '--json');
  return JSON.parse(made.stdout) as Key;
}
const search = (on: Process, { key }: Key) =>
  on.post('/v1/search', { query: 'read my mail' }, { 'x-api-key': key });
/** Counts what is still in that process's memory, too. */
async function usedBy(on: Process, { id }: Key): Promise<number> {
  const { stdout } = await on.command('keys', 'list', '--json');
  return JSON.parse(stdout).keys.find((one: Key) => one.id === id).used_this_month.searches;
}
const written = async ({ sql }: Installation): Promise<number> =>
  Number((await sql('select coalesce(sum(searches), 0)::int as count from key_use'))[0]?.['count']);

describe.each(databasesOfRun(DATABASES))('a monthly quota on $name', ({ open, skipped }) => {
  it.skipIf(skipped)(
    '[quota.durable] goes on after kill -9 with all that was written, and after SIGTERM with all of it',
    async () => {
      await using installation = await open();
      const killed = await installation.start();
      await killed.ready();
      const key = await newKey(killed, 10);
      expect(statusesOf(await parallel(4, () => search(killed, key)))).toEqual({ 200: 4 });
      expect(await usedBy(killed, key)).toBe(4);
      // These may not be written yet.
      expect(statusesOf(await parallel(3, () => search(killed, key)))).toEqual({ 200: 3 });
      await killed.stop('SIGKILL');

      const ended = await installation.start();
      await ended.ready();
      const kept = await usedBy(ended, key);
      expect(kept).toBeGreaterThanOrEqual(4);
      expect(kept).toBeLessThanOrEqual(7);
      expect((await search(ended, key)).headers.get('ratelimit')).toContain(
        `"searches-per-month";r=${9 - kept};`,
      );
      await ended.stop('SIGTERM');
      expect(await written(installation)).toBe(kept + 1);

      const restarted = await installation.start();
      await restarted.ready();
      const replies = await parallel(12, () => search(restarted, key));
      expect(statusesOf(replies)).toEqual({ 200: 9 - kept, 429: 3 + kept });
    },
  );
});

describe('a monthly quota that two processes on one Postgres share', () => {
  it.skipIf(inject('postgresUrl') === undefined)(
    '[quota.durable] [quota.shared] is written by itself, adds up, holds on both, and is raised on both',
    async () => {
      await using installation = await installOnPostgres();
      const [a, b] = [await installation.start('a'), await installation.start('b')];
      await Promise.all([a.ready(), b.ready()]);
      const key = await newKey(a, 20);
      expect((await search(a, key)).status).toBe(200);
      await eventually('nothing but time writes it', async () => (await written(installation)) === 1);

      // At once on both: each may let pass what it knows to be left, and no more.
      const replies = await parallel(60, index => search(index % 2 === 0 ? a : b, key));
      const { 200: passed = 0, 429: refused = 0 } = statusesOf(replies);
      expect(passed + refused).toBe(60);
      expect(passed).toBeGreaterThanOrEqual(19);
      expect(passed).toBeLessThanOrEqual(2 * 19);

      // Both have counted all of it, whoever let it pass, and refuse the next.
      await eventually('all is written', async () => (await written(installation)) === 1 + passed);
      for (const one of [a, b]) {
        await eventually('it is held to on both', async () => (await search(one, key)).status === 429);
        expect((await search(one, key)).json).toMatchObject({ code: 'quota_exceeded' });
      }
      const total = await written(installation);
      for (const one of [a, b]) expect(await usedBy(one, key)).toBe(total);

      await a.command('keys', 'set', key.id, '--searches', String(total + 2));
      expect((await search(a, key)).status).toBe(200);
      await eventually('the other has heard', async () => (await search(b, key)).status === 200);
      for (const one of [a, b])
        await eventually('it is used up again', async () => (await search(one, key)).status === 429);
    },
  );
});
