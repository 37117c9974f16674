import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startProtectedServer } from '../support/authorization/protected.ts';
import { startAuthorizationServer, type AuthorizationServer } from '../support/authorization/server.ts';
import { runHere } from '../support/command.ts';
import { makeDataDir } from '../support/data-dir.ts';
import { begin, serve, temporaryFolder, type Finished } from '../support/program.ts';
import { startAuthorised } from '../support/upstreams/authorised.ts';
import { UserAgent } from '../support/user-agent.ts';

const KEY = 'key-from-a-script-42';

const described = { name: 'Notes', description: 'Notes of a team.' };
const tool = (name: string, more: object = {}, properties: object = {}, required: string[] = []) => ({
  name,
  description: `Does ${name}.`,
  input_schema: { type: 'object', properties, required },
  ...more,
});

describe('on the command line, a server', () => {
  const opened = new AsyncDisposableStack();
  let issuer: AuthorizationServer;
  let env: Record<string, string>;
  const run = (line: string, stdin = ''): Promise<Finished> => runHere(line.split(' '), env, stdin);

  beforeAll(async () => {
    issuer = opened.use(await startAuthorizationServer());
    const closed = opened.use(await startAuthorizationServer({ registration: 'none' }));
    const notes = opened.use(await startProtectedServer({ authorizationServer: issuer }));
    const elsewhere = opened.use(await startProtectedServer({ authorizationServer: closed }));
    const keyed = opened.use(
      await startAuthorised('modern', ({ authorization }) => authorization === `Bearer ${KEY}`),
    );
    const folder = opened.use(temporaryFolder());
    const catalogue = path.join(folder.path, 'catalogue.jsonl');
    const text = { type: 'string' };
    const entries = [
      { id: 'notes', remote_url: notes.url },
      { id: 'elsewhere', remote_url: elsewhere.url, auth: { kind: 'oauth' } },
      { id: 'keyed', remote_url: keyed.url, auth: { kind: 'credentials' } },
      {
        id: 'optional',
        remote_url: keyed.url,
        auth: {
          kind: 'credentials',
          headers: [
            {
              name: 'Authorization',
              value: 'Bearer {key}',
            },
            { name: 'X-Region', required: false },
          ],
        },
      },
      {
        id: 'sly',
        remote_url: 'https://sly.example/mcp',
        tools: [
          tool("a';reboot;'", { annotations: { readOnlyHint: true } }),
          tool('bad', { annotations: { readOnlyHint: true } }, { "x';reboot;'": text }, ["x';reboot;'"]),
          tool('wipe', { annotations: { destructiveHint: true } }),
          tool(
            'find',
            {},
            {
              query: text,
              kind: { enum: ["it's", 'all'] },
              limit: { type: ['integer', 'null'] },
              more: text,
            },
            ['query', 'kind', 'limit'],
          ),
        ],
      },
    ].map(entry => JSON.stringify({ ...described, ...entry }));
    await writeFile(catalogue, entries.join('\n'));
    env = {
      SWITCHBOARD_DATA_DIR: await makeDataDir(path.join(folder.path, 'data')),
      SWITCHBOARD_CATALOGUE: catalogue,
      SWITCHBOARD_ALLOW_PRIVATE_NETWORK: 'true',
    };
    opened.use(await serve(env));
  });
  afterAll(() => opened.disposeAsync());

  it('that is not connected says which command connects it, and speaks of nobody else', async () => {
    for (const line of ['call keyed echo', 'tools keyed']) {
      const { code, stderr } = await run(line);
      expect({ code, stderr }).toEqual({
        code: 1,
        stderr:
          'switchboard: The server keyed requires a key, and none has been entered yet. Run npx switchboard connect keyed.\n',
      });
    }
    const { code, stderr } = await run('connect elsewhere');
    expect(code).toBe(1);
    expect(stderr).toMatch(
      / Create an OAuth client there with the redirect URI \S+ and enter it in the console/,
    );
    expect(stderr).not.toContain('operator');
    expect((await run('search notes')).stdout).toContain(
      'cannot be called yet: npx switchboard connect elsewhere says what to set up first',
    );
  });

  it('that was connected shows a call that works as it is, and its tools', async () => {
    const { stdout } = await run('connect keyed', `${KEY}\n`);
    const hint = /^Connected keyed\. It lists \d+ tools\.\nTry it: npx switchboard (call keyed .*)\n$/.exec(
      stdout,
    )?.[1];
    const [, name = '', input = ''] = /^call keyed (\S+) '(.*)'$/.exec(hint ?? '') ?? [];
    // The fixture's first tool fails on purpose; it was reached.
    expect(await runHere(['call', 'keyed', name, input], env)).toMatchObject({ stderr: '' });

    const listed = await run('tools keyed');
    expect(listed.stdout).toMatch(/^TOOL +ARGUMENTS +DESCRIPTION\n/);
    expect(listed.stdout).toMatch(/^echo +message +\S/m);
    expect(listed.stdout).toContain(`Try it: npx switchboard ${hint}`);
    const { server_id, tools } = JSON.parse((await run('tools keyed --json')).stdout);
    expect([server_id, tools.map((one: { name: string }) => one.name)]).toEqual([
      'keyed',
      expect.arrayContaining(['echo']),
    ]);
    expect((await run('connections')).stdout).toMatch(
      /^SERVER OR PROVIDER +ACCOUNT OR KEY +STATUS .*\nkeyed +key [0-9a-f]{8} +active /,
    );
  });

  it('asks a person again for a key that it refuses, three times', async () => {
    const again = await runHere(['connect', 'keyed'], env, ['wrong-key-1234', KEY]);
    expect(again).toMatchObject({ code: 0, stdout: expect.stringMatching(/^Connected keyed\./) });
    expect(again.stderr).toContain('Try again, or stop with Ctrl-C.');
    const never = await runHere(['connect', 'keyed'], env, ['wrong-1234', 'wrong-5678', 'wrong-9012', KEY]);
    expect([never.code, never.stderr.match(/Try again/g)]).toEqual([1, ['Try again', 'Try again']]);
  });

  it('with one value that it requires takes that from stdin without its name', async () => {
    const { code, stdout } = await run('connect optional', KEY);
    expect({ code, stdout }).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^Connected optional\./),
    });
  });

  it('is disconnected with the advice that fits, or says what is wrong with its name', async () => {
    await run('connect keyed', KEY);
    expect((await run('disconnect keyed')).stdout).toMatch(/^Disconnected keyed\. The key stays valid at/);
    expect((await run('disconnect keyed')).stderr).toContain('keyed is not connected.');
    expect((await run('disconnect keyd')).stderr).toContain('No server has the id "keyd"');
  });

  it('is not connected in a folder without a database, which is not made', async () => {
    await using folder = temporaryFolder();
    const elsewhere = { ...env, SWITCHBOARD_DATA_DIR: path.join(folder.path, 'new') };
    const { code, stderr } = await runHere(['connect', 'keyed'], elsewhere, KEY);
    expect([code, stderr, existsSync(elsewhere.SWITCHBOARD_DATA_DIR)]).toEqual([
      1,
      expect.stringContaining('There is no database in'),
      false,
    ]);
  });

  it('of another tenant is not suggested for a call, which no command makes for it', async () => {
    await run('keys create --tenant acme');
    const { stdout } = await run('connect keyed --tenant acme', KEY);
    expect(stdout).toMatch(/^Connected keyed\..*\nThe API keys of the tenant acme can call it now\.\n$/);
  });

  it('can put nothing on the terminal that a shell would run', async () => {
    const { stdout } = await run('tools sly');
    expect(stdout).toContain(`find         query kind limit [more]  Does find.`);
    expect(stdout).toContain(`Try it: npx switchboard call sly find '{"query":"…","kind":"…","limit":1}'\n`);
  });

  it('with a sign-in takes no key from stdin unless --key says so', async () => {
    const before = issuer.sent('token').length;
    const refused = await run('connect notes', KEY);
    expect(refused).toMatchObject({ code: 2, stdout: '' });
    expect(refused.stderr).toMatch(/^switchboard: notes has a sign-in, so the key on stdin was not stored\./);
    expect(refused.stderr).toContain('add --key');
    expect(refused.stderr).not.toContain('/connect/link_');
    expect((await run('connect notes --key', KEY)).stderr).toMatch(/refused the key/);
    expect(issuer.sent('token')).toHaveLength(before);
  });

  it.each(['closed', 'open'])('with a sign-in is connected while stdin is %s and empty', async stdin => {
    const child = spawn(process.execPath, ['bin/switchboard.js', 'connect', 'notes'], {
      env: { PATH: '', ...env, LOG_LEVEL: 'warn' },
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    if (stdin === 'closed') child.stdin.end();
    let shown = '';
    child.stdout.on('data', (chunk: Buffer) => (shown += chunk.toString()));
    let signedIn: Promise<unknown> | undefined;
    child.stderr.on('data', (chunk: Buffer) => {
      const link = /http\S+\/connect\/\S+/.exec(chunk.toString())?.[0];
      if (link !== undefined) signedIn ??= new UserAgent().connect(link);
    });
    const [code] = (await once(child, 'close')) as [number | null];
    await signedIn;
    expect({ code, shown }).toEqual({
      code: 0,
      shown: expect.stringMatching(/^Connected notes\. .*\nTry it: npx switchboard call notes \S+ '.*'\n$/),
    });
    expect((await run('connections')).stdout).toMatch(new RegExp(`^notes +at ${issuer.issuer} +active`, 'm'));
  });

  it('gets no connection while Ctrl-C ends the command that waits', async () => {
    await using running = begin(['connect', 'notes'], env);
    await running.complaint(/\/connect\/link_/);
    running.kill('SIGINT');
    expect(await running.finished).toMatchObject({
      code: 130,
      stderr: expect.stringContaining('Stopped waiting.'),
    });
  });
});
