import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { listed, startRegistry } from '../support/registry.ts';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';

const OFFICIAL = 'io.modelcontextprotocol.registry/official';
const OWN = 'dev.switchboard/server';
const LONG = `Keeps notes. ${'Very long. '.repeat(20)}`.trim();

let sb: RunningSwitchboard;
beforeAll(async () => {
  sb = await startTestSwitchboard({
    env: { PUBLIC_URL: 'https://switchboard.example.com', SWITCHBOARD_ALLOWED_HOSTS: '*' },
    catalogue: [
      {
        id: 'notes',
        name: 'Notes',
        description: LONG,
        remote_url: 'https://notes.example/mcp',
        homepage: 'https://notes.example',
        repository: 'https://github.com/notes/notes',
        categories: ['productivity'],
        auth: { kind: 'static_header' },
      },
      { id: 'alpha', remote_url: 'https://alpha.example/sse', transport: 'sse' },
      { id: 'beta', remote_url: 'https://beta.example/mcp' },
    ],
  });
  await using registry = await startRegistry([
    listed('org.other/tides', {
      version: '2.0.0',
      title: 'Tide tables',
      icons: [{ src: 'https://tides.example/i.png' }],
      status: 'deprecated',
      statusMessage: 'Use waves.',
    }),
    listed('com.example.switchboard/alpha', {
      remotes: [{ type: 'sse', url: 'https://impostor.example/' }],
    }),
  ]);
  await sb.admin.request('POST', '/catalogue/sync', { url: registry.url });
  await sb.admin.request('POST', '/catalogue/beta/deactivate');
});
afterAll(() => sb[Symbol.asyncDispose]());

const namesOf = (json: any): string[] => json.servers.map((one: any) => one.server.name);
const list = async (query = '') => (await sb.get(`/v0.1/servers${query}`)).json;
const NOTES = 'com.example.switchboard/notes';

describe('GET /v0.1/servers', () => {
  it('shows each active server with its latest version, in the shape of the standard', async () => {
    const { status, headers, json } = await sb.get('/v0.1/servers');
    expect(status).toBe(200);
    expect(headers.get('content-type')).toMatch(/^application\/json/);
    expect(namesOf(json)).toEqual([
      'com.example.switchboard/alpha',
      // A name of our own namespace is ours alone.
      'com.example.switchboard/com.example.switchboard_alpha',
      NOTES,
      'org.other/tides',
    ]);
    expect(json.metadata).toEqual({ count: 4 });
    const [, , notes, tides] = json.servers;
    expect(notes).toEqual({
      server: {
        $schema: expect.stringMatching(/server\.schema\.json$/),
        name: NOTES,
        description: expect.stringMatching(/^Keeps notes\. .{85,86}…$/),
        title: 'Notes',
        version: '1.0.0',
        websiteUrl: 'https://notes.example',
        repository: { url: 'https://github.com/notes/notes', source: 'github' },
        remotes: [
          {
            type: 'streamable-http',
            url: 'https://notes.example/mcp',
            headers: [expect.objectContaining({ isRequired: true, isSecret: true })],
          },
        ],
      },
      _meta: {
        [OFFICIAL]: {
          status: 'active',
          publishedAt: expect.stringMatching(/Z$/),
          updatedAt: expect.stringMatching(/Z$/),
          isLatest: true,
        },
        [OWN]: {
          id: 'notes',
          url: 'https://switchboard.example.com/mcp/notes',
          description: LONG,
          categories: ['productivity'],
          tools: 0,
          sign_in: 'static_header',
        },
      },
    });
    expect(Array.from(notes.server.description).length).toBeLessThanOrEqual(100);
    // A registry's entry is what the registry said.
    expect(tides).toMatchObject({
      server: {
        version: '2.0.0',
        title: 'Tide tables',
        icons: [{ src: 'https://tides.example/i.png' }],
        remotes: [{ type: 'streamable-http', url: 'https://tides.example/mcp' }],
      },
      _meta: {
        [OFFICIAL]: {
          status: 'deprecated',
          statusMessage: 'Use waves.',
          publishedAt: '2026-01-01T00:00:00Z',
        },
      },
    });
  });

  it('pages by an opaque cursor, to the end', async () => {
    const names: string[] = [];
    let cursor = '';
    for (let pages = 0; pages < 10; pages++) {
      const json = await list(`?limit=1${cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`}`);
      expect(json.metadata.count).toBe(1);
      names.push(...namesOf(json));
      cursor = json.metadata.nextCursor ?? '';
      if (cursor === '') break;
    }
    expect(names).toEqual(namesOf(await list()));
  });

  it.each([
    ['?search=NOTES', [NOTES]],
    ['?search=tide%20table', ['org.other/tides']],
    ['?search=switchboard/alp', ['com.example.switchboard/alpha']],
    ['?search=%25', []],
    ['?version=2.0.0', ['org.other/tides']],
    ['?version=latest&limit=100000&search=notes&unknown=1', [NOTES]],
    ['?updated_since=2999-01-01T00:00:00Z', []],
    ['?updated_since=2020-01-01T00:00:00%2B02:00&search=beta', ['com.example.switchboard/beta']],
    ['?include_deleted=true&search=beta', ['com.example.switchboard/beta']],
    ['?updated_since=2020-01-01T00:00:00Z&include_deleted=false&search=beta', []],
    ['?search=beta', []],
    ['?updated_since=0000-01-01T00:00:00Z&search=notes', [NOTES]],
  ])('%s finds %j', async (query, names) => {
    expect(namesOf(await list(query))).toEqual(names);
  });

  it('shows what is inactive as deleted', async () => {
    const { servers } = await list('?include_deleted=true&search=beta');
    expect(servers[0]._meta[OFFICIAL].status).toBe('deleted');
  });

  it.each([
    ['?limit=0', /^limit: must be a whole number from 1 to 100/],
    ['?limit=x', /^limit: /],
    ['?cursor=%00', /^cursor: must be the nextCursor/],
    ['?updated_since=yesterday', /^updated_since: must be an RFC 3339 time/],
    ['?updated_since=2026-13-45T00:00:00Z', /^updated_since: /],
    ['?include_deleted=1', /^include_deleted: must be true or false/],
    ['?search=a&search=b', /^search: /],
    ['?search=%00', /^search: /],
    ['?version=%00', /^version: /],
  ])('%s is 400 with the error object of the standard and problem details in one', async (query, reason) => {
    const { status, json } = await sb.get(`/v0.1/servers${query}`);
    expect(status).toBe(400);
    expect(json).toMatchObject({ code: 'invalid_request', error: json.detail });
    expect(json.error).toMatch(reason);
  });
});

describe('GET /v0.1/servers/{name}/versions', () => {
  it.each([NOTES, 'org.other/tides'])('%s: the one version there is, by number and as latest', async name => {
    const at = `/v0.1/servers/${encodeURIComponent(name)}/versions`;
    const { json } = await sb.get(at);
    expect(json).toMatchObject({ servers: [{ server: { name } }], metadata: { count: 1 } });
    const { version } = json.servers[0].server;
    for (const which of [version, 'latest'])
      expect((await sb.get(`${at}/${which}`)).json).toEqual(json.servers[0]);
  });

  it.each([
    'nobody%2Fnothing/versions',
    'nobody%2Fnothing/versions/latest',
    `${encodeURIComponent(NOTES)}/versions/9.9.9`,
    'com.example.switchboard%2Fbeta/versions/latest',
    '%00/versions',
    `${encodeURIComponent(NOTES)}/versions/%00`,
  ])('%s is 404', async path => {
    const { status, json } = await sb.get(`/v0.1/servers/${path}`);
    expect(status).toBe(404);
    expect(json).toMatchObject({ code: 'server_not_found', error: expect.any(String) });
  });

  it('shows what is inactive where that is asked for', async () => {
    const { json } = await sb.get(
      '/v0.1/servers/com.example.switchboard%2Fbeta/versions/latest?include_deleted=true',
    );
    expect(json._meta[OFFICIAL].status).toBe('deleted');
  });
});

describe('access', () => {
  it('wants a key with the scope search, in either header, unless it is public', async () => {
    const anonymous = { 'x-api-key': '' };
    expect(await sb.get('/v0.1/servers', anonymous)).toMatchObject({
      status: 401,
      json: { code: 'unauthorized', error: expect.any(String) },
    });
    const bearer = { ...anonymous, authorization: `Bearer ${sb.key}` };
    expect((await sb.get('/v0.1/servers', bearer)).status).toBe(200);
    const { key } = (await sb.admin.request('POST', '/keys', { name: 'p', scopes: ['proxy'] })).json;
    expect((await sb.get('/v0.1/servers', { 'x-api-key': key })).status).toBe(403);
    expect((await sb.post('/v0.1/servers', {})).status).toBe(405);
    expect((await sb.get('/v0.1/other')).status).toBe(404);
  });

  it('public: open without a key, within the limit of an address; a wrong key stays wrong, and /v1 closed', async () => {
    await using open = await startTestSwitchboard({
      env: { SWITCHBOARD_REGISTRY_ACCESS: 'public', SWITCHBOARD_RATE_LIMIT: 'search=2/600' },
    });
    const anonymous = { 'x-api-key': '' };
    expect((await open.get('/v0.1/servers', { 'x-api-key': 'wrong' })).status).toBe(401);
    expect((await open.post('/v1/search', { query: 'x' }, anonymous)).status).toBe(401);
    const statuses = [];
    for (let at = 0; at < 3; at++) statuses.push((await open.get('/v0.1/servers', anonymous)).status);
    expect(statuses).toEqual([200, 200, 429]);
    expect((await open.get('/v0.1/servers')).status).toBe(200);
    expect(open.logged()).not.toContain('"keyId":"ip');
  });
});
