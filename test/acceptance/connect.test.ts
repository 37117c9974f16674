import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { makeDataDir } from '../support/data-dir.ts';
import { run, serve, temporaryFolder } from '../support/program.ts';
import { startProtectedServer } from '../support/authorization/protected.ts';
import { startAuthorizationServer } from '../support/authorization/server.ts';
import { runOnTerminal, terminalMissing } from '../support/terminal.ts';
import { startAuthorised } from '../support/upstreams/authorised.ts';
import { UserAgent } from '../support/user-agent.ts';

const KEY = 'key-typed-on-a-terminal-42';

describe.skipIf(terminalMissing !== undefined)(`on a terminal ${terminalMissing ?? ''}`, () => {
  it('a key typed on a terminal is not shown, makes a call possible, and is gone with disconnect', async () => {
    await using upstream = await startAuthorised(
      'legacy',
      ({ authorization }) => authorization === `Bearer ${KEY}`,
    );
    await using folder = temporaryFolder();
    const catalogue = path.join(folder.path, 'catalogue.jsonl');
    const entry = { id: 'weather', name: 'Weather', description: 'Weather.', remote_url: upstream.url };
    await writeFile(catalogue, JSON.stringify({ ...entry, auth: { kind: 'credentials' } }));
    const env = {
      SWITCHBOARD_DATA_DIR: await makeDataDir(path.join(folder.path, 'data')),
      SWITCHBOARD_CATALOGUE: catalogue,
      SWITCHBOARD_ALLOW_PRIVATE_NETWORK: 'true',
    };
    await using _server = await serve(env);
    const call = () => run(['call', 'weather', 'echo', '{"message":"hello"}'], env);

    expect(await call()).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('npx switchboard connect weather'),
    });
    const wrong = await runOnTerminal(['connect', 'weather'], ['not-the-right-key\r', '\u0003'], env);
    expect(wrong).toMatchObject({ code: 130, screen: expect.stringContaining('refused') });
    const right = await runOnTerminal(['connect', 'weather'], ['still-not-right\r', `${KEY}\r`], env);
    expect(right, right.screen).toMatchObject({
      code: 0,
      screen: expect.stringContaining('Connected weather.'),
    });
    expect(right.screen).not.toContain(KEY);
    expect((await call()).stdout).toContain('hello');
    const hostile = `\u001B[2J\u001B]52;c;aGk=\u0007\u009B31m\u202E\u{E0041}end`;
    const input = JSON.stringify({ message: hostile }).replaceAll("'", '');
    const shown = await runOnTerminal(['call', 'weather', 'echo', `'${input}'`], [], env);
    expect(shown.screen).toMatch(/]52;c;aGk=.*end/);
    expect(shown.screen.replaceAll(/\r?\n/g, '')).not.toMatch(/[\p{Cc}\p{Cf}]/u);
    const { stdout: json } = await run(['call', 'weather', 'echo', input, '--json'], env);
    expect(json.trimEnd()).not.toMatch(/[\p{Cc}\p{Cf}]/u);
    expect(JSON.parse(json).content[0].text).toContain(hostile);
    expect((await run(['connections'], env)).stdout).toMatch(/weather +key [0-9a-f]{8} +active/);
    expect(await run(['disconnect', 'weather'], env)).toMatchObject({ code: 0 });
    expect((await call()).code).toBe(1);
    const ctrlC = await runOnTerminal(['connect', 'weather'], ['\u0003'], env);
    expect(ctrlC.code).not.toBe(0);
    expect((await run(['connections'], env)).stdout).toContain('No connections.');
  });

  it('a sign-in in the browser ends the command, and makes a call possible until disconnect', async () => {
    await using authorizationServer = await startAuthorizationServer();
    await using upstream = await startProtectedServer({ authorizationServer });
    await using folder = temporaryFolder();
    const catalogue = path.join(folder.path, 'catalogue.jsonl');
    const entry = { id: 'notes', name: 'Notes', description: 'Notes.', remote_url: upstream.url };
    await writeFile(catalogue, JSON.stringify(entry));
    const env = {
      SWITCHBOARD_DATA_DIR: await makeDataDir(path.join(folder.path, 'data')),
      SWITCHBOARD_CATALOGUE: catalogue,
      SWITCHBOARD_ALLOW_PRIVATE_NETWORK: 'true',
    };
    await using _server = await serve(env);
    const call = () => run(['call', 'notes', 'echo', '{"message":"hello"}'], env);

    expect(await call()).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('npx switchboard connect notes'),
    });
    const agent = new UserAgent();
    const signIn = async (link: string) => agent.follow(await agent.submit(await agent.get(link)));
    const done = await runOnTerminal(['connect', 'notes'], link => signIn(link), env);
    expect(done, done.screen).toMatchObject({
      code: 0,
      screen: expect.stringMatching(/Connected notes\. It lists \d+ tools\./),
    });
    expect((await call()).stdout).toContain('hello');
    expect((await run(['connections'], env)).stdout).toMatch(/notes .*active/);
    expect(await run(['disconnect', 'notes'], env)).toMatchObject({ code: 0 });
    expect((await call()).code).toBe(1);
    await vi.waitUntil(() => authorizationServer.sent('revoke').length > 0, 20_000);
  });
});
