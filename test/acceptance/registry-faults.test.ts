import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, inject, it } from 'vitest';
import { createDatabase } from '../support/postgres.ts';
import { begin, run, serve, temporaryFolder, type Program } from '../support/program.ts';
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
  const env = (name = 'a') => ({
    SWITCHBOARD_DATA_DIR: path.join(folder.path, name),
    SWITCHBOARD_CATALOGUE: catalogue,
    SWITCHBOARD_API_KEY: KEY,
    SWITCHBOARD_KEKS: `k1:${Buffer.alloc(32).toString('base64')}`,
    SWITCHBOARD_ALLOW_PRIVATE_NETWORK: 'true',
    ...(databaseUrl === undefined ? {} : { DATABASE_URL: databaseUrl }),
  });
  const all = opened.move();
  return { registry, env, [Symbol.asyncDispose]: () => all.disposeAsync() };
}
type Env = Record<string, string>;

const show = async (id: string, env: Env) => {
  const { code, stdout } = await run(['catalogue', 'show', id, '--json'], env);
  return code === 0 ? (JSON.parse(stdout) as { name: string; active: boolean; origin: string }) : undefined;
};

/** What was there before the sync that failed, and nothing of it. */
async function expectAsBefore(env: Env) {
  expect(await show('x.y_before', env)).toMatchObject({ active: true, origin: 'registry' });
  expect(await show('x.y_own', env)).toMatchObject({ name: 'Mine', origin: 'operator' });
  expect(await show('x.y_s0', env)).toBeUndefined();
  const { stdout } = await run(['search', 'register of ships', '--json'], env);
  expect(stdout).not.toContain('x.y_s');
}

const status = async ({ url }: Program, id: string) => {
  const response = await fetch(`${url}/v1/mcp/tools/list`, {
    method: 'POST',
    headers: { 'x-api-key': KEY, 'content-type': 'application/json' },
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

const SERVERS = 240;
const HALF = new RegExp(`^1\\d\\d of ${SERVERS + 1} texts embedded`, 'm');
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
      await using server = await serve(env);
      expect((await run(sync(registry), env)).code).toBe(0);

      registry.entries = [...registry.entries, ...many(SERVERS)];
      const held = holdThirdPage(registry);
      await using reading = begin(sync(registry), env);
      await held;
      reading.kill('SIGINT');
      const cut = await reading.finished;
      expect(cut.code).toBe(130);
      expect(cut.stderr).toMatch(/^\d entries read$/m);
      expect(cut.stderr).toMatch(/^switchboard: Stopped\. .* nothing was changed\.$/m);
      await expectAsBefore(env);

      registry.fault = undefined;
      await using embedding = begin(sync(registry), env);
      await embedding.complaint(HALF);
      embedding.kill('SIGINT');
      expect((await embedding.finished).code).toBe(130);
      await expectAsBefore(env);

      const whole = await run(sync(registry), env);
      expect(whole.stdout).toMatch(new RegExp(`^${SERVERS + 1} servers synced .* 1 left alone`));
      expect(await show('x.y_own', env)).toMatchObject({ name: 'Mine' });
      expect(await server.stop()).toBe(0);
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
      expect((await run(sync(registry), env)).code).toBe(0);
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
      await expectAsBefore(env);
      expect((await run([...sync(registry), '--force'], env)).code).toBe(0);
      expect(await status(again, 'x.y_before')).toBe(410);
      expect(await show('x.y_s0', env)).toMatchObject({ active: true });
    },
  );
});

describe('catalogue sync with a registry that fails', () => {
  it('says what is wrong with it, and changes nothing', async () => {
    await using space = await workspace();
    const { registry } = space;
    const env = space.env();
    await using _server = await serve(env);
    expect((await run(sync(registry), env)).code).toBe(0);
    registry.entries = [...registry.entries, ...many(10)];
    const onThird =
      (answer: (response: Parameters<typeof sendJson>[0]) => void): RegistryServer['fault'] =>
      (response, good, url) =>
        url.searchParams.get('cursor') === '4' ? answer(response) : good();
    const faults: [RegistryServer['fault'], RegExp][] = [
      [onThird(response => sendJson(response, 404, { error: 'gone' })), /answered 404: .*gone/],
      [
        onThird(response => sendJson(response, 500, 'out of order', { 'retry-after': '0' })),
        /answered 500: out of order/,
      ],
      [onThird(response => sendJson(response, 200, '{"servers":[{"server":')), /something else than JSON/],
      [
        onThird(response => sendJson(response, 200, { servers: [], metadata: { nextCursor: '2' } })),
        /gives the same cursor twice/,
      ],
      [onThird(response => sendJson(response, 200, 'x'.repeat(17 * 1024 * 1024))), /too large a page/],
    ];
    for (const [fault, what] of faults) {
      registry.fault = fault;
      const { code, stderr } = await run(sync(registry), env);
      expect(code).toBe(1);
      expect(stderr).toMatch(what);
      expect(stderr).toContain('Nothing was changed.');
    }
    await expectAsBefore(env);
    registry.fault = undefined;
    registry.entries = [];
    const shrunk = await run(sync(registry), env);
    expect(shrunk).toMatchObject({ code: 1, stdout: expect.stringMatching(/^Refused: 1 of the 1 servers/) });
    await expectAsBefore(env);
  });
});

describe.skipIf(inject('postgresUrl') === undefined)('two processes on one Postgres', () => {
  it('sync one after the other by command, and once in all by schedule', async () => {
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
    await second.complaint(/Another sync is under way, here or in another process on this database/);
    const asked = registry.requests.length;
    registry.fault = undefined;
    // Whoever has the lock and dies gives it up.
    await one.stop('SIGKILL');
    expect((await first.finished).code).toBe(1);
    expect((await second.finished).stdout).toMatch(/^5 servers synced \(full, 6 entries listed\)/);
    expect(registry.requests.length).toBe(asked + 3);

    await two.stop();
    registry.requests.length = 0;
    const scheduled = (name: string) => ({ ...space.env(name), SWITCHBOARD_REGISTRIES: registry.url });
    await using three = await serve(scheduled('three'));
    await using four = await serve(scheduled('four'));
    await Promise.all([three.ready(), four.ready()]);
    expect([await three.stop(), await four.stop()]).toEqual([0, 0]);
    // It was synced with just before.
    expect(registry.requests).toEqual([]);
  });
});
