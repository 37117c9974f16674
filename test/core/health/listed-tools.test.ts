import { expect, it } from 'vitest';
import type { Catalogue } from '../../../src/core/catalogue/catalogue.ts';
import type { Server } from '../../../src/core/catalogue/entry.ts';
import { ListedTools } from '../../../src/core/catalogue/tools/refresh.ts';
import { createLog } from '../../../src/platform/telemetry/log.ts';

const tool = (description: string) => ({ name: 'x', description, inputSchema: { type: 'object' } });
const server = (id: string) => ({ id, remoteUrl: `https://${id}.example/mcp` }) as Server;
const endless = new AbortController().signal;

/** A catalogue that takes the tools of a server when it is told to, or until it is ended. */
function slow() {
  const begun: string[] = [];
  const ended: string[] = [];
  let proceed = () => {};
  const refreshTools: Catalogue['refreshTools'] = ({ id }, _tools, _nowMs, options) =>
    new Promise((resolve, reject) => {
      begun.push(id);
      proceed = resolve;
      const signal = options?.signal;
      signal?.addEventListener('abort', () => {
        ended.push(id);
        reject(signal.reason as Error);
      });
    });
  const log = createLog('silent');
  const found = new ListedTools({ catalogue: { refreshTools }, clock: { now: () => 0 }, log });
  return { found, begun, ended, proceed: () => proceed() };
}
const turn = () => new Promise(resolve => setImmediate(resolve));

it('stores the tools of one server after another, and offering never waits', async () => {
  const { found, begun, proceed } = slow();
  for (const id of ['a', 'b']) found.offer(server(id), [tool('X.')]);
  found.offer(server('c'), []);
  await turn();
  expect(begun).toEqual(['a']);
  proceed();
  await turn();
  expect(begun).toEqual(['a', 'b']);
  const finished = found.finish(endless);
  proceed();
  await finished;
  expect(begun).toEqual(['a', 'b']);
});

it('aborts the write under way and drops the rest when its time is up', async () => {
  const { found, begun, ended } = slow();
  for (const id of ['a', 'b']) found.offer(server(id), [tool('X.')]);
  await turn();
  const ending = new AbortController();
  const finished = found.finish(ending.signal);
  ending.abort();
  await finished;
  await turn();
  found.offer(server('c'), [tool('X.')]);
  await turn();
  expect([begun, ended]).toEqual([['a'], ['a']]);
});

it('drops a listing that exceeds its bound of memory', async () => {
  const { found, begun, proceed } = slow();
  const large = tool('x'.repeat(20 * 1024 * 1024));
  for (const id of ['a', 'b']) found.offer(server(id), [large]);
  found.offer(server('c'), [tool('X.')]);
  await turn();
  proceed();
  await turn();
  expect(begun).toEqual(['a', 'c']);
});
