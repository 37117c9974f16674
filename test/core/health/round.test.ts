import { expect, it } from 'vitest';
import type { Server } from '../../../src/core/catalogue/entry.ts';
import type { HealthBoard } from '../../../src/core/health/health-board.ts';
import type { LocatedHealth } from '../../../src/core/health/health-rows.ts';
import { Round } from '../../../src/core/health/round.ts';

it('what could not be written is written the next time', async () => {
  const written: string[][] = [];
  let fails = true;
  const board = {
    of: () => undefined,
    write: (found: readonly LocatedHealth[]) => {
      if (fails) return Promise.reject(new Error('no database'));
      written.push(found.map(({ serverId }) => serverId));
      return Promise.resolve(found);
    },
  };
  const round = new Round(board as unknown as HealthBoard, { now: () => 0 }, []);
  const add = (id: string) => round.add({ id, remoteUrl: `https://${id}/` } as Server, { verdict: 'ok' });
  add('a');
  await expect(round.write()).rejects.toThrow('no database');
  add('b');
  fails = false;
  await round.write();
  expect(written).toEqual([['a', 'b']]);
});
