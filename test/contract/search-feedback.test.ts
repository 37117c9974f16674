import { sql } from 'drizzle-orm';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { rows, type OpenDatabase } from '../../src/platform/database/database.ts';
import { openTestDatabase } from '../support/database.ts';
import { startHostile, type Hostile } from '../support/upstreams/hostile.ts';
import { startV1Server, type V1Server } from '../support/upstreams/v1.ts';
import { startTestSwitchboard, type Answer, type RunningSwitchboard } from '../support/switchboard.ts';

const LETTERS = ['fold_letter', 'seal_letter', 'burn_letter'].map(name => ({
  name,
  description: '',
  input_schema: {},
}));

let database: OpenDatabase;
let v1: V1Server;
let hostile: Hostile;
let sb: RunningSwitchboard;
beforeAll(async () => {
  [database, v1, hostile] = await Promise.all([openTestDatabase(), startV1Server(), startHostile()]);
  sb = await startTestSwitchboard({
    // Looked into beside the running program.
    database: () => Promise.resolve({ ...database, close: () => Promise.resolve() }),
    catalogue: [
      { id: 'v1', description: 'Echo a message.', remote_url: v1.url },
      { id: 'known', description: 'Fold a letter.', remote_url: 'https://known.example/mcp', tools: LETTERS },
      {
        id: 'for-users',
        description: 'Fold a letter of yours.',
        remote_url: 'https://users.example/mcp',
        tools: LETTERS,
        auth: { kind: 'user_oauth', provider: 'google' },
      },
      ...['a-fails', 'b-works'].map(id => ({
        id,
        name: 'Paint',
        description: 'Paint a fence in any colour.',
        remote_url: `${hostile.url(id === 'b-works' ? 'ok' : '500-html')}?${id}`,
      })),
      { id: 'wants-sign-in', description: 'Wash a car.', remote_url: hostile.url('401') },
    ],
  });
});
afterAll(async () => {
  await sb[Symbol.asyncDispose]();
  await Promise.all([v1[Symbol.asyncDispose](), hostile[Symbol.asyncDispose](), database.close()]);
});

async function search(query = 'echo a message', headers?: Record<string, string>): Promise<string> {
  return (await sb.post('/v1/search', { query }, headers)).json.metadata.query_log_id;
}
const feedback = (body: object, headers?: Record<string, string>): Promise<Answer> =>
  sb.post('/v1/search/feedback', body, headers);
const outcomesOf = async (id: string) =>
  (
    await rows(
      database.db,
      sql`select server_id, tool, source, outcome from search_outcomes where query_log_id = ${id} order by server_id, tool, source`,
    )
  ).map(row => Object.values(row).join(' '));
const keyOf = async (tenant: string, scopes: string[]): Promise<string> =>
  (await sb.admin.request('POST', '/keys', { name: 'test', scopes, tenant })).json.key;

describe('200', () => {
  it('feedback is stored, and the last one wins [search.feedback]', async () => {
    const query_log_id = await search();
    for (const outcome of ['helpful', 'irrelevant', 'not_helpful']) {
      const { status, json } = await feedback({ query_log_id, server_id: 'v1', tool: 'echo', outcome });
      expect({ status, json }).toEqual({ status: 200, json: { success: true } });
    }
    await feedback({ query_log_id, server_id: 'v1', outcome: 'helpful' });
    await expect
      .poll(() => outcomesOf(query_log_id), { timeout: 30_000 })
      .toEqual(['v1  feedback helpful', 'v1 echo feedback not_helpful']);
  });
});

describe('calls that carry a query_log_id', () => {
  it('are joined to the search on every door [search.feedback.calls]', async () => {
    const id = await search('anything at all, paint, wash, echo');
    const echo = { name: 'echo', arguments: { message: 'x' } };
    await sb.post('/v1/mcp/tools/call', { server_id: 'v1', ...echo, query_log_id: id });
    await sb.post('/v1/mcp/tools/list', { server_id: 'v1', query_log_id: id });
    const params = { name: 'paint', arguments: {} };
    const generic = { server_id: 'a-fails', method: 'tools/call', params, query_log_id: id };
    await sb.post('/v1/mcp/call', generic);
    const remote = { server_id: 'wants-sign-in', tool_name: 'wash', arguments: {}, query_log_id: id };
    await sb.post('/mcp', {
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: { name: 'call_remote_tool', arguments: remote },
    });
    await expect
      .poll(() => outcomesOf(id), { timeout: 30_000 })
      .toEqual([
        'a-fails paint call failure',
        'v1  call listed',
        'v1 echo call success',
        'wants-sign-in wash call inconclusive',
      ]);
  });

  it('of /mcp are joined to the last search of the same key and session by themselves, where it found the server [mcp.last-search]', async () => {
    const session = async () => ({ 'mcp-session-id': `session.${crypto.randomUUID()}` });
    const [mine, another] = [await session(), await session()];
    const call = async (name: string, args: object, headers: Record<string, string>) => {
      const message = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: args } };
      const { text } = await sb.post('/mcp', message, headers);
      return JSON.parse(/^data: (\{.*)$/m.exec(text)?.[1] ?? text).result;
    };
    const echo = { server_id: 'v1', tool_name: 'echo', arguments: { message: 'x' } };
    const found = await call('search_servers', { query: 'echo a message', limit: 1 }, mine);
    expect(found.structuredContent).not.toHaveProperty('query_log_id');
    const id: string = found._meta['switchboard/query_log_id'];
    const others = await call('search_servers', { query: 'echo a message', limit: 1 }, another);
    await call('call_remote_tool', echo, mine);
    await call('call_remote_tool', { ...echo, server_id: 'wants-sign-in' }, mine);
    await expect.poll(() => outcomesOf(id), { timeout: 30_000 }).toEqual(['v1 echo call success']);
    expect(await outcomesOf(others._meta['switchboard/query_log_id'])).toEqual([]);
    // The key of another session, or another key in the same, has made no search.
    const key = await keyOf('local', ['search', 'proxy']);
    await call('call_remote_tool', echo, { ...another, 'x-api-key': key });
    await call('call_remote_tool', { ...echo, query_log_id: others._meta['switchboard/query_log_id'] }, mine);
    await expect
      .poll(() => outcomesOf(others._meta['switchboard/query_log_id']), { timeout: 30_000 })
      .toEqual(['v1 echo call success']);
  });

  it.each(['', 'nonsense', 'qry_0000000000000000000000', 'x'.repeat(64), '\0'])(
    'are made all the same when it is %j',
    async query_log_id => {
      const echo = { server_id: 'v1', name: 'echo', arguments: { message: 'x' } };
      expect((await sb.post('/v1/mcp/tools/call', { ...echo, query_log_id })).status).toBe(200);
    },
  );

  it('raise what works over its failing twin [search.success]', async () => {
    const order = async () =>
      (await sb.post('/v1/search', { query: `paint a fence ${Math.random()}` })).json.servers
        .map(({ id }: { id: string }) => id)
        .filter((id: string) => id === 'a-fails' || id === 'b-works');
    for (const server_id of ['a-fails', 'b-works'])
      for (let call = 0; call < 4; call++)
        await sb.post('/v1/mcp/call', { server_id, method: 'tools/call', params: { name: 'x' } });
    expect(await order()).toEqual(['b-works', 'a-fails']);
  });
});

describe('400', () => {
  it.each([
    [{}, 'query_log_id: is missing; it must be a string'],
    [{ query_log_id: 7 }, 'query_log_id: must be a string'],
    [{ query_log_id: 'x'.repeat(65) }, 'query_log_id: must have at most 64 characters'],
    [{ query_log_id: 'x', server_id: '' }, 'server_id: must not be empty'],
    [{ query_log_id: 'x', server_id: 'v1', tool: '' }, 'tool: must not be empty'],
    [
      { query_log_id: 'x', server_id: 'v1', outcome: 'great' },
      'outcome: must be one of helpful, not_helpful, irrelevant',
    ],
    [{ query_log_id: 'x', server_id: 'v1', outcome: 'helpful', stars: 5 }, 'Unknown field "stars"'],
  ])('case %# says what was wrong', async (body, detail) => {
    const { status, json } = await feedback(body);
    expect({ status, code: json.code }).toEqual({ status: 400, code: 'invalid_request' });
    expect(json.detail).toContain(detail);
  });

  it('a server that the search did not return [search.feedback.own]', async () => {
    const query_log_id = (await sb.post('/v1/search', { query: 'echo a message', limit: 1 })).json.metadata
      .query_log_id;
    const { status, json } = await feedback({ query_log_id, server_id: 'b-works', outcome: 'helpful' });
    expect({ status, code: json.code }).toEqual({ status: 400, code: 'invalid_request' });
    expect(json.detail).toBe('server_id: that search did not return this server. It returned: v1.');
  });
});

describe('a tool of a server', () => {
  const say = async (server_id: string, tool: string) => {
    const query_log_id = await search('fold a letter of mine, wash a car');
    return feedback({ query_log_id, server_id, tool, outcome: 'helpful' });
  };

  it('that it is known not to have is 400, with those it has [search.feedback.own]', async () => {
    const { status, json } = await say('known', 'letter_seal');
    expect({ status, code: json.code }).toEqual({ status: 400, code: 'invalid_request' });
    expect(json.detail).toBe(
      'tool: this server has no tool "letter_seal". Did you mean "seal_letter"? It has "seal_letter", "fold_letter", "burn_letter". Omit tool to give feedback on the whole server.',
    );
    expect((await say('known', 'seal_letter')).status).toBe(200);
  });

  it.each(['wants-sign-in', 'for-users'])(
    'may be any where its tools are not known to all: %s',
    async server_id => {
      expect((await say(server_id, 'anything')).status).toBe(200);
    },
  );
});

describe('403', () => {
  it('a key without the scope search', async () => {
    const key = await keyOf('local', ['proxy']);
    const answer = await feedback(
      { query_log_id: await search(), server_id: 'v1', outcome: 'helpful' },
      { 'x-api-key': key },
    );
    expect(answer.json).toMatchObject({ status: 403, code: 'insufficient_scope' });
  });
});

describe('404', () => {
  it("an unknown search, and another tenant's, in the same words [search.feedback.own]", async () => {
    const theirs = await search('echo', { 'x-api-key': await keyOf('other', ['search']) });
    const details = new Set<string>();
    for (const query_log_id of [theirs, 'qry_0000000000000000000000', 'nonsense', '\0']) {
      const { status, json } = await feedback({ query_log_id, server_id: 'v1', outcome: 'helpful' });
      expect({ status, code: json.code }).toEqual({ status: 404, code: 'query_not_found' });
      details.add(json.detail);
    }
    expect(details.size).toBe(1);
  });
});

describe('429', () => {
  it('spends the budget of searches', async () => {
    await using limited = await startTestSwitchboard({ env: { SWITCHBOARD_RATE_LIMIT: 'search=1/60' } });
    const { json } = await limited.post('/v1/search', { query: 'x' });
    const answer = await limited.post('/v1/search/feedback', {
      query_log_id: json.metadata.query_log_id,
      server_id: 'filler',
      outcome: 'helpful',
    });
    expect(answer.status).toBe(429);
    expect(answer.headers.get('retry-after')).not.toBeNull();
  });
});
