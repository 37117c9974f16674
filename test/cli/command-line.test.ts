import { randomBytes } from 'node:crypto';
import { readdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { createDatabase } from '../support/postgres.ts';
import { makeDataDir } from '../support/data-dir.ts';
import { runHere as run } from '../support/command.ts';
import { serve, temporaryFolder, type Program } from '../support/program.ts';

const line = (id: string, more: object = {}) =>
  JSON.stringify({
    id,
    name: id,
    description: `Answers questions about ${id}.`,
    remote_url: `https://${id}.example/mcp`,
    ...more,
  });

/**
 * A small catalogue instead of the shipped one, so that each command is quick.
 * @param isNew leaves it to the first command to make the database
 */
async function workspace({ isNew = false } = {}) {
  const folder = temporaryFolder();
  const catalogue = path.join(folder.path, 'catalogue.jsonl');
  await writeFile(catalogue, [line('turtles'), line('volcanoes')].join('\n'));
  const dataDir = path.join(folder.path, 'data');
  if (!isNew) await makeDataDir(dataDir);
  const env = { SWITCHBOARD_DATA_DIR: dataDir, SWITCHBOARD_CATALOGUE: catalogue };
  const file = async (name: string, ...lines: string[]) => {
    await writeFile(path.join(folder.path, name), lines.join('\n'));
    return path.join(folder.path, name);
  };
  return { env, file, [Symbol.asyncDispose]: () => folder[Symbol.asyncDispose]() };
}

const withKey = (url: string, key: string) =>
  fetch(`${url}/v1/search`, {
    method: 'POST',
    headers: { 'x-api-key': key, 'content-type': 'application/json' },
    body: '{"query":"turtles"}',
  });

describe.each(['with a running server', 'without one'] as const)('commands %s', mode => {
  it('manage keys and the catalogue', async () => {
    await using space = await workspace({ isNew: mode === 'without one' });
    const { env } = space;
    await using server = mode === 'with a running server' ? await serve(env) : undefined;

    const created = await run(['keys', 'create', '--name', 'ide', '--scopes', 'search', '--json'], env);
    expect(created.code, created.stderr).toBe(0);
    const { id, key } = JSON.parse(created.stdout);
    const alone = `No server is running on ${env.SWITCHBOARD_DATA_DIR}: `;
    // A mistyped folder would be worked on just as well: its server knows nothing of it.
    if (server) expect(created.stderr).toBe('');
    else expect(created.stderr).toContain(`${alone}a new database was created there. `);
    if (server) expect((await withKey(server.url, key)).status).toBe(200);
    const searches = server ? 1 : 0;
    expect((await run(['keys', 'list'], env)).stdout).toMatch(
      new RegExp(`${id} +active +local +search .* - +0 +${searches} +ide`),
    );
    const revoked = await run(['keys', 'revoke', id], env);
    expect(revoked.stdout).toBe(`Revoked ${id}.\n`);
    if (server) expect(revoked.stderr).toBe('');
    else
      expect(revoked.stderr).toMatch(
        new RegExp(`^${alone}changed the data there\\. .* SWITCHBOARD_DATA_DIR`),
      );
    if (server) expect((await withKey(server.url, key)).status).toBe(401);
    expect((await run(['keys', 'list'], env)).stdout).toMatch(new RegExp(`${id} +revoked`));

    const bad = await space.file(
      'bad.jsonl',
      line('glaciers'),
      '{"id":"half"',
      line('UPPER'),
      line('deserts', { colour: 'red' }),
    );
    const imported = await run(['catalogue', 'import', bad], env);
    expect(imported.code).toBe(1);
    expect(imported.stdout).toBe('2 servers imported, 2 bad lines skipped.\n');
    expect(imported.stderr).toContain('line 2: is not valid JSON\n');
    expect(imported.stderr).toContain('line 3: id: must have 1 to 128 characters from a-z');
    expect(imported.stderr).toContain('ignored unknown fields: colour\n');

    expect((await run(['keys', 'list'], env)).stderr).toBe('');
    const found = await run(['search', 'tell', 'me', 'about', 'glaciers', '--limit', '1', '--json'], env);
    expect(JSON.parse(found.stdout).servers[0].id).toBe('glaciers');

    expect((await run(['catalogue', 'deactivate', 'glaciers'], env)).code).toBe(0);
    expect(JSON.parse((await run(['catalogue', 'show', 'glaciers'], env)).stdout)).toMatchObject({
      active: false,
    });

    const absent = await run(['catalogue', 'import', 'absent.jsonl'], env);
    expect(absent.stderr).toContain('absent.jsonl could not be read: there is no such file.\n');

    const only = await space.file('only.jsonl', line('rivers'));
    expect((await run(['catalogue', 'import', only, '--replace'], env)).stdout).toBe(
      '1 server imported, 3 made inactive.\n',
    );
    const left = JSON.parse((await run(['search', 'turtles volcanoes deserts', '--json'], env)).stdout);
    expect(left.metadata.total_candidates).toBe(1);
  });
});

it.skipIf(inject('postgresUrl') === undefined)(
  'commands without a server say that it is the database of DATABASE_URL that they changed',
  async () => {
    await using space = await workspace();
    await using database = await createDatabase();
    const SWITCHBOARD_KEKS = `k1:${randomBytes(32).toString('base64')}`;
    const env = { ...space.env, DATABASE_URL: database.url, SWITCHBOARD_KEKS };
    expect((await run(['keys', 'create'], env)).stderr).toBe(
      `No server is running on ${env.SWITCHBOARD_DATA_DIR}: changed the database of DATABASE_URL.\n`,
    );
    expect((await run(['keys', 'list'], env)).stderr).toBe('');
  },
);

describe.each(['with a running server', 'without one'] as const)('identity %s', mode => {
  it('has keys for tenants and users, rotation, tenants and links', async () => {
    await using space = await workspace();
    const { env } = space;
    await using server = mode === 'with a running server' ? await serve(env) : undefined;
    const json = async (...args: string[]) => {
      const { code, stdout, stderr } = await run([...args, '--json'], env);
      expect([code, stderr], args.join(' ')).toEqual([0, expect.not.stringMatching(/switchboard:/)]);
      return JSON.parse(stdout);
    };
    const text = async (...args: string[]) => (await run(args, env)).stdout;

    const user = 'Bob \u202e\u2028';
    const made = await json('keys', 'create', '--tenant', 'acme', '--user', user, '--name', 'ide');
    expect(made).toMatchObject({ tenant: 'acme', user, scopes: ['search', 'proxy'] });
    // What an end user is called must not reach the terminal as a command to it.
    expect(await text('keys', 'list')).toMatch(/ active +acme +search,proxy .* Bob \?\? +0 +0 +ide$/m);

    const rotated = await json('keys', 'rotate', made.id, '--overlap', '0s');
    expect(rotated).toMatchObject({ tenant: 'acme', user: made.user, scopes: made.scopes, name: 'ide' });
    expect(await text('keys', 'list')).toMatch(new RegExp(`${made.id} +expired`));
    if (server) {
      expect((await withKey(server.url, made.key)).status).toBe(401);
      expect((await withKey(server.url, rotated.key)).status).toBe(200);
    }
    const kept = await text('keys', 'rotate', rotated.id);
    const end = Date.parse(/ expires at (\S+)\.$/m.exec(kept)?.[1] ?? '');
    expect(Math.round((end - Date.now()) / 3_600_000)).toBe(24);
    expect(/API key \(shown once\): (sbk_live_\w+)/.exec(kept)?.[1]).toBeDefined();

    const local = await json('tenant', 'show');
    expect(local).toMatchObject({ id: 'local', name: null, mode: 'direct', return_urls: [] });
    const urls = ['https://app.example/done', 'http://127.0.0.1:3000/back?x=1', 'https://b.example'];
    const options = ['--return-url', `${urls[0]}, ${urls[1]}`, '--return-url', `${urls[2]}`];
    expect(await json('tenant', 'set', '--name', 'Acme Mail', '--mode', 'page', ...options)).toMatchObject({
      name: 'Acme Mail',
      mode: 'page',
      return_urls: urls,
    });
    expect(await json('tenant', 'set', 'acme', '--name', 'Other')).toMatchObject({
      id: 'acme',
      mode: 'direct',
    });
    const cleared = await json('tenant', 'set', '--name', '', '--return-url', '');
    expect(cleared).toMatchObject({ name: null, mode: 'page', return_urls: [] });
    expect(await text('tenant', 'show', 'acme')).toMatch(
      /^tenant +acme\nname +Other\nsign-in mode +direct\n/,
    );

    expect(await text('connections', '--user', 'bob')).toBe('No connections.\n');
    expect(await json('connections', '--user', 'bob', '--tenant', 'acme')).toEqual({ connections: [] });
    const link = await text('connections', 'link', 'bob');
    expect(link).toMatch(
      /^http:\/\/\S+\/manage\/page_\S+\nThe link works once, until \S+, and only while the server is running\.\n$/,
    );
    expect(await json('keys', 'rewrap')).toEqual({ sealed: 0 });
  });
});

describe('operators’ own entries', () => {
  it('survive an upgrade of the catalogue that ships', async () => {
    await using space = await workspace();
    const { env } = space;
    const restart = async () => {
      await using server = await serve(env);
      await server.ready();
      await server.stop();
    };
    await restart();
    await run(
      [
        'catalogue',
        'add',
        'mine',
        'https://mine.example/mcp',
        '--description',
        'My own server about lighthouses.',
      ],
      env,
    );
    await run(['catalogue', 'deactivate', 'volcanoes'], env);
    await writeFile(env.SWITCHBOARD_CATALOGUE, [line('volcanoes'), line('islands')].join('\n'));
    await restart();
    const shown = async (id: string) => JSON.parse((await run(['catalogue', 'show', id], env)).stdout).active;
    expect([
      await shown('mine'),
      await shown('islands'),
      await shown('turtles'),
      await shown('volcanoes'),
    ]).toEqual([true, true, false, false]);
  });

  it('that replaced the catalogue are not joined by what ships', async () => {
    await using space = await workspace();
    const { env } = space;
    const only = await space.file('only.jsonl', line('rivers'), line('turtles', { remote_url: 'nowhere' }));
    const replaced = await run(['catalogue', 'import', only, '--replace'], env);
    expect(replaced).toMatchObject({
      code: 1,
      stdout: '1 server imported, 1 made inactive, 1 bad line skipped.\n',
    });
    await writeFile(env.SWITCHBOARD_CATALOGUE, [line('volcanoes'), line('turtles')].join('\n'));
    await using server = await serve(env);
    await server.ready();
    const shown = async (id: string) => JSON.parse((await run(['catalogue', 'show', id], env)).stdout).active;
    // The line for turtles was bad: they stay as they were. Volcanoes are gone for good.
    expect([await shown('rivers'), await shown('turtles'), await shown('volcanoes')]).toEqual([
      true,
      true,
      false,
    ]);
    await server.stop();
  });

  it('say of each server that a search finds whether it can be called', async () => {
    await using space = await workspace();
    const { env } = space;
    const entries = [
      line('rivers', { auth: { kind: 'none' } }),
      line('oceans', { auth: { kind: 'credentials' } }),
      line('lakes', { auth: { kind: 'provider', provider: 'unheard-of' } }),
      line('springs'),
    ];
    await run(['catalogue', 'import', await space.file('waters.jsonl', ...entries), '--replace'], env);
    const { stdout } = await run(['search', 'rivers oceans lakes springs'], env);
    const found = stdout.split(/^(?=\d)/m).map(block => block.replace(/^\S+ {2}/, ''));
    expect(Object.fromEntries(found.map(block => [block.split(' ')[0], block]))).toEqual({
      rivers: 'rivers (rivers) [open]\n       Answers questions about rivers.\n',
      oceans:
        'oceans (oceans) [connect]\n       Answers questions about oceans.\n       needs a key: npx switchboard connect oceans\n',
      lakes:
        'lakes (lakes) [setup_needed]\n       Answers questions about lakes.\n       cannot be called yet: set up its identity provider in SWITCHBOARD_PROVIDERS first\n',
      springs: 'springs (springs) [unknown]\n       Answers questions about springs.\n',
    });
    expect(JSON.parse((await run(['catalogue', 'show', 'oceans'], env)).stdout).access).toEqual({
      kind: 'credentials',
      status: 'connect',
    });
  });

  it('can be exported and imported again', async () => {
    await using space = await workspace();
    const { env } = space;
    await run(['catalogue', 'deactivate', 'turtles'], env);
    const { stdout } = await run(['catalogue', 'show', 'turtles', '--json'], env);
    const back = await run(['catalogue', 'import', await space.file('back.jsonl', stdout.trim())], env);
    expect(back).toMatchObject({ code: 0, stderr: expect.not.stringContaining('unknown fields') });
    expect(JSON.parse((await run(['catalogue', 'show', 'turtles'], env)).stdout).active).toBe(true);
    const shown = async () => JSON.parse((await run(['catalogue', 'show', 'turtles'], env)).stdout);
    await run(['catalogue', 'deactivate', 'turtles'], env);
    await run(['catalogue', 'add', 'turtles', 'https://turtles.example/mcp', '--name', 'Turtles'], env);
    expect(await shown()).toMatchObject({
      active: true,
      name: 'Turtles',
      description: 'Answers questions about turtles.',
    });
    const empty = await run(['catalogue', 'import', await space.file('empty.jsonl', ''), '--replace'], env);
    expect(empty).toMatchObject({ code: 2, stdout: '' });
    expect(empty.stderr).toMatch(/^switchboard: The file contains no valid entry/m);
  });
});

describe('servers that act for end users', () => {
  it('are added with a warning where the settings keep calls from them, and called by no command', async () => {
    await using space = await workspace();
    const client = { client_id: 'x', client_secret: 'y', allowed_origins: ['https://good.example'] };
    const env = {
      ...space.env,
      SWITCHBOARD_PROVIDERS: JSON.stringify({ acme: { issuer: 'https://login.example', ...client } }),
    };
    await using server = await serve(env);
    await server.ready();
    const add = (id: string, ...more: string[]) =>
      run(['catalogue', 'add', id, `https://${id}.example/mcp`, '--json', ...more], env);

    const good = await add('good', '--provider', 'acme');
    expect(good).toMatchObject({ code: 0, stderr: '' });
    expect(JSON.parse(good.stdout)).toEqual({ id: 'good', added: true, tools: 0, warnings: [] });
    // Nothing about tokens, either, when it is the entry that says whom it acts for.
    expect((await add('good', '--name', 'Good')).stdout).toBe(good.stdout);

    const other = await add('other', '--provider', 'acme');
    expect(other.code).toBe(0);
    expect(other.stderr).toMatch(
      /^warning: other: allowed_origins .*"acme" does not include https:\/\/other\.example\. /,
    );
    const unknown = await add('unknown', '--provider', 'nobody');
    expect(unknown.code).toBe(0);
    expect(JSON.parse(unknown.stdout).warnings).toEqual([
      expect.stringContaining('unknown: the identity provider "nobody" is not configured'),
    ]);
    const user = { auth: { kind: 'user_oauth', provider: 'nobody' } };
    const imported = await run(
      ['catalogue', 'import', await space.file('user.jsonl', line('mine', user), line('yours', user))],
      env,
    );
    expect(imported.code).toBe(0);
    expect(imported.stderr.match(/^warning: (mine|yours): .*"nobody" is not configured/gm)).toHaveLength(2);

    const called = await run(['call', 'good', 'anything'], env);
    expect(called).toMatchObject({ code: 1, stdout: '' });
    expect(called.stderr).toContain(
      'This server acts for an end user, but the request names none. The command line cannot name one.',
    );
    await server.stop();
  });
});

describe('mistakes', () => {
  let space: Awaited<ReturnType<typeof workspace>>;
  let server: Program;
  beforeAll(async () => {
    space = await workspace();
    server = await serve(space.env);
  });
  afterAll(async () => {
    await server.stop();
    await space[Symbol.asyncDispose]();
  });

  it.each([
    [['frobnicate'], 2, /unknown command "frobnicate"/],
    [['keys'], 2, /unknown command "keys".* keys create, keys list, /],
    [['catalogue', 'show'], 2, /usage: switchboard catalogue show ID/],
    [['keys', 'create', '--colour', 'red'], 2, /unknown option --colour\. The options are --name, .*--json/],
    [['search', '--limt', '3', 'rain'], 2, /unknown option --limt\. Did you mean --limit\?/],
    [['call', 'x', 'y', '{broken'], 2, /must be a JSON object, .* not \{broken/],
    [['catalogue', 'show', 'nobody'], 1, /No server has the id "nobody"/],
    [['keys', 'revoke', 'nobody'], 1, /No API key has the id "nobody"/],
    [
      ['keys', 'create', '--scopes', 'everything'],
      2,
      /scopes\[0\]: must be one of search, proxy, identity, admin/,
    ],
    [['keys', 'create', '--expires', 'tomorrow'], 2, /expires_at: must be an ISO 8601 time[^;]*$/],
    [['search', ''], 2, /query: must not be empty/],
    [['search', 'x', '--limit', 'ten'], 2, /--limit must be a whole number from 1 to 50/],
    [['search', 'x', '--limit', '51'], 2, /limit: must be at most 50/],
    [['keys', 'create', '--expires', '2001-01-01T00:00:00Z'], 2, /expires_at: must be in the future/],
    [['keys', 'create', '--user', 'bob', '--scopes', 'search,identity'], 2, /scopes: .* not identity/],
    [['keys', 'rotate', 'nobody'], 1, /No API key has the id "nobody"/],
    [['keys', 'rotate', 'x', '--overlap', '24'], 2, /--overlap must be a number with a unit/],
    [['keys', 'rotate-signing'], 2, /was published too recently/],
    [['keys', 'retire', 'k1'], 2, /k1 is the active key/],
    [['tenant', 'show', 'nobody'], 2, /No tenant has the id "nobody"/],
    [['tenant', 'set', '--mode', 'browser'], 2, /mode: must be one of direct, page, caller/],
    [['tenant', 'set', '--name', 'two\nlines'], 2, /name: must be one line of visible characters/],
    [['tenant', 'set', '--return-url', 'http://app.example/x'], 2, /must be https/],
    [['connections', 'link', 'bob', '--tenant', 'nobody'], 2, /No tenant has the id "nobody"/],
    [['connections', 'list', 'bob'], 2, /usage: switchboard connections:/],
    [['call', 'turtles', 'x', '[1]'], 2, /must be a JSON object, .* not \[1\]/],
    [['serve', 'now'], 2, /serve takes no arguments, not now/],
    [['catalogue', 'add', 'Bad Id', 'https://x.example'], 2, /id: must have 1 to 128/],
    [['catalogue', 'add', 'x', 'http://x.example'], 2, /remote_url: must be https/],
    [
      ['catalogue', 'add', 'x', 'https://x.example', '--auth', 'user_oauth'],
      2,
      /--auth provider requires --provider/,
    ],
    [['catalogue', 'import', '/no/such/file'], 1, /no such file/],
    [['catalogue', 'import', 'http://127.0.0.1:1/x'], 1, /could not be fetched: ./],
  ])('%j ends with %i and one line that says why', async (args, code, message) => {
    const result = await run(args, space.env);
    expect({ code: result.code, stdout: result.stdout }).toEqual({ code, stdout: '' });
    expect(result.stderr).toMatch(message);
    expect(result.stderr).not.toMatch(/\n\s+at /);
  });

  it('are not made where nothing fits: search says what to try', async () => {
    const nothing = await run(['search', 'good morning, slept surprisingly well for once'], space.env);
    expect(nothing).toMatchObject({ code: 0, stderr: '' });
    expect(nothing.stdout).toMatch(
      /^No server in the catalogue matches\. Search .*\n {2}npx switchboard search "create a calendar event"\n/,
    );
  });

  it('with --json are JSON too', async () => {
    const { code, stderr } = await run(['catalogue', 'show', 'nobody', '--json'], space.env);
    expect(code).toBe(1);
    expect(JSON.parse(stderr)).toEqual({
      error: { code: 'server_not_found', detail: expect.stringContaining('nobody') },
    });
  });

  it('keys --help lists the commands for keys', async () => {
    const { code, stdout } = await run(['keys', '--help'], {});
    expect(code).toBe(0);
    expect(stdout).toContain('keys create');
    expect(stdout).not.toContain('catalogue import');
  });

  it.each(['--help', 'serve --help'])('%s lists every command', async words => {
    const { code, stdout } = await run(words.split(' '), {});
    expect(code).toBe(0);
    for (const name of ['serve', 'keys create', 'catalogue import', 'search', 'call'])
      expect(stdout).toContain(name);
  });
});

describe('a folder without a database', () => {
  const READING = [
    ['keys', 'list'],
    ['keys', 'retire', 'k1'],
    ['tenant', 'show'],
    ['connections', '--user', 'bob'],
    ['tools', 'turtles'],
    ['catalogue', 'show', 'turtles'],
    ['search', 'turtles'],
    ['call', 'turtles', 'swim'],
  ];

  it.each(READING)('is told by %s %s, which creates nothing', async (...args) => {
    await using folder = temporaryFolder();
    const missing = path.join(folder.path, 'data');
    const { code, stdout, stderr } = await run(args, { SWITCHBOARD_DATA_DIR: missing });
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
    expect(stderr).toMatch(
      /^switchboard: There is no database in \S+\/data, .*Start one with npm start .*SWITCHBOARD_DATA_DIR.*\n$/,
    );
    expect(await readdir(folder.path)).toEqual([]);
  });

  it('that is there, such as a new volume, stays empty; with --json it is told as JSON', async () => {
    await using folder = temporaryFolder();
    const { stderr } = await run(['keys', 'list', '--json'], { SWITCHBOARD_DATA_DIR: folder.path });
    expect(JSON.parse(stderr)).toEqual({
      error: { code: 'failed', detail: expect.stringContaining(`no database in ${folder.path}`) },
    });
    expect(await readdir(folder.path)).toEqual([]);
  });

  it('is not missed where a server runs on it, or has run', async () => {
    await using space = await workspace();
    await using server = await serve(space.env);
    expect((await run(['catalogue', 'show', 'turtles'], space.env)).code).toBe(0);
    await server.stop();
    expect(await run(['catalogue', 'show', 'turtles'], space.env)).toMatchObject({ code: 0, stderr: '' });
  });
});
