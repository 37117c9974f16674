import { readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { startChild } from '../../scripts/clients/processes.ts';
import { startMail } from '../support/identity.ts';
import { temporaryFolder } from '../support/program.ts';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';
import { startEverything } from '../support/upstreams/everything.ts';

const startExample = (name: string, sb: RunningSwitchboard, env: Record<string, string> = {}) =>
  startChild(process.execPath, [path.resolve('client/examples', name)], {
    env: { PATH: process.env['PATH'], SWITCHBOARD_URL: sb.url, SWITCHBOARD_KEY: sb.key, ...env },
  });

describe('the examples', () => {
  it('first-call.ts finds a server and calls its tool', async () => {
    await using upstream = await startEverything();
    const echo = { name: 'echo', description: 'Echoes a message.', input_schema: { type: 'object' } };
    await using sb = await startTestSwitchboard({
      catalogue: [{ id: 'everything', remote_url: upstream.url, tools: [echo] }],
    });
    await using example = startExample('first-call.ts', sb);
    expect(await example.ended, example.output()).toBe(0);
    expect(example.output()).toContain('Echo: hello');
  });

  it('act-for-a-user.ts signs a user in once, and keeps the tokens for itself', async () => {
    await using sb = await startMail('pglite');
    await using folder = temporaryFolder();
    const file = path.join(folder.path, 'tokens.json');
    const env = { SERVER: 'mail', TOOL: 'echo', ARGUMENTS: '{"message":"ebb"}', TOKENS: file };
    await using first = startExample('act-for-a-user.ts', sb, env);
    const [authUrl = ''] = /http\S+/.exec(await first.line()) ?? [];
    await sb.signIn(authUrl, { login: 'ada' });
    expect(await first.ended, first.output()).toBe(0);
    expect(first.output()).toContain('Echo: ebb');
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    const { refresh_token: kept } = JSON.parse(await readFile(file, 'utf8'));

    await sb.elapse(3_700_000);
    await using second = startExample('act-for-a-user.ts', sb, env);
    expect(await second.ended, second.output()).toBe(0);
    expect(second.output()).toContain('Echo: ebb');
    expect(JSON.parse(await readFile(file, 'utf8')).refresh_token).not.toBe(kept);
  });
});
