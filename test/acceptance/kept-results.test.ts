import { describe, expect, inject, it } from 'vitest';
import { connectV2 } from '../support/mcp-clients.ts';
import { installOnPostgres } from '../support/processes.ts';

const MESSAGE = Array.from({ length: 20_000 }, (_, at) => `line ${at}`)
  .join('\n')
  .slice(0, 100_000 - 'Echo: '.length);
const ANSWER = `Echo: ${MESSAGE}`;

/** A part of a result, and the call that reads on where it is not the last. */
const PART =
  /^([^]*)\n\[characters [\d,]+ to [\d,]+ of 100,000; (?:to continue: call_remote_tool (\{.*\})|this is the end)\]$/;

describe.skipIf(inject('postgresUrl') === undefined)('two processes on one Postgres', () => {
  it('a handle survives the death of the process that made it', async () => {
    await using installation = await installOnPostgres();
    const { key, upstream } = installation;
    const [first, second] = [await installation.start('a'), await installation.start('b')];
    await Promise.all([first.ready(), second.ready()]);
    const added = await first.command('catalogue', 'add', 'echoes', upstream.url, '--description', 'Echoes.');
    expect(added.code, added.stderr).toBe(0);
    const call = (tool_name: string, args: object, server_id = 'switchboard') => ({
      server_id,
      tool_name,
      arguments: args,
    });

    await using caller = await connectV2({ url: first.url, key }, 'legacy');
    const answer = await caller.call('call_remote_tool', call('echo', { message: MESSAGE }, 'echoes'));
    const handle = /res_\w{22}/.exec(answer.content.at(-1)?.text ?? '')?.[0] ?? '';
    expect(handle).not.toBe('');
    expect(await first.stop('SIGKILL')).toBe(null);

    const read = await second.get(`/v1/results/${handle}?max_chars=100000`);
    expect(read.json).toMatchObject({ text: ANSWER, total_characters: ANSWER.length });
    await using reader = await connectV2({ url: second.url, key }, 'legacy');
    const shown: string[] = [];
    for (let next: object | undefined = call('read_result', { handle, offset: 0 }); next;) {
      const { content } = await reader.call('call_remote_tool', { ...next });
      const page = content.map(block => block.text).join('\n');
      const [, text, readOn] = PART.exec(page) ?? [];
      expect(text, page).toBeDefined();
      shown.push(text ?? '');
      next = readOn === undefined ? undefined : JSON.parse(readOn);
    }
    expect(shown.join('')).toBe(ANSWER);

    const created = await second.command('keys', 'create', '--json');
    expect(created.code, created.stderr).toBe(0);
    const another = { 'x-api-key': JSON.parse(created.stdout).key as string };
    expect(await second.get(`/v1/results/${handle}`, another)).toMatchObject({
      status: 404,
      json: { code: 'result_not_found' },
    });
  });
});
