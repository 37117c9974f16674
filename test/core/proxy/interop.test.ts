import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startEverything, type Everything } from '../../support/upstreams/everything.ts';
import { startV1Server } from '../../support/upstreams/v1.ts';
import { startV2Server } from '../../support/upstreams/v2.ts';
import { caller, expectOwnEchoes, failure, startProxy } from './harness.ts';

const echo = (text: string) => [{ type: 'text', text: `Echo: ${text}` }];

describe('server-everything (2025-11-25, stateful, SSE)', () => {
  let everything: Everything;
  beforeAll(async () => {
    everything = await startEverything();
  });
  afterAll(() => everything[Symbol.asyncDispose]());

  it('lists and calls tools, reads resources, gets prompts', async () => {
    await using harness = startProxy(everything.url);
    const { tools } = await harness.proxy.listTools(caller(), { serverId: 's' });
    expect(tools.map(tool => tool.name)).toContain('echo');
    expect(await harness.tool('echo', { message: 'hé' })).toMatchObject({
      content: [{ text: 'Echo: hé' }],
      isError: false,
    });
    const resources = await harness.proxy.call(caller(), { serverId: 's', method: 'resources/list' });
    expect(resources).toMatchObject({ result: { resources: expect.any(Array) } });
    const prompts = await harness.proxy.call(caller(), { serverId: 's', method: 'prompts/list' });
    expect(prompts).toMatchObject({ result: { prompts: expect.any(Array) } });
    expect(await harness.proxy.call(caller(), { serverId: 's', method: 'ping' })).toEqual({ result: {} });
  });

  it('after its restart, which it tells of by HTTP 400, the very next call works', async () => {
    await using restarted = await startEverything();
    await using harness = startProxy(restarted.url);
    await harness.tool('echo', { message: 'a' });
    await restarted.restart();
    expect(await harness.tool('echo', { message: 'b' })).toMatchObject({ content: echo('b') });
    await restarted.restart();
    expect((await harness.proxy.listTools(caller(), { serverId: 's' })).tools.length).toBeGreaterThan(5);
  });

  it('an unknown method is the server`s own error', async () => {
    await using harness = startProxy(everything.url);
    const reply = await harness.proxy.call(caller(), { serverId: 's', method: 'foo/bar' });
    expect(reply).toMatchObject({ error: { code: -32_601, message: 'Method not found' } });
  });

  it('progress in the stream is passed over', async () => {
    await using harness = startProxy(everything.url);
    const reply = await harness.proxy.call(caller(), {
      serverId: 's',
      method: 'tools/call',
      params: {
        name: 'trigger-long-running-operation',
        arguments: { duration: 0.2, steps: 4 },
        _meta: { progressToken: 'p' },
      },
    });
    expect(reply).toMatchObject({
      result: { content: [{ type: 'text', text: expect.stringContaining('4') }] },
    });
  });

  it('many calls of several users at a time each get their own answer', async () => {
    await using harness = startProxy(everything.url);
    await expectOwnEchoes(harness);
  });
});

describe.each([
  ['stateful, SSE', { sessions: true, json: false }],
  ['stateful, JSON', { sessions: true, json: true }],
  ['stateless, SSE', { sessions: false, json: false }],
  ['stateless, JSON', { sessions: false, json: true }],
])('SDK v1 server, %s', (_name, options) => {
  it('lists and calls tools', async () => {
    await using upstream = await startV1Server(options);
    await using harness = startProxy(upstream.url);
    const { tools } = await harness.proxy.listTools(caller(), { serverId: 's' });
    expect(tools).toHaveLength(4);
    expect(tools[0]).toMatchObject({ name: 'echo', description: 'Echoes', inputSchema: { type: 'object' } });
    expect(await harness.tool('echo', { message: 'a' })).toEqual({ content: echo('a'), isError: false });
    expect(await harness.tool('fail')).toMatchObject({ isError: true });
    expect(upstream.inbox.count('tools/call')).toBe(2);
  });
});

describe('SDK v1 server', () => {
  it('survives its restart: the dead session is renewed', async () => {
    await using upstream = await startV1Server();
    await using harness = startProxy(upstream.url);
    await harness.tool('echo', { message: 'a' });
    upstream.forgetSessions();
    expect(await harness.tool('echo', { message: 'b' })).toMatchObject({ content: echo('b') });
    expect(upstream.inbox.count('initialize')).toBe(2);
  });

  it('a tool that asks the client for a sample is told that there is none to be had, and goes on', async () => {
    await using upstream = await startV1Server();
    await using harness = startProxy(upstream.url);
    expect(await harness.tool('ask')).toMatchObject({ content: [{ text: 'refused -32601' }] });
  });

  it('its session is ended when the proxy closes', async () => {
    await using upstream = await startV1Server();
    const harness = startProxy(upstream.url);
    await harness.tool('echo', { message: 'a' });
    expect(upstream.sessionIds).toHaveLength(1);
    await harness.proxy.close();
    expect(upstream.sessionIds).toHaveLength(0);
  });
});

describe.each(['json', 'sse', 'auto'] as const)('SDK v2 server, answers as %s', responseMode => {
  it('lists and calls tools without a handshake, and keeps resultType', async () => {
    await using upstream = await startV2Server({ responseMode });
    await using harness = startProxy(upstream.url);
    const { tools } = await harness.proxy.listTools(caller(), { serverId: 's' });
    expect(tools.map(tool => tool.name)).toEqual(['echo', 'region', 'fail', 'wait']);
    expect(await harness.tool('echo', { message: 'a' })).toMatchObject({
      content: echo('a'),
      isError: false,
    });
    expect(await harness.tool('fail')).toMatchObject({ isError: true });
    const reply = await harness.proxy.call(caller(), {
      serverId: 's',
      method: 'tools/call',
      params: { name: 'echo', arguments: { message: 'b' } },
    });
    expect(reply).toMatchObject({ result: { resultType: 'complete', content: echo('b') } });
    expect(upstream.inbox.count('server/discover')).toBe(1);
    expect(upstream.inbox.count('initialize')).toBe(0);
  });
});

describe('SDK v2 server', () => {
  it('an unknown method (HTTP 404) is an answer', async () => {
    await using upstream = await startV2Server();
    await using harness = startProxy(upstream.url);
    const reply = await harness.proxy.call(caller(), { serverId: 's', method: 'foo/bar' });
    expect(reply).toMatchObject({ error: { code: -32_601 } });
  });

  it('an unknown tool is answered with those there are, or with the server`s own error', async () => {
    await using upstream = await startV2Server();
    await using harness = startProxy(upstream.url);
    expect(await failure(harness.tool('nothing'))).toMatchObject({
      code: 'invalid_params',
      detail: expect.stringMatching(/^The server has no tool "nothing"\. It has:/),
    });
    // Where the catalogue has it, an old listing may be what is wrong.
    harness.catalogue('s', upstream.url, { tools: [{ name: 'nothing', description: '', input_schema: {} }] });
    harness.clock.advance(24 * 60 * 60_000);
    expect(await failure(harness.tool('nothing'))).toMatchObject({
      code: 'upstream_error',
      upstreamError: { code: -32_602 },
    });
  });

  it('a name that is not ASCII arrives', async () => {
    await using upstream = await startV2Server();
    await using harness = startProxy(upstream.url);
    const call = harness.proxy.call(caller(), {
      serverId: 's',
      method: 'prompts/get',
      params: { name: 'grüße' },
    });
    expect(await call).toMatchObject({ result: { messages: [{ content: { text: 'Hallo' } }] } });
  });

  it('an argument that belongs into a header: learnt from the listing before the call', async () => {
    await using upstream = await startV2Server();
    await using harness = startProxy(upstream.url);
    for (const region of ['köln', 'bonn']) {
      expect(await harness.tool('region', { region })).toMatchObject({ content: [{ text: `In ${region}` }] });
    }
    expect(upstream.inbox.count('tools/call')).toBe(2);
    expect(upstream.inbox.count('tools/list')).toBe(1);
  });

  it('an argument that belongs into a header: known from the catalogue', async () => {
    await using upstream = await startV2Server();
    await using harness = startProxy(upstream.url);
    const input_schema = {
      type: 'object',
      properties: { region: { type: 'string', 'x-mcp-header': 'Region' } },
    };
    harness.catalogue('s', upstream.url, { tools: [{ name: 'region', description: '', input_schema }] });
    expect(await harness.tool('region', { region: 'köln' })).toMatchObject({
      content: [{ text: 'In köln' }],
    });
    expect(upstream.inbox.count('tools/call')).toBe(1);
  });

  it('one that speaks both eras is used in the newer', async () => {
    await using upstream = await startV2Server({ legacy: 'stateless' });
    await using harness = startProxy(upstream.url);
    await harness.tool('echo', { message: 'a' });
    expect((await upstream.inbox.firstOf('tools/call')).headers['mcp-protocol-version']).toBe('2026-07-28');
  });
});
