import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, inject, it } from 'vitest';
import { createDatabase } from '../support/postgres.ts';
import { makeDataDir } from '../support/data-dir.ts';
import { begin, run, serve, temporaryFolder, type Program } from '../support/program.ts';
import { eventually } from '../support/processes.ts';
import { listed, sendJson, startRegistry, type RegistryServer } from '../support/registry.ts';

const KEY = 'a-key-for-tests-of-at-least-32-characters';
const mine = (id: string) =>
  JSON.stringify({
    id,
    name: 'Mine',
    description: 'Of the operator.',
    remote_url: `https://${id}.example/mcp`,
  });

/** Enough servers that their embedding can be met half-way. */
const many = (count: number) =>
  Array.from({ length: count }, (_, at) =>
    listed(`x.y/s${at}`, { description: `Looks up entry ${at} of the register of ships.` }),
  );

/** A registry, and a Switchboard that has an entry `x.y_own`, which the registry lists too, and a registry's `x.y_before`. */
async function workspace(databaseUrl?: string) {
  await using opened = new AsyncDisposableStack();
  const folder = opened.use(temporaryFolder());
  const registry = opened.use(await startRegistry([listed('x.y/before'), listed('x.y/own')]));
  const catalogue = path.join(folder.path, 'catalogue.jsonl');
  await writeFile(catalogue, mine('x.y_own'));
  if (databaseUrl === undefined) await makeDataDir(path.join(folder.path, 'a'));
  const env = (name = 'a') => ({
    SWITCHBOARD_DATA_DIR: path.join(folder.path, name),
    SWITCHBOARD_CATALOGUE: catalogue,
    SWITCHBOARD_API_KEY: KEY,
    SWITCHBOARD_KEKS: `k1:${Buffer.alloc(32).toString('base64')}`,
    SWITCHBOARD_ALLOW_PRIVATE_NETWORK: 'true',
    ...(databaseUrl === undefined ? {} : { DATABASE_URL: databaseUrl }),
  });
  const own = path.join(folder.path, 'own.jsonl');
  await writeFile(own, mine('x.y_own'));
  const all = opened.move();
  const logs = (name: string) => path.join(folder.path, `${name}.log`);
  return { registry, own, env, logs, [Symbol.asyncDispose]: () => all.disposeAsync() };
}

const headers = { 'x-api-key': KEY, 'content-type': 'application/json' };

/** The names of the active servers, and what a search finds. */
async function contents({ url }: Program) {
  const listing = await fetch(`${url}/v0.1/servers?limit=100`, { headers });
  const { servers } = (await listing.json()) as { servers: { server: { name: string; title?: string } }[] };
  const body = JSON.stringify({ query: 'register of ships' });
  const search = await fetch(`${url}/v1/search`, { method: 'POST', headers, body });
  return {
    names: servers.map(({ server }) => server.title ?? server.name),
    found: /"id":"x\.y_s\d/.test(await search.text()),
  };
}

/** What there was before the sync that failed, and nothing of it. */
const BEFORE = { names: ['x.y/before', 'Mine'], found: false };

const status = async ({ url }: Program, id: string) => {
  const response = await fetch(`${url}/v1/mcp/tools/list`, {
    method: 'POST',
    headers,
    body: JSON.stringify({ server_id: id }),
  });
  return response.status;
};

/** Its third page never comes: what has been read by then is not all. */
function holdThirdPage(registry: RegistryServer): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  registry.fault = (_response, good, url) => (url.searchParams.get('cursor') === '4' ? resolve() : good());
  return promise;
}

/** The operator's own entry, and a first sync. */
async function prepare({ registry, own, env }: Awaited<ReturnType<typeof workspace>>) {
  expect((await run(['catalogue', 'import', own], env())).code).toBe(0);
  const first = await run(sync(registry), env());
  expect(first.stdout).toMatch(/^1 server synced \(full, 2 entries listed\), 1 skipped/);
}

const SERVERS = 240;
const HALF = new RegExp(`^1\\d\\d of ${SERVERS} texts embedded`, 'm');
const sync = (registry: RegistryServer) => ['catalogue', 'sync', registry.url, '--full'];

const STORES = [
  { store: 'the embedded database', skipped: false, open: () => Promise.resolve(undefined) },
  { store: 'Postgres', skipped: inject('postgresUrl') === undefined, open: () => createDatabase() },
];

describe.each(STORES)('catalogue sync on $store, cut short', ({ skipped, open }) => {
  it.skipIf(skipped)(
    'by Ctrl-C, as it reads and as it embeds, says so and leaves everything as it was',
    async () => {
      await using database = await open();
      await using space = await workspace(database?.url);
      const { registry } = space;
      const env = space.env();
      await using server = await serve(env, space.logs('server'));
      await prepare(space);

      registry.entries = [...registry.entries, ...many(SERVERS)];
      const held = holdThirdPage(registry);
      await using reading = begin(sync(registry), env);
      await held;
      reading.kill('SIGINT');
      const cut = await reading.finished;
      expect(cut.code).toBe(130);
      expect(cut.stderr).toMatch(/^\d entries read$/m);
      expect(cut.stderr).toMatch(/^switchboard: Cancelled\. No changes were made\.$/m);
      expect(await contents(server)).toEqual(BEFORE);

      registry.fault = undefined;
      await using embedding = begin(sync(registry), env);
      await embedding.complaint(HALF);
      embedding.kill('SIGINT');
      expect((await embedding.finished).code).toBe(130);
      expect(await contents(server)).toEqual(BEFORE);

      const whole = await run(sync(registry), env);
      expect(whole.stdout).toMatch(new RegExp(`^${SERVERS + 1} servers synced .* 1 skipped`));
      expect(await contents(server)).toEqual({
        names: expect.arrayContaining(['x.y/before', 'Mine', 'x.y/s0']),
        found: true,
      });
      expect(await server.stop()).toBe(0);
      expect(await readFile(space.logs('server'), 'utf8')).not.toContain('operator command failed');
    },
  );

  it.skipIf(skipped)(
    'by a kill of the server leaves nothing behind, and the next one does it all',
    async () => {
      await using database = await open();
      await using space = await workspace(database?.url);
      const { registry } = space;
      const env = space.env();
      await using server = await serve(env);
      await prepare(space);
      registry.entries = [...registry.entries, ...many(SERVERS), listed('x.y/before', { status: 'deleted' })];
      await using syncing = begin([...sync(registry), '--force'], env);
      await syncing.complaint(HALF);
      await server.stop('SIGKILL');
      expect(await syncing.finished).toMatchObject({
        code: 1,
        stderr: expect.stringMatching(/connection to the server was lost/),
      });
      await using again = await serve(env);
      await again.ready();
      expect(await contents(again)).toEqual(BEFORE);
      expect((await run([...sync(registry), '--force'], env)).code).toBe(0);
      expect(await status(again, 'x.y_before')).toBe(410);
      expect(await contents(again)).toMatchObject({ found: true });
    },
  );
});

describe('catalogue sync with a registry that fails', () => {
  it('says what is wrong with it, and changes nothing', async () => {
    await using space = await workspace();
    const { registry } = space;
    const env = space.env();
    await using server = await serve(env);
    await prepare(space);
    registry.entries = [...registry.entries, ...many(10)];
    const onThird =
      (answer: (response: Parameters<typeof sendJson>[0]) => void): RegistryServer['fault'] =>
      (response, good, url) =>
        url.searchParams.get('cursor') === '4' ? answer(response) : good();
    const faults: [RegistryServer['fault'], RegExp][] = [
      [
        onThird(response => sendJson(response, 500, 'out of order', { 'retry-after': '0' })),
        /answered 500: out of order/,
      ],
      [onThird(response => sendJson(response, 200, '{"servers":[{"server":')), /JSON/],
      [
        onThird(response => sendJson(response, 200, { servers: [], metadata: { nextCursor: '2' } })),
        /same cursor/,
      ],
    ];
    for (const [fault, what] of faults) {
      registry.fault = fault;
      const { code, stderr } = await run(sync(registry), env);
      expect(code).toBe(1);
      expect(stderr).toMatch(what);
      expect(stderr).toContain('Nothing was changed.');
    }
    expect(await contents(server)).toEqual(BEFORE);
    registry.fault = undefined;
    registry.entries = [];
    const shrunk = await run(sync(registry), env);
    expect(shrunk).toMatchObject({ code: 1, stdout: expect.stringMatching(/^Refused: 1 of the 1 servers/) });
    expect(await contents(server)).toEqual(BEFORE);
  });
});

describe.skipIf(inject('postgresUrl') === undefined)('two processes on one Postgres', () => {
  it('sync one after the other by command, and a lock goes with its holder', async () => {
    await using database = await createDatabase();
    await using space = await workspace(database.url);
    const { registry } = space;
    registry.entries = [...registry.entries, ...many(4)];
    await using one = await serve(space.env('one'));
    await using two = await serve(space.env('two'));
    await Promise.all([one.ready(), two.ready()]);

    const held = holdThirdPage(registry);
    await using first = begin(sync(registry), space.env('one'));
    await held;
    await using second = begin(sync(registry), space.env('two'));
    await second.complaint(/another sync/i);
    const asked = registry.requests.length;
    registry.fault = undefined;
    // Whoever has the lock and dies gives it up.
    await one.stop('SIGKILL');
    expect((await first.finished).code).toBe(1);
    expect((await second.finished).stdout).toMatch(/^5 servers synced \(full, 6 entries listed\)/);
    expect(registry.requests.length).toBe(asked + 3);
  });

  it('share the syncs of the schedule', async () => {
    await using database = await createDatabase();
    await using space = await workspace(database.url);
    const { registry, env, logs } = space;
    const held = holdThirdPage(registry);
    registry.entries = [...registry.entries, ...many(4)];
    const scheduled = (name: string) => ({
      ...env(name),
      SWITCHBOARD_REGISTRIES: registry.url,
      LOG_LEVEL: 'info',
    });
    await using one = await serve(scheduled('one'));
    await held;
    await using two = await serve(scheduled('two'), logs('two'));
    await eventually('the second leaves it to the first', async () =>
      (await readFile(logs('two'), 'utf8')).includes(
        'skipped a registry sync that another process is running',
      ),
    );
    expect(registry.requests).toHaveLength(3);
    await two.stop();
    registry.fault = undefined;
    await one.stop('SIGKILL');
    // Nobody has synced: whoever comes next does.
    await using three = await serve(scheduled('three'));
    await eventually('it has been synced', async () => (await contents(three)).names.includes('x.y/s0'));
    await using four = await serve(scheduled('four'), logs('four'));
    await four.ready();
    expect(await four.stop()).toBe(0);
    expect(registry.requests).toHaveLength(6);
  });
});
