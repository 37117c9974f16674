import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, it } from 'vitest';
import { makeDataDir } from '../support/data-dir.ts';
import { run, serve, temporaryFolder } from '../support/program.ts';
import { refusedPort } from '../support/upstreams/http.ts';
import { startV2Server } from '../support/upstreams/v2.ts';

it('catalogue probe reports each server, and search and show follow it', async () => {
  await using folder = temporaryFolder();
  await using up = await startV2Server();
  const file = path.join(folder.path, 'catalogue.jsonl');
  const entry = (id: string, remote_url: string) => ({
    id,
    name: id,
    description: 'Tide tables.',
    remote_url,
  });
  const entries = [entry('down', `http://127.0.0.1:${await refusedPort()}/mcp`), entry('up', up.url)];
  await writeFile(file, entries.map(one => JSON.stringify(one)).join('\n'));
  const env = {
    SWITCHBOARD_DATA_DIR: await makeDataDir(path.join(folder.path, 'data')),
    SWITCHBOARD_CATALOGUE: file,
    SWITCHBOARD_ALLOW_PRIVATE_NETWORK: 'true',
  };
  await using _served = await serve(env);
  const probed = await run(['catalogue', 'probe'], env);
  expect(probed).toMatchObject({ code: 0 });
  expect(probed.stdout).toMatch(
    /^2 servers checked: 1 ok, 1 unreachable\.\n {2}down: unreachable\. The MCP server refused/,
  );
  expect(probed.stderr).toContain('2 of 2 servers checked');

  expect((await run(['catalogue', 'probe', 'up'], env)).stdout).toBe('1 server checked: 1 ok.\n');
  const named = await run(['catalogue', 'probe', 'down', 'up', '--json'], env);
  expect(JSON.parse(named.stdout)).toMatchObject({
    visited: 2,
    failing: [{ id: 'down', status: 'unreachable' }],
  });
  await run(['catalogue', 'probe', 'down'], env);
  const { stdout } = await run(['search', 'tide tables'], env);
  expect(stdout).toMatch(
    /^\S+ {2}up \(up\) \[unknown\]\n[\s\S]*^\S+ {2}down \(down\) \[unknown\], unreachable\n/m,
  );
  expect(stdout).toMatch(/tools: \w+/);
  const shown = await run(['catalogue', 'show', 'down'], env);
  expect(JSON.parse(shown.stdout).health).toMatchObject({ failures: 3, dead_since: expect.any(String) });

  const unknown = await run(['catalogue', 'probe', 'up', 'nobody'], env);
  expect(unknown).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('No server has the id "nobody"'),
  });
});

it('catalogue probe fails when most hosts fail', async () => {
  await using folder = temporaryFolder();
  const file = path.join(folder.path, 'catalogue.jsonl');
  const ports = await Promise.all(Array.from({ length: 10 }, () => refusedPort()));
  const entries = ports.map((port, at) => {
    const remote_url = `http://127.0.0.1:${port}/mcp`;
    return { id: `s${at}`, name: `s${at}`, description: 'Tide tables.', remote_url };
  });
  await writeFile(file, entries.map(one => JSON.stringify(one)).join('\n'));
  const env = {
    SWITCHBOARD_DATA_DIR: await makeDataDir(path.join(folder.path, 'data')),
    SWITCHBOARD_CATALOGUE: file,
    SWITCHBOARD_ALLOW_PRIVATE_NETWORK: 'true',
  };
  const probed = await run(['catalogue', 'probe'], env);
  expect(probed).toMatchObject({ code: 1 });
  expect(probed.stdout).toMatch(/^10 servers checked: 10 unreachable\.\n/);
  expect(probed.stdout).toMatch(/\nDoubted: .* own network.*\n$/);
});
