import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';

const tool = (name: string, description: string) => ({
  name,
  description,
  input_schema: { type: 'object', properties: { text: { type: 'string' } } },
});
const CATALOGUE = [
  {
    id: 'tracker',
    description: 'Create and search issues in a bug tracker.',
    remote_url: 'https://tracker.example/mcp',
    tools: [
      tool('list_users', 'List the people of a team'),
      tool('create_issue', 'Create an issue in the bug tracker'),
    ],
  },
  {
    id: 'weather',
    description: 'Get the weather forecast for a city.',
    remote_url: 'https://weather.example/mcp',
  },
  {
    id: 'ledger',
    description: 'Send invoices to customers and record payments.',
    remote_url: 'https://ledger.example/mcp',
  },
  ...Array.from({ length: 60 }, (_, at) => ({
    id: `report-${at}`,
    description: `Make the sales report number ${at} for a region.`,
    remote_url: `https://r${at}.example/mcp`,
  })),
];

let sb: RunningSwitchboard;
beforeAll(async () => void (sb = await startTestSwitchboard({ catalogue: CATALOGUE })));
afterAll(() => sb[Symbol.asyncDispose]());

const search = (body: unknown, headers?: Record<string, string>) => sb.post('/v1/search', body, headers);

describe('200', () => {
  it.each([
    ['none', { kind: 'none', status: 'open' }],
    ['credentials', { kind: 'credentials', status: 'connect' }],
    ['static_header', { kind: 'credentials', status: 'connect' }],
    ['own_oauth', { kind: 'oauth', status: 'connect' }],
    [undefined, { kind: 'unknown', status: 'unknown' }],
  ])('says whether a server of auth.kind %s can be called, on both faces', async (kind, access) => {
    const auth = kind === undefined ? {} : { auth: { kind } };
    await using one = await startTestSwitchboard({
      catalogue: [
        { id: 'one', description: 'Fold a letter.', remote_url: 'https://one.example/mcp', ...auth },
      ],
    });
    expect((await one.post('/v1/search', { query: 'one' })).json.servers[0].access).toEqual(access);
    const params = { name: 'search_servers', arguments: { query: 'one' } };
    const { text } = await one.post('/mcp', { jsonrpc: '2.0', id: 1, method: 'tools/call', params });
    const found = JSON.parse(/^data: (\{.*)$/m.exec(text)?.[1] ?? text).result.structuredContent;
    expect(found.servers[0].access).toBe(access.status);
    expect(found.hint.includes('connect: ')).toBe(access.status === 'connect');
    expect((await one.admin.request('GET', '/catalogue/one')).json.access).toEqual(access);
  });

  it('ranks the fitting server first, its tools by relevance [search.request] [search.server] [search.tool]', async () => {
    const { status, json } = await search({ query: 'create an issue in our bug tracker', limit: 3 });
    expect(status).toBe(200);
    const [first] = json.servers;
    expect(Object.keys(first).sort()).toEqual([
      'access',
      'description',
      'final_score',
      'id',
      'name',
      'remote_url',
      'scores',
      'tools',
    ]);
    expect(first).toMatchObject({
      id: 'tracker',
      name: 'tracker',
      remote_url: 'https://tracker.example/mcp',
    });
    expect(first.tools.map((one: { name: string }) => one.name)).toEqual(['create_issue', 'list_users']);
    expect(first.tools[0]).toEqual(tool('create_issue', 'Create an issue in the bug tracker'));
  });

  it('scores lie in 0..1 and the order is that of final_score [search.scores] [search.ranked]', async () => {
    const { json } = await search({ query: 'sales report for a region', limit: 50 });
    const finals = json.servers.map((server: { final_score: number }) => server.final_score);
    expect(finals.length).toBe(50);
    expect(finals).toEqual([...finals].sort((a, b) => b - a));
    for (const { scores } of json.servers) {
      expect(Object.keys(scores).sort()).toEqual(['popularity', 'semantic']);
      for (const score of Object.values(scores))
        expect(score).toSatisfy((value: number) => value >= 0 && value <= 1);
    }
  });

  it('explain shows the factors of each score', async () => {
    const { json } = await search({ query: 'create an issue in our bug tracker', limit: 5, explain: true });
    for (const { scores, final_score: final } of json.servers) {
      const { meaning, words, use, reduction } = scores;
      expect((meaning + words) * use * reduction).toBeCloseTo(final, 2);
    }
    const [first] = json.servers;
    expect(first.scores).toMatchObject({ meaning: 0.5, reduction: 1 });
    expect(first.scores.words).toBeGreaterThan(0.1);
    expect((await search({ query: 'an issue', explain: 'yes' })).json.detail).toContain('explain');
  });

  it('metadata counts candidates and names the query [search.metadata] [search.query-log-id] [search.cache-hit]', async () => {
    const first = (await search({ query: 'weather in Paris' })).json.metadata;
    const second = (await search({ query: '  weather in Paris ' })).json.metadata;
    expect(Object.keys(first).sort()).toEqual([
      'cache_hit',
      'latency_ms',
      'query_log_id',
      'total_candidates',
    ]);
    expect(first.total_candidates).toBe(CATALOGUE.length);
    expect(Number.isInteger(first.latency_ms)).toBe(true);
    expect(first.query_log_id).toMatch(/^qry_[0-9A-Za-z]{22}$/);
    expect(second.query_log_id).not.toBe(first.query_log_id);
    expect([first.cache_hit, second.cache_hit]).toEqual([false, true]);
  });

  it('limit defaults to 10 and takes 1 and 50 [search.limit]', async () => {
    const count = async (body: object) =>
      (await search({ query: 'sales report', ...body })).json.servers.length;
    expect([await count({}), await count({ limit: 1 }), await count({ limit: 50 })]).toEqual([10, 1, 50]);
  });

  it('max_tools cuts the tools, best first', async () => {
    const { json } = await search({ query: 'create an issue in our bug tracker', limit: 1, max_tools: 1 });
    expect(json.servers[0].tools.map((one: { name: string }) => one.name)).toEqual(['create_issue']);
  });

  it('a query of exactly 1000 characters, counted as code points [search.query.length]', async () => {
    expect((await search({ query: '😀'.repeat(1000) })).status).toBe(200);
  });

  it('finds a server the moment it was added and not once it is deactivated', async () => {
    const line = {
      id: 'zoo',
      name: 'Zoo',
      description: 'Feed the giraffes and penguins.',
      remote_url: 'https://zoo.example/mcp',
    };
    await sb.admin.request('POST', '/catalogue/import', JSON.stringify(line));
    const ids = async () =>
      (await search({ query: 'feed the giraffes' })).json.servers.map((server: { id: string }) => server.id);
    expect((await ids())[0]).toBe('zoo');
    await sb.admin.request('POST', '/catalogue/zoo/deactivate');
    expect(await ids()).not.toContain('zoo');
  });
});

describe('400', () => {
  it.each([
    [{}, 'query: is missing; it must be a string of 1 to 1000 characters'],
    [{ query: '' }, 'query: must not be empty: describe what you want to do in plain words'],
    [{ query: ' \t\n' }, 'query: must not be empty: describe what you want to do in plain words'],
    [{ query: 'x'.repeat(1001) }, 'query: must have at most 1000 characters, not 1001'],
    [{ query: 7 }, 'query: must be a string of 1 to 1000 characters'],
    [{ query: null }, 'query: must be a string of 1 to 1000 characters'],
    [{ query: 'x', limit: 0 }, 'limit: must be at least 1'],
    [{ query: 'x', limit: 51 }, 'limit: must be at most 50'],
    [{ query: 'x', limit: 'ten' }, 'limit: must be a whole number from 1 to 50'],
    [{ query: 'x', limit: 1.5 }, 'limit: must be a whole number from 1 to 50'],
    [
      { query: 'x', colour: 1, shape: 2 },
      'Unknown fields "colour", "shape" (the fields are query, limit, max_tools, explain)',
    ],
    [
      { query: 'x', limit: 0, colour: 1 },
      'limit: must be at least 1; Unknown field "colour" (the fields are query, limit, max_tools, explain)',
    ],
    [[], 'The body must be a JSON object, not an array'],
    ['"text"', 'The body must be a JSON object, not a string'],
  ])(
    'case %# says what was wrong [search.query.length] [search.limit] [errors.detail]',
    async (body, detail) => {
      const { status, json, headers } = await search(body);
      expect({ status, detail: json.detail }).toEqual({ status: 400, detail });
      expect(json).toMatchObject({
        type: 'urn:switchboard:error:invalid_request',
        title: 'Invalid request',
        status: 400,
        code: 'invalid_request',
      });
      expect(headers.get('content-type')).toBe('application/problem+json; charset=utf-8');
      expect(headers.get('x-request-id')).toBe(json.request_id);
    },
  );

  it.each([
    ['{"query": broken', 'The body is not valid JSON.'],
    ['', 'The body is empty. Send a JSON object.'],
    [Buffer.from([0x22, 0xff, 0x22]), 'The body is not valid UTF-8.'],
    [
      `{"query":"x","a":${'['.repeat(50_000)}${']'.repeat(50_000)}}`,
      'The body is nested more than 200 levels deep. Send flatter JSON.',
    ],
  ])('a body that cannot be read, case %#', async (body, detail) => {
    const { status, json } = await search(body);
    expect({ status, code: json.code, detail: json.detail }).toEqual({
      status: 400,
      code: 'invalid_json',
      detail,
    });
  });
});

describe('400, packed', () => {
  it.each(['gzip', 'deflate', 'br', 'zstd'])('a body that is not the %s it says it is', async encoding => {
    const { status, json } = await search('{"query":"x"}', { 'content-encoding': encoding });
    expect(status).toBe(400);
    expect(json.detail).toMatch(
      /^The body (could not be decoded: it is truncated or does not match its Content-Encoding|is empty)/,
    );
  });
});

describe('413', () => {
  it('a body of 5 MB, plain or unpacked from gzip', async () => {
    const big = JSON.stringify({ query: 'x'.repeat(5_000_000) });
    const zipped = (await import('node:zlib')).gzipSync(big);
    for (const answer of [await search(big), await search(zipped, { 'content-encoding': 'gzip' })]) {
      expect({ status: answer.status, code: answer.json.code }).toEqual({
        status: 413,
        code: 'payload_too_large',
      });
      expect(answer.json.detail).toBe('The body is larger than 1048576 bytes. Send less data.');
    }
  });
});

describe('415', () => {
  it.each(['text/plain', 'application/x-www-form-urlencoded', 'application/json; charset=utf-16', ''])(
    'content type %j',
    async type => {
      const { status, json } = await search('{"query":"x"}', { 'content-type': type });
      expect({ status, code: json?.code }).toEqual({ status: 415, code: 'unsupported_media_type' });
      expect(json.detail).toBe('Send the body as Content-Type: application/json in UTF-8.');
    },
  );

  it('an unknown content encoding', async () => {
    const { status, json } = await search('{"query":"x"}', { 'content-encoding': 'zstd-x' });
    expect({ status, code: json.code }).toEqual({ status: 415, code: 'unsupported_media_type' });
  });
});
