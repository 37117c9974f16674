import { describe, expect, it } from 'vitest';
import type { Server } from '../../../src/core/catalogue/entry.ts';
import { byHost } from '../../../src/core/health/by-host.ts';

const server = (host: string, id: number) =>
  ({ id: `${host}${id}`, remoteUrl: `https://${host}.example/${id}` }) as Server;
const pace = (signal: AbortSignal = new AbortController().signal) => ({
  atOnce: 4,
  pauseMs: 0,
  maxFailures: 3,
  signal,
});
const turn = () => new Promise(resolve => setImmediate(resolve));

describe('byHost', () => {
  it('does the work for every server once, four hosts at a time, and one of a host', async () => {
    const servers = ['a', 'b', 'c', 'd', 'e', 'f'].flatMap((host, at) =>
      Array.from({ length: at + 1 }, (_, id) => server(host, id)),
    );
    const busy: string[] = [];
    const done: string[] = [];
    let most = 0;
    await byHost(servers, pace(), async ({ id, remoteUrl }) => {
      const { host } = new URL(remoteUrl);
      expect(busy).not.toContain(host);
      busy.push(host);
      most = Math.max(most, busy.length);
      await turn();
      busy.splice(busy.indexOf(host), 1);
      done.push(id);
      return true;
    });
    expect(done.toSorted()).toEqual(servers.map(({ id }) => id).toSorted());
    expect(most).toBe(4);
    // One server of each host in its turn.
    expect(done.slice(0, 6).toSorted()).toEqual(['a0', 'b0', 'c0', 'd0', 'e0', 'f0']);
  });

  it('leaves the rest of a host after failures in a row, and comes to those that are first before', async () => {
    const servers = [0, 1, 2, 3, 4, 5].map(id => server('a', id));
    const isFirst = ({ id }: Server) => id === 'a4' || id === 'a5';
    const done: string[] = [];
    await byHost(servers, { ...pace(), isFirst }, one => {
      done.push(one.id);
      return Promise.resolve(isFirst(one));
    });
    expect(done).toEqual(['a4', 'a5', 'a0', 'a1', 'a2']);
  });

  it('begins nothing more once it is ended, and rejects when nothing is under way', async () => {
    const ending = new AbortController();
    let begun = 0;
    let under = 0;
    const working = byHost(
      Array.from({ length: 10 }, (_, id) => server(`h${id}`, id)),
      pace(ending.signal),
      async () => {
        under++;
        if (++begun === 2) ending.abort(new Error('enough'));
        await turn();
        under--;
        return true;
      },
    );
    await expect(working).rejects.toThrow('enough');
    expect([begun, under]).toEqual([2, 0]);
  });

  it('leaves the rest of a host after three failures in a row', async () => {
    const servers = Array.from({ length: 9 }, (_, id) => [server('bad', id), server('good', id)]).flat();
    const done: string[] = [];
    const goesWell = ({ id }: Server) => id.startsWith('good') || id === 'bad2';
    await byHost(servers, pace(), one => {
      done.push(one.id);
      return Promise.resolve(goesWell(one));
    });
    expect(done.filter(id => id.startsWith('good'))).toHaveLength(9);
    expect(done.filter(id => id.startsWith('bad'))).toEqual(['bad0', 'bad1', 'bad2', 'bad3', 'bad4', 'bad5']);
  });

  it('ends with what the work throws', async () => {
    const working = byHost([server('a', 1), server('a', 2)], pace(), () =>
      Promise.reject(new Error('broken')),
    );
    await expect(working).rejects.toThrow('broken');
  });
});
