import {
  Client as ClientV2,
  StreamableHTTPClientTransport as TransportV2,
} from '@modelcontextprotocol/client';
import { Client as ClientV1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as TransportV1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';
import { startAskingServer, type AskingServer } from '../support/upstreams/asking.ts';
import { startHostile, type Hostile } from '../support/upstreams/hostile.ts';

let asking: AskingServer;
let hostile: Hostile;
let sb: RunningSwitchboard;
/** Where time can be set ahead. */
let aheadMs = 0;

const asks = (inputRequests: unknown, more: object = {}) => ({
  resultType: 'input_required',
  inputRequests,
  ...more,
});

const FORM = {
  method: 'elicitation/create',
  params: { message: 'Your name?', requestedSchema: { type: 'object', properties: { answer: {} } } },
};
const MODES = [
  'form',
  'sample',
  'tools',
  'roots',
  'later',
  'nothing',
  'oddly',
  'state',
  'much',
  'falsely',
  'unknown',
  'many',
];

beforeAll(async () => {
  [asking, hostile] = await Promise.all([
    startAskingServer(),
    startHostile({
      era: 'modern',
      modes: {
        // These ask without looking at what the client can do.
        'asks-form': call => call.result(asks({ name: FORM })),
        'asks-sample': call =>
          call.result(asks({ thought: { method: 'sampling/createMessage', params: {} } })),
        'asks-tools': call =>
          call.result(asks({ thought: { method: 'sampling/createMessage', params: { tools: [] } } })),
        'asks-roots': call => call.result(asks({ roots: { method: 'roots/list' } })),
        'asks-later': call => call.result({ resultType: 'input_required', requestState: 's' }),
        'asks-nothing': call => call.result({ resultType: 'input_required' }),
        'asks-oddly': call => call.result(asks('please')),
        'asks-state': call => call.result({ resultType: 'input_required', requestState: 7 }),
        'asks-much': call =>
          call.result(asks({ a: { method: 'roots/list', params: { x: 'x'.repeat(1_000_000) } } })),
        'asks-falsely': call => call.result(asks({}, { requestState: 's', isError: true, content: 'no' })),
        'asks-unknown': call =>
          call.result(asks({ 'a\u001b[31m': { method: 'shell/run\u200b', params: { message: 'rm\n-rf' } } })),
        'asks-many': call =>
          call.result(
            asks(
              Object.fromEntries(
                Array.from({ length: 500 }, (_, at) => [`k${at}`, { method: 'roots/list' }]),
              ),
            ),
          ),
      },
    }),
  ]);
  sb = await startTestSwitchboard({
    env: { SWITCHBOARD_RATE_LIMIT: 'off' },
    clock: { now: () => Date.now() + aheadMs },
    catalogue: [
      { id: 'asking', remote_url: asking.url },
      { id: 'also-asking', remote_url: asking.url },
      ...MODES.map(mode => ({
        id: `asks-${mode}`,
        remote_url: hostile.url(`asks-${mode}`),
      })),
    ],
  });
});
afterAll(async () => {
  await sb[Symbol.asyncDispose]();
  await Promise.all([asking[Symbol.asyncDispose](), hostile[Symbol.asyncDispose]()]);
});

const META = 'io.modelcontextprotocol/';
const ALL = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };

interface Asked {
  readonly capabilities?: object;
  readonly server_id?: string;
  readonly arguments?: object;
  readonly key?: string;
  readonly era?: 'legacy' | 'modern';
  /** The members of params that answer an earlier question. */
  readonly answers?: object;
}

/** One call_remote_tool as it goes over the wire: its result, or its error. */
async function ask(tool_name: string, asked: Asked = {}): Promise<any> {
  const {
    capabilities = ALL,
    server_id = 'asking',
    arguments: args = {},
    key = sb.key,
    era = 'modern',
    answers,
  } = asked;
  const _meta = { [`${META}protocolVersion`]: '2026-07-28', [`${META}clientCapabilities`]: capabilities };
  const headers = {
    'mcp-protocol-version': '2026-07-28',
    'mcp-method': 'tools/call',
    'mcp-name': 'call_remote_tool',
  };
  const params = {
    name: 'call_remote_tool',
    arguments: { server_id, tool_name, arguments: args },
    ...answers,
  };
  const { text } = await sb.post(
    '/mcp',
    { jsonrpc: '2.0', id: 1, method: 'tools/call', params: era === 'modern' ? { ...params, _meta } : params },
    { 'x-api-key': key, ...(era === 'modern' ? headers : {}) },
  );
  const { result, error } = JSON.parse(/^data: (\{.*)$/m.exec(text)?.[1] ?? text);
  return result ?? error;
}

const accept = (answer: string) => ({ action: 'accept', content: { answer } });
const textOf = (result: any): string => result.content?.[0]?.text;
const lastCall = () => asking.inbox.of('tools/call').at(-1)?.message.params;

describe('a tool that asks for input', () => {
  it('asks the client, and continues with its reply and the exact state', async () => {
    const asked = await ask('name');
    expect(asked).toMatchObject({
      resultType: 'input_required',
      inputRequests: { sign_in: { method: 'elicitation/create', params: { message: 'Your name?' } } },
    });
    expect(asked.requestState).not.toContain('state');
    const inputResponses = { sign_in: accept('Ada') };
    const done = await ask('name', { answers: { inputResponses, requestState: asked.requestState } });
    expect(textOf(done)).toBe('Hello Ada, a "state" ü');
    expect(lastCall()).toMatchObject({ inputResponses, requestState: 'a "state" ü' });
  });

  it('may ask again, and need no state of its own', async () => {
    const first = await ask('twice');
    const second = await ask('twice', {
      answers: { inputResponses: { q: accept('eins') }, requestState: first.requestState },
    });
    expect(second.inputRequests.q.params.message).toBe('Second?');
    const done = await ask('twice', {
      answers: { inputResponses: { q: accept('zwei') }, requestState: second.requestState },
    });
    expect(textOf(done)).toBe('eins and zwei');
  });

  it('may only want to be called again', async () => {
    const asked = await ask('later', { capabilities: {} });
    expect(asked.resultType).toBe('input_required');
    expect(
      textOf(await ask('later', { capabilities: {}, answers: { requestState: asked.requestState } })),
    ).toBe('done');
  });

  it('that gets answers without a state begins anew: they may be to what Switchboard asked', async () => {
    const asked = await ask('name', { answers: { inputResponses: { sign_in: accept('Ada') } } });
    expect(asked.resultType).toBe('input_required');
    expect(lastCall()).not.toHaveProperty('inputResponses');
  });

  it('is told what the client can do, and nothing else about it', async () => {
    const capabilities = {
      elicitation: { form: {} },
      extensions: { [`${META}tasks`]: {} },
      experimental: { x: {} },
    };
    await ask('name', { capabilities });
    expect(lastCall()._meta[`${META}clientCapabilities`]).toEqual({ elicitation: { form: {} } });
    await ask('name', { capabilities: {} });
    expect(lastCall()._meta[`${META}clientCapabilities`]).toEqual({});
  });
});

describe('SDK v2, 2026-07-28', () => {
  it('answers by itself: forms in two rounds, sampling, roots', async () => {
    const client = new ClientV2(
      { name: 'test', version: '1' },
      { capabilities: ALL, versionNegotiation: { mode: { pin: '2026-07-28' } } },
    );
    const questions: string[] = [];
    client.setRequestHandler('elicitation/create', ({ params }) => {
      questions.push(params.message);
      return { action: 'accept' as const, content: { answer: `answer ${questions.length}` } };
    });
    client.setRequestHandler('sampling/createMessage', () => ({
      role: 'assistant' as const,
      model: 'm',
      content: { type: 'text' as const, text: 'a thought' },
    }));
    client.setRequestHandler('roots/list', () => ({ roots: [{ uri: 'file:///home' }] }));
    await client.connect(
      new TransportV2(new URL(`${sb.url}/mcp`), { requestInit: { headers: { 'X-API-Key': sb.key } } }),
    );
    const call = (tool_name: string) =>
      client.callTool({ name: 'call_remote_tool', arguments: { server_id: 'asking', tool_name } });
    expect(textOf(await call('twice'))).toBe('answer 1 and answer 2');
    expect(questions).toEqual(['First?', 'Second?']);
    expect(textOf(await call('sample'))).toContain('a thought');
    expect(textOf(await call('roots'))).toContain('file:///home');
    await client.close();
  });
});

describe('a client that cannot be asked', () => {
  it.each([
    [
      'a form, of a client without elicitation',
      'asks-form',
      { sampling: {} },
      /^- name: elicitation\/create; Your name\?; fields: answer$/m,
    ],
    [
      'a form, of a client that only opens URLs',
      'asks-form',
      { elicitation: { url: {} } },
      /^- name: elicitation\/create/m,
    ],
    [
      'sampling, of a client without it',
      'asks-sample',
      { elicitation: {} },
      /^- thought: sampling\/createMessage$/m,
    ],
    [
      'sampling with tools, of a client without them',
      'asks-tools',
      { sampling: {} },
      /^- thought: sampling\/createMessage$/m,
    ],
    ['roots, of a client without them', 'asks-roots', {}, /^- roots: roots\/list$/m],
  ])('is told in words: %s', async (_what, server_id, capabilities, words) => {
    const result = await ask('x', { server_id, capabilities });
    expect(result).toMatchObject({
      isError: true,
      _meta: { 'switchboard/server_id': server_id, 'switchboard/tool_name': 'x' },
    });
    expect(textOf(result)).toMatch(/needs more input.*\(input_required\)/);
    expect(textOf(result)).toMatch(words);
    expect(textOf(result)).toContain('call it again with them');
  });

  it('is told what to do where the server itself refuses (-32021)', async () => {
    const result = await ask('name', { capabilities: { sampling: {} } });
    expect(result.isError).toBe(true);
    expect(textOf(result)).toMatch(
      /do not declare the required capability \(upstream_error\)\n.*call it again with them/,
    );
  });

  const connecting = {
    'SDK v1': async () => {
      const client = new ClientV1({ name: 'test', version: '1' }, { capabilities: ALL });
      await client.connect(
        new TransportV1(new URL(`${sb.url}/mcp`), { requestInit: { headers: { 'X-API-Key': sb.key } } }),
      );
      return client;
    },
    'SDK v2, 2025-11-25': async () => {
      const client = new ClientV2({ name: 'test', version: '1' }, { capabilities: ALL });
      await client.connect(
        new TransportV2(new URL(`${sb.url}/mcp`), { requestInit: { headers: { 'X-API-Key': sb.key } } }),
      );
      return client;
    },
  };
  it.each(Object.entries(connecting))(
    '%s is told in words, as its revision has no such question',
    async (_name, connect) => {
      const client = await connect();
      const call = (server_id: string) =>
        client.callTool({ name: 'call_remote_tool', arguments: { server_id, tool_name: 'x' } });
      expect(textOf(await call('asks-form'))).toContain('- name: elicitation/create; Your name?');
      expect(textOf(await call('asks-later'))).toContain(
        'a second call with a state that this client cannot send',
      );
      const where =
        /the protocol revision of this connection cannot relay.* revision 2026-07-28 .*\/mcp\/\{server_id\}.*POST \/v1\/mcp\/call with .*clientCapabilities.*inputResponses and requestState/;
      expect(textOf(await call('asks-form'))).toMatch(where);
      // A server that refuses by itself (-32021).
      const { content } = await client.callTool({
        name: 'call_remote_tool',
        arguments: { server_id: 'asking', tool_name: 'name' },
      });
      expect(JSON.stringify(content)).toMatch(/\(upstream_error\)/);
      expect(textOf({ content })).toMatch(where);
      await client.close();
    },
  );

  it('gets the words of a server cleaned and in bounds', async () => {
    const unknown = textOf(await ask('x', { server_id: 'asks-unknown' }));
    expect(unknown).toContain('\n- a: shell/run; rm -rf\n');
    const many = textOf(await ask('x', { server_id: 'asks-many', capabilities: {} }));
    expect(many).toContain('\n- and 490 more\n');
    expect(many.length).toBeLessThan(2_000);
  });
});

describe('POST /v1/mcp/call', () => {
  it('answers what a tool asks, as its description says', async () => {
    const call = async (more: object) => {
      const _meta = { [`${META}clientCapabilities`]: { elicitation: { form: {} } } };
      const params = { name: 'name', arguments: {}, _meta, ...more };
      return (await sb.post('/v1/mcp/call', { server_id: 'asking', method: 'tools/call', params })).json
        .result;
    };
    const { resultType, inputRequests, requestState } = await call({});
    expect([resultType, Object.keys(inputRequests)]).toEqual(['input_required', ['sign_in']]);
    const done = await call({ inputResponses: { sign_in: accept('Ada') }, requestState });
    expect(textOf(done)).toBe('Hello Ada, a "state" ü');
  });
});

describe('a state that comes back', () => {
  const refusal = { code: -32_602, data: { reason: 'invalid_request_state' } };
  const answersOf = (requestState: unknown) => ({ inputResponses: { sign_in: accept('Eve') }, requestState });

  it.each([
    ['changed', (state: string) => `${state}-TAMPERED`],
    ['cut short', (state: string) => state.slice(0, -4)],
    ['replaced by the upstream own', () => 'a "state" ü'],
    ['empty', () => ''],
  ])('%s is error -32602, and nothing goes upstream', async (_what, change) => {
    const { requestState } = await ask('name');
    const before = asking.inbox.count('tools/call');
    expect(await ask('name', { answers: answersOf(change(requestState)) })).toMatchObject(refusal);
    expect(await ask('name', { answers: answersOf(7) })).toMatchObject({ code: -32_602 });
    expect(asking.inbox.count('tools/call')).toBe(before);
  });

  it('belongs to one call: another tool, other arguments, another server are error -32602', async () => {
    const { requestState } = await ask('name', { arguments: { a: 1, b: { c: 2, d: 3 } } });
    const answers = answersOf(requestState);
    const same = { arguments: { b: { d: 3, c: 2 }, a: 1 }, answers };
    expect(await ask('twice', same)).toMatchObject(refusal);
    expect(await ask('name', { ...same, arguments: { a: 1, b: { c: 2, d: 4 } } })).toMatchObject(refusal);
    expect(await ask('name', { ...same, server_id: 'also-asking' })).toMatchObject(refusal);
    // The order of the members says nothing.
    expect(textOf(await ask('name', same))).toContain('Hello Eve');
  });

  it('belongs to one key', async () => {
    const { key } = (await sb.admin.request('POST', '/keys', { name: 'other' })).json;
    const { requestState } = await ask('name');
    expect(await ask('name', { key, answers: answersOf(requestState) })).toMatchObject(refusal);
  });

  it('is good for 10 minutes', async () => {
    const { requestState } = await ask('name');
    aheadMs = 9 * 60_000;
    expect(textOf(await ask('name', { answers: answersOf(requestState) }))).toContain('Hello Eve');
    aheadMs = 11 * 60_000;
    expect(await ask('name', { answers: answersOf(requestState) })).toMatchObject(refusal);
    aheadMs = 0;
  });
});

describe('a server that asks in no proper way', () => {
  it.each([
    ['asks-nothing', 'upstream_protocol'],
    ['asks-oddly', 'upstream_protocol'],
    ['asks-state', 'upstream_protocol'],
    ['asks-much', 'upstream_too_large'],
  ])('%s is a result that says so: %s', async (server_id, code) => {
    const result = await ask('x', { server_id });
    expect(result.isError).toBe(true);
    expect(textOf(result)).toContain(`(${code})`);
  });

  it('and fills in what belongs to a result is taken at its resultType', async () => {
    expect(await ask('x', { server_id: 'asks-falsely' })).toMatchObject({ resultType: 'input_required' });
  });
});
