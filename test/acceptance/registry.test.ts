import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { makeDataDir } from '../support/data-dir.ts';
import { run, serve, temporaryFolder } from '../support/program.ts';

const KEY = 'a-key-for-tests-of-at-least-32-characters';
const LONG = `Looks up when high and low water is at a harbour. ${'In detail. '.repeat(10)}`.trim();

/** Settings of a Switchboard with a catalogue of its own. */
async function installation(folder: string, name: string, entries: readonly object[]) {
  const file = path.join(folder, `${name}.jsonl`);
  await writeFile(file, entries.map(one => JSON.stringify(one)).join('\n'));
  return {
    SWITCHBOARD_DATA_DIR: await makeDataDir(path.join(folder, name)),
    SWITCHBOARD_CATALOGUE: file,
    SWITCHBOARD_API_KEY: KEY,
    SWITCHBOARD_ALLOW_PRIVATE_NETWORK: 'true',
  };
}

const entry = (id: string, more: object = {}) => ({
  id,
  name: id,
  description: `The ${id}.`,
  remote_url: `https://${id}.example/mcp`,
  ...more,
});

describe('one Switchboard as the registry of another', () => {
  it('hands on its servers, its changes, and what has ended, by command and by schedule', async () => {
    await using folder = temporaryFolder();
    const tides = entry('tides', { name: 'Tides', description: LONG, categories: ['travel-maps'] });
    const names = ['a', 'b', 'c', 'd'];
    const first = await installation(folder.path, 'first', [
      tides,
      entry('both'),
      ...names.map(name => entry(name)),
    ]);
    const second = await installation(folder.path, 'second', [entry('both')]);
    await using source = await serve(first);
    const env = { ...second, SWITCHBOARD_REGISTRY_KEYS: JSON.stringify({ [source.url]: KEY }) };
    await using served = await serve(env);

    const synced = await run(['catalogue', 'sync', `${source.url}/v0.1/servers`], env);
    expect(synced).toMatchObject({
      code: 0,
      stdout:
        '5 servers synced (full, 6 entries listed), 1 skipped (already present from the operator, the shipped catalogue or another registry, or inactive as unreachable).\n',
    });
    expect(synced.stderr).toMatch(/^\d+ of \d+ texts embedded/m);
    const shown = JSON.parse((await run(['catalogue', 'show', 'local.switchboard_tides'], env)).stdout);
    expect(shown).toMatchObject({
      name: 'Tides',
      description: LONG,
      remote_url: 'https://tides.example/mcp',
      categories: ['travel-maps'],
      origin: 'registry',
      registry: { source: source.url, name: 'local.switchboard/tides' },
    });

    expect((await run(['catalogue', 'deactivate', 'a'], first)).code).toBe(0);
    await run(['catalogue', 'add', 'b', 'https://b.example/elsewhere', '--name', 'Moved'], first);
    const again = await run(['catalogue', 'sync', source.url, '--json'], env);
    expect(JSON.parse(again.stdout)).toMatchObject({ mode: 'incremental', deactivated: 1 });
    const list = async (query = '') => {
      const response = await fetch(`${served.url}/v0.1/servers${query}`, {
        headers: { authorization: `Bearer ${KEY}` },
      });
      return (await response.json()) as { servers: { server: { name: string; remotes: object[] } }[] };
    };
    const { servers } = await list();
    expect(servers.map(({ server }) => server.name)).toEqual(
      ['both', ...['b', 'c', 'd', 'tides'].map(id => `local.switchboard_${id}`)].map(
        id => `local.switchboard/${id}`,
      ),
    );
    expect(servers[1]?.server.remotes).toEqual([
      { type: 'streamable-http', url: 'https://b.example/elsewhere' },
    ]);
    const gone = await fetch(`${served.url}/v1/mcp/tools/list`, {
      method: 'POST',
      headers: { 'x-api-key': KEY, 'content-type': 'application/json' },
      body: '{"server_id":"local.switchboard_a"}',
    });
    expect(gone.status).toBe(410);
  });

  it('is synced with by schedule from the start', async () => {
    await using folder = temporaryFolder();
    const first = await installation(folder.path, 'first', [entry('tides')]);
    await using source = await serve({ ...first, SWITCHBOARD_REGISTRY_ACCESS: 'public' });
    const second = await installation(folder.path, 'second', [entry('other')]);
    await using served = await serve({ ...second, SWITCHBOARD_REGISTRIES: `${source.url}/` });
    const isThere = async () => {
      const headers = { 'x-api-key': KEY };
      const response = await fetch(`${served.url}/v0.1/servers?search=tides`, { headers });
      return (await response.text()).includes('https://tides.example/mcp');
    };
    while (!(await isThere()));
  });
});
