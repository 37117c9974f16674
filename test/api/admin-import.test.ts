import path from 'node:path';
import { createInterface } from 'node:readline';
import { Client } from 'undici';
import { describe, expect, it } from 'vitest';
import { controlledEmbedder } from '../core/search/support.ts';
import { startTestSwitchboard } from '../support/switchboard.ts';

const line = (id: string) =>
  JSON.stringify({
    id,
    name: id,
    description: `The server ${id}.`,
    remote_url: `https://${id}.example/mcp`,
    tools: [{ name: 'look_up', description: `Looks up ${id}.` }],
  });

/** A switchboard whose embedder waits while it is held. */
async function start() {
  const control = controlledEmbedder();
  const sb = await startTestSwitchboard({ embedder: () => Promise.resolve(control.embedder) });
  let release = () => {};
  const hold = () => {
    control.gate = new Promise<void>(resolve => (release = resolve));
  };
  const socketPath = path.join(sb.dataDir, 'control.sock');
  /** Begins an import as the command line does: on a connection of its own. */
  const begin = async (text: string) => {
    const client = new Client('http://localhost', { connect: { socketPath } });
    const response = await client.request({
      method: 'POST',
      path: '/catalogue/import',
      body: text,
      headers: { 'content-type': 'text/plain', accept: 'application/x-ndjson' },
    });
    response.body.on('error', () => {});
    const lines = createInterface({ input: response.body })[Symbol.asyncIterator]();
    return {
      /** The next line. */
      hear: async () => JSON.parse((await lines.next()).value as string) as Record<string, unknown>,
      /** The last line. */
      async end() {
        let last = '';
        for (let next = await lines.next(); next.done !== true; next = await lines.next()) last = next.value;
        await client.close();
        return JSON.parse(last) as { result?: unknown };
      },
      /** As when the command is killed. */
      kill: () => client.destroy(),
    };
  };
  const knows = async (id: string) => (await sb.admin.request('GET', `/catalogue/${id}`)).status === 200;
  return {
    hold,
    release: () => release(),
    begin,
    knows,
    logged: () => sb.logged(),
    [Symbol.asyncDispose]: async () => {
      release();
      await sb[Symbol.asyncDispose]();
    },
  };
}

describe('POST /catalogue/import on the control socket', () => {
  it('announces that it waits for another import, and runs after it', async () => {
    await using sb = await start();
    sb.hold();
    const first = await sb.begin(line('a'));
    expect(await first.hear()).toEqual({ progress: { done: 0, of: 2 } });
    const second = await sb.begin([line('a').replace('The server a', 'Another a'), line('b')].join('\n'));
    expect(await second.hear()).toEqual({
      notice: expect.stringContaining('Waiting for another catalogue change') as unknown,
    });
    expect(await sb.knows('b')).toBe(false);
    sb.release();
    expect(await first.end()).toMatchObject({ result: { imported: 1 } });
    expect(await second.end()).toMatchObject({ result: { imported: 2 } });
    expect([await sb.knows('a'), await sb.knows('b')]).toEqual([true, true]);
  });

  it('announces nothing when no other import is under way', async () => {
    await using sb = await start();
    const only = await sb.begin(line('a'));
    expect(await only.hear()).toEqual({ progress: { done: 0, of: 2 } });
    expect(await only.end()).toMatchObject({ result: { imported: 1 } });
  });

  it('cancels the import of a command that has gone, changes nothing by it, and runs the next one', async () => {
    await using sb = await start();
    sb.hold();
    const first = await sb.begin(line('a'));
    expect(await first.hear()).toHaveProperty('progress');
    const waiting = await sb.begin(line('b'));
    expect(await waiting.hear()).toHaveProperty('notice');
    const last = await sb.begin(line('c'));
    expect(await last.hear()).toHaveProperty('notice');
    await first.kill();
    await waiting.kill();
    // Both closings have reached the server when it answers what was asked after them.
    expect(await sb.knows('a')).toBe(false);
    sb.release();
    expect(await last.end()).toMatchObject({ result: { imported: 1 } });
    expect([await sb.knows('a'), await sb.knows('b'), await sb.knows('c')]).toEqual([false, false, true]);
    expect(sb.logged().match(/long request cancelled/g)).toHaveLength(2);
    expect(sb.logged()).not.toContain('request failed');
  });
});
