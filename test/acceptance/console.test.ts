import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { makeDataDir } from '../support/data-dir.ts';
import { installOnPostgres, type Installation, type Process } from '../support/processes.ts';
import { run, serve, temporaryFolder } from '../support/program.ts';

const OURS = { 'x-switchboard-console': '1' };
const cookieOf = (headers: Headers): string => headers.getSetCookie()[0]?.split(';')[0] ?? '';

describe('switchboard console', () => {
  it('prints a link to the running server, which signs one browser in [console.link]', async () => {
    await using folder = temporaryFolder();
    const env = { SWITCHBOARD_DATA_DIR: await makeDataDir(folder.path) };
    expect(await run(['console'], env)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('needs the running server'),
    });
    await using server = await serve(env);
    for (const [args, role] of [
      [[], 'admin'],
      [['--read-only'], 'admin_read'],
    ] as const) {
      const { code, stdout } = await run(['console', ...args], env);
      expect(code).toBe(0);
      const [address = '', note = ''] = stdout.split('\n');
      expect(note).toMatch(/^The link works once, until 20/);
      expect(address.startsWith(`${server.url}/console/#link=page_`)).toBe(true);
      const page = await fetch(address);
      expect(await page.text()).toContain('<script type="importmap">');
      const signedIn = await fetch(`${server.url}/console/session`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...OURS },
        body: JSON.stringify({ link: new URL(address).hash.replace('#link=', '') }),
      });
      expect(await signedIn.json()).toMatchObject({ role, key_id: 'operator' });
      const headers = { cookie: cookieOf(signedIn.headers), ...OURS };
      const overview = await fetch(`${server.url}/v1/admin/overview`, { headers });
      expect(await overview.json()).toMatchObject({ servers: { active: expect.any(Number) } });
      if (role === 'admin') continue;
      expect((await run(['console', '--end'], env)).stdout).toBe('Ended 2 sessions of the console.\n');
      expect((await fetch(`${server.url}/v1/admin/overview`, { headers })).status).toBe(401);
    }
  });
});

describe.skipIf(inject('postgresUrl') === undefined)('two processes on one Postgres', () => {
  let installation: Installation;
  let one: Process;
  let other: Process;
  beforeAll(async () => {
    installation = await installOnPostgres();
    [one, other] = await Promise.all([installation.start('a'), installation.start('b')]);
    await Promise.all([one.ready(), other.ready()]);
  });
  afterAll(() => installation[Symbol.asyncDispose]());

  const keyOf = async () =>
    JSON.parse(
      (await one.command('keys', 'create', '--name', 'ops', '--scopes', 'admin', '--json')).stdout,
    ) as { id: string; key: string };
  const statusAt = async (process: Process, cookie: string) =>
    (await process.get('/v1/admin/tenants', { cookie, 'x-api-key': '', ...OURS })).status;

  it('know one session, and each ends it for both [console.processes]', async () => {
    const { key } = await keyOf();
    const signedIn = await one.post('/console/session', { key }, OURS);
    const cookie = cookieOf(signedIn.headers);
    expect(await statusAt(one, cookie)).toBe(200);
    expect(await statusAt(other, cookie)).toBe(200);
    await other.post('/console/session/end', {}, { cookie, ...OURS });
    expect(await statusAt(one, cookie)).toBe(401);
    expect(await statusAt(other, cookie)).toBe(401);
  });

  it('end a session at once when the other has revoked its key [console.processes]', async () => {
    const { id, key } = await keyOf();
    const cookie = cookieOf((await one.post('/console/session', { key }, OURS)).headers);
    expect(await statusAt(one, cookie)).toBe(200);
    await other.post(`/v1/admin/keys/${id}/revoke`, {});
    expect(await statusAt(one, cookie)).toBe(401);
  });

  it('a link of one signs in at the other, once [console.processes]', async () => {
    const { stdout } = await one.command('console');
    const link = /#link=(\S+)/.exec(stdout)?.[1] ?? '';
    const answers = await Promise.all(
      [one, other].map(process => process.post('/console/session', { link }, OURS)),
    );
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([200, 401]);
  });

  it('the workers of one program answer with the traffic of all [console.processes]', async () => {
    const many = await installation.start('c', { SWITCHBOARD_WORKERS: '2' });
    await many.ready();
    const before = (await many.get('/v1/admin/overview')).json.traffic;
    for (let n = 0; n < 6; n++)
      await many.post('/v1/search', { query: `search ${n}` }, { connection: 'close' });
    for (let n = 0; n < 4; n++) {
      const after = (await many.get('/v1/admin/overview', { connection: 'close' })).json.traffic;
      expect(after.since).toBe(before.since);
      expect(after.searches.count - before.searches.count).toBe(6);
    }
  });
});
