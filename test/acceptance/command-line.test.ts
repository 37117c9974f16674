import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { run, serve, temporaryFolder } from '../support/program.ts';

/** The program itself; test/cli/command-line.test.ts runs all commands. */
describe('the command line', () => {
  it('is the program that the package names', async () => {
    const manifest = JSON.parse(await readFile('package.json', 'utf8'));
    expect(manifest.bin).toEqual({ switchboard: 'bin/switchboard.js' });
  });

  it('speaks to the running server, and answers on stdout', async () => {
    await using folder = temporaryFolder();
    const env = {
      SWITCHBOARD_DATA_DIR: path.join(folder.path, 'data'),
      SWITCHBOARD_CATALOGUE: path.resolve('test/support/one-server.jsonl'),
    };
    await using server = await serve(env);
    const { code, stdout, stderr } = await run(['keys', 'create', '--json'], env);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const response = await fetch(`${server.url}/v1/search`, {
      method: 'POST',
      headers: { 'x-api-key': JSON.parse(stdout).key, 'content-type': 'application/json' },
      body: '{"query":"anything"}',
    });
    expect(response.status).toBe(200);
    await server.stop();
  });

  it.each([
    [['frobnicate'], {}, 2],
    [['keys', 'list'], { SWITCHBOARD_DATA_DIR: '/no/such/folder' }, 1],
  ])('%j ends with one line on stderr, and its exit code', async (args, env, code) => {
    const result = await run(args, env);
    expect({ code: result.code, stdout: result.stdout }).toEqual({ code, stdout: '' });
    expect(result.stderr).toMatch(/^switchboard: .*\n$/);
  });
});
