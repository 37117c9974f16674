import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';
import { ZODS_WORDS } from '../support/zods-words.ts';

let sb: RunningSwitchboard;
beforeAll(async () => void (sb = await startTestSwitchboard({ env: { SWITCHBOARD_RATE_LIMIT: 'off' } })));
afterAll(() => sb[Symbol.asyncDispose]());

interface Schema {
  readonly type?: string;
  readonly properties?: Readonly<Record<string, Schema>>;
}

/** Values of every kind; each is wrong for some field. */
const KINDS = [null, true, 7, -1, 1.5, 1e308, '', 'x', '\0', 'x'.repeat(3_000), [], [null], {}, { a: [{}] }];
const MANY = Array.from({ length: 2_000 }, () => 7);

/** Bodies with one field of every kind of value, the others being what they are mostly: strings. */
function* badBodies({ properties = {} }: Schema): Generator {
  yield* [null, 7, 'x', [], [1], {}, { unknown: 1 }];
  const names = Object.keys(properties);
  const rest = Object.fromEntries(names.map(name => [name, 'x']));
  for (const name of names) for (const value of [...KINDS, MANY]) yield { ...rest, [name]: value };
}

const send = (method: string, path: string, body: unknown) =>
  method === 'put' ? sb.put(path, body) : sb.post(path, body);

describe("no response contains the validator's own messages [errors.own-words]", () => {
  it('on the endpoints of the OpenAPI document', async () => {
    const { json } = await sb.get('/openapi.json');
    for (const [path, methods] of Object.entries<Record<string, any>>(json.paths)) {
      for (const [method, operation] of Object.entries(methods)) {
        // A catalogue file is text: `admin.test.ts` sends bad ones.
        const schema: Schema | undefined = operation.requestBody?.content['application/json']?.schema;
        let isRefused = false;
        const bodies = schema ? [...badBodies(schema)] : [undefined];
        for (const body of bodies) {
          const answer = schema ? await send(method, path, body) : await sb.get(`${path}?unknown=1`);
          isRefused ||= answer.status === 400;
          expect(answer.text, `${path} ${JSON.stringify(body)?.slice(0, 200)}`).not.toMatch(ZODS_WORDS);
          expect(answer.text.length).toBeLessThan(5_000);
          expect(answer.status, `${path} ${JSON.stringify(body)?.slice(0, 200)}`).not.toBe(500);
        }
        if (schema) expect(isRefused, `${method} ${path}`).toBe(true);
      }
    }
  });

  it.each([
    ['/v1/identity/connections', 'user_id: is missing; it must be a string'],
    [
      '/v1/identity/connections?user_id=a&user_id=b',
      'user_id: must be a string: your own id for the end user',
    ],
    ...['%ff', 'a%', '%zz', '%c0%af', '%ed%a0%80', '%E0%A4%A'].map(text => [
      `/v1/identity/connections?user_id=${text}`,
      'The query string is not percent-encoded UTF-8.',
    ]),
    ['/v0.1/servers?search=%ff', 'The query string is not percent-encoded UTF-8.'],
    ['/v1/identity/connections?user_id=a&x=1', 'Unknown field "x" (the fields are user_id)'],
  ])('in a query string: %s', async (path, detail) => {
    const { status, json } = await sb.get(path);
    expect({ status, detail: json.detail }).toEqual({ status: 400, detail: expect.stringContaining(detail) });
  });

  it('in a header', async () => {
    const headers = { 'idempotency-key': 'two words' };
    const { json } = await sb.post('/v1/identity/refresh', { refresh_token: 'x' }, headers);
    expect(json.detail).toBe('The header Idempotency-Key must be 1 to 255 visible ASCII characters');
  });

  it('on /mcp, in the arguments of its tools', async () => {
    const call = async (method: string, params?: object) =>
      (await sb.post('/mcp', { jsonrpc: '2.0', id: 1, method, params })).text;
    const listed = JSON.parse(/\{.*\}/.exec(await call('tools/list'))?.[0] ?? '');
    expect(listed.result.tools).toHaveLength(2);
    for (const { name, inputSchema } of listed.result.tools) {
      for (const args of badBodies(inputSchema)) {
        const text = await call('tools/call', { name, arguments: args });
        expect(text, JSON.stringify(args)?.slice(0, 200)).not.toMatch(ZODS_WORDS);
      }
    }
  });

  it.each<[era: string, message: unknown]>(
    ['2025-11-25', '2026-07-28'].flatMap(era =>
      [
        {},
        { jsonrpc: '1.0', id: 1, method: 'tools/list' },
        { jsonrpc: '2.0', id: 1, method: 7 },
        { jsonrpc: '2.0', id: 1 },
        { jsonrpc: '2.0', id: 1, result: 7 },
        { jsonrpc: '2.0', id: 1, method: 'tools/list', params: [] },
        { jsonrpc: '2.0', id: 1, method: 'tools/list', params: { _meta: 7 } },
        { jsonrpc: '2.0', id: 1, method: 'tools/list', params: { _meta: { progressToken: {} } } },
        { jsonrpc: '2.0', id: 1, method: 'initialize', params: { protocolVersion: 7 } },
        { jsonrpc: '2.0', id: 1, method: 'ping', params: 7 },
        {
          jsonrpc: '2.0',
          id: 1,
          method: 'server/discover',
          params: { _meta: { 'io.modelcontextprotocol/clientInfo': 7 } },
        },
        { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: {} } },
        {
          jsonrpc: '2.0',
          id: 1,
          method: 'tools/call',
          params: { name: 'search_servers', arguments: { query: 'x' }, inputResponses: 7 },
        },
      ].map((message): [string, unknown] => [era, message]),
    ),
  )('on /mcp, revision %s, in the message %j', async (era, message) => {
    const method = String((message as { method?: unknown }).method);
    for (const headers of [
      { 'mcp-protocol-version': era },
      { 'mcp-protocol-version': era, 'mcp-method': method, 'mcp-name': 'search_servers' },
    ])
      expect((await sb.post('/mcp', message, headers)).text).not.toMatch(ZODS_WORDS);
  });

  it('on the control socket', async () => {
    const bodies = [{}, { unknown: 1 }, [], { name: 7 }, { user_id: [], tenant: 7 }];
    const more = [
      { name: 'x', scopes: ['x', 7], expires_at: 'x' },
      { overlap_sec: '1' },
      { return_urls: 'x' },
    ];
    const paths = [
      '/keys',
      '/keys/x/rotate',
      '/vault/retire',
      '/tenants/local',
      '/connections/link',
      '/search',
      '/call',
    ];
    for (const path of paths) {
      for (const body of [...bodies, ...more]) {
        const { json } = await sb.admin.request('POST', path, body);
        expect(JSON.stringify(json), `${path} ${JSON.stringify(body)}`).not.toMatch(ZODS_WORDS);
      }
    }
  });

  it('in the lines of an import', async () => {
    const good = { id: 'a', name: 'A', description: 'A.', remote_url: 'https://a.example/mcp' };
    const tool = { name: 't', description: '', input_schema: {} };
    const lines: [line: unknown, reason: string][] = [
      [7, 'must be a JSON object, not a number'],
      [[], 'must be a JSON object, not an array'],
      [{}, 'id: is missing; it must be a string'],
      [{ ...good, name: 7 }, 'name: must be a string, not a number'],
      [{ ...good, transport: 'tcp' }, 'transport: must be one of streamable-http, sse'],
      [{ ...good, auth: 'none' }, 'auth: must be a JSON object, not a string'],
      [
        { ...good, auth: {} },
        'auth.kind: is missing; it must be one of none, unknown, credentials, static_header, oauth, own_oauth, provider, user_oauth',
      ],
      [{ ...good, tools: {} }, 'tools: must be an array, not an object'],
      [
        { ...good, tools: [tool, { ...tool, input_schema: [] }] },
        'tools[1].input_schema: must be a JSON object, not an array',
      ],
      [
        { ...good, tools: [{ ...tool, description: 'x'.repeat(20_001) }] },
        'tools[0].description: must have at most 20000 characters, not 20001',
      ],
      [
        { ...good, tools: Array.from({ length: 1_001 }, () => tool) },
        'tools: must have at most 1000 items, not 1001',
      ],
      [
        { ...good, categories: Array.from({ length: 21 }, () => 'x') },
        'categories: must have at most 20 items, not 21',
      ],
      [
        { ...good, remote_url: `https://a.example/${'x'.repeat(2_048)}` },
        'remote_url: must have at most 2048 characters',
      ],
      [{ ...good, homepage: 'a.example' }, 'homepage: must be an http(s) URL'],
    ];
    const text = lines.map(([line]) => JSON.stringify(line)).join('\n');
    const { json } = await sb.admin.request('POST', '/catalogue/import', text);
    expect(json.problems.map(({ reason }: { reason: string }) => reason)).toEqual(
      lines.map(([, reason]) => reason),
    );
  });
});
