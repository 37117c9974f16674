import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import { createLog } from '../../../src/platform/telemetry/log.ts';
import { startHostile } from '../../support/upstreams/hostile.ts';
import { startHttpSse } from '../../support/upstreams/http-sse.ts';
import { caller, startProxy } from './harness.ts';

setFlagsFromString('--expose-gc');
const collectGarbage: unknown = runInNewContext('gc');

const ROUNDS = 100;
const CALLS = 60;
const ABANDONED = 7;

async function start(era: 'modern' | 'legacy' | 'sse') {
  const log = createLog('error', { write: () => {} });
  if (era === 'sse') {
    const peer = await startHttpSse({
      modes: {
        'tools/call': call => (call.message.params.name === 'hang' ? call.accept() : call.result()),
      },
    });
    const harness = startProxy(peer.url, { log });
    harness.catalogue('s', peer.url, { transport: 'sse' });
    return { peer, harness };
  }
  const peer = await startHostile({
    era,
    modes: {
      m: call => {
        if (call.message.params?.name !== 'hang') call.result({ content: [] });
      },
    },
  });
  return { peer, harness: startProxy(peer.url('m'), { log }) };
}

/** Bytes in use once nothing is left that nobody holds. */
function heapBytes(): number {
  if (typeof collectGarbage === 'function') collectGarbage();
  return process.memoryUsage().heapUsed;
}

describe.each(['modern', 'legacy', 'sse'] as const)('%s', era => {
  it('20,000 calls and 2,000 abandoned callers (in the three eras together) leave nothing behind', async () => {
    const { peer, harness } = await start(era);
    await using _peer = peer;
    await using _harness = harness;
    let hung = 0;
    const round = async () => {
      const controllers = Array.from({ length: ABANDONED }, () => new AbortController());
      const abandoned = controllers.map(({ signal }) =>
        harness.proxy.callTool(caller({ signal }), { serverId: 's', name: 'hang' }).catch(() => {}),
      );
      await Promise.all(Array.from({ length: CALLS }, () => harness.tool()));
      hung += ABANDONED;
      await expect
        .poll(
          () => peer.inbox.of('tools/call').filter(({ message }) => message.params.name === 'hang').length,
        )
        .toBe(hung);
      for (const controller of controllers) controller.abort();
      await Promise.all(abandoned);
    };
    const rounds = async (count: number) => {
      for (let i = 0; i < count; i++) await round();
      peer.inbox.all.length = 0;
      harness.outcomes.length = 0;
      hung = 0;
    };
    await rounds(ROUNDS / 4);
    const before = heapBytes();
    for (let i = 0; i < 4; i++) await rounds(ROUNDS / 4);
    expect(heapBytes() - before).toBeLessThan(3 * 1024 * 1024);
    expect(harness.proxy.sessionCount).toBe(era === 'modern' ? 0 : 1);
  });
});
