import { Client as ClientV1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as TransportV1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ResourceUpdatedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';
import {
  Client as ClientV2,
  StreamableHTTPClientTransport as TransportV2,
} from '@modelcontextprotocol/client';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';
import { startEverything, type Everything } from '../support/upstreams/everything.ts';
import { startV1Server, type V1Server } from '../support/upstreams/v1.ts';
import { startV2Server, type V2Server } from '../support/upstreams/v2.ts';

let everything: Everything;
let v1: V1Server;
let v2: V2Server;
let sb: RunningSwitchboard;

beforeAll(async () => {
  [everything, v1, v2] = await Promise.all([startEverything(), startV1Server(), startV2Server()]);
  sb = await startTestSwitchboard({
    catalogue: [
      { id: 'everything', remote_url: everything.url },
      { id: 'v1', remote_url: v1.url },
      { id: 'v2', remote_url: v2.url },
    ],
  });
});
afterAll(async () => {
  await sb[Symbol.asyncDispose]();
  await Promise.all([everything, v1, v2].map(server => server[Symbol.asyncDispose]()));
});

const endpoint = (id: string) => new URL(`${sb.url}/mcp/${id}`);
const withKey = () => ({ requestInit: { headers: { 'X-API-Key': sb.key } } });

interface Content {
  readonly content: { readonly type: string; readonly text: string }[];
}

async function connectV1(id: string, capabilities: object = {}) {
  const client = new ClientV1({ name: 'test', version: '1' }, { capabilities });
  const transport = new TransportV1(endpoint(id), withKey());
  await client.connect(transport);
  return Object.assign(client, {
    transport1: transport,
    text: async (name: string, args: Record<string, unknown> = {}) =>
      ((await client.callTool({ name, arguments: args })) as unknown as Content).content[0]?.text,
    [Symbol.asyncDispose]: () => client.close(),
  });
}

async function connectV2(id: string, mode: 'legacy' | 'auto' | { pin: string }) {
  const client = new ClientV2({ name: 'test', version: '1' }, { versionNegotiation: { mode } });
  await client.connect(new TransportV2(endpoint(id), withKey()));
  return Object.assign(client, {
    text: async (name: string, args: Record<string, unknown> = {}) =>
      ((await client.callTool({ name, arguments: args })) as unknown as Content).content[0]?.text,
    [Symbol.asyncDispose]: () => client.close(),
  });
}

describe('/mcp/{server_id} is the server itself', () => {
  it.each(['everything', 'v1'])('to a client of SDK v1, in front of %s: list and call', async id => {
    await using client = await connectV1(id);
    const { tools } = await client.listTools();
    expect(tools.map(({ name }) => name)).toContain('echo');
    expect(await client.text('echo', { message: 'hi' })).toBe('Echo: hi');
  });

  it.each([
    ['everything', 'legacy', 'legacy'],
    ['everything', 'auto', 'legacy'],
    ['v1', 'auto', 'legacy'],
    ['v2', 'auto', 'modern'],
    ['v2', { pin: '2026-07-28' }, 'modern'],
  ] as const)('to a client of SDK v2, in front of %s in mode %o: the %s era', async (id, mode, era) => {
    await using client = await connectV2(id, mode);
    expect(client.getProtocolEra()).toBe(era);
    const { tools } = await client.listTools();
    expect(tools.map(({ name }) => name)).toContain('echo');
    expect(await client.text('echo', { message: 'hi' })).toBe('Echo: hi');
  });

  it('progress comes as the server reports it, before the answer', async () => {
    await using client = await connectV1('everything');
    const seen: number[] = [];
    await client.callTool(
      { name: 'trigger-long-running-operation', arguments: { duration: 0.2, steps: 4 } },
      undefined,
      { onprogress: ({ progress }) => void seen.push(progress) },
    );
    expect(seen).toEqual([1, 2, 3, 4]);
  });

  it('a cancelled call is cancelled at a server of revisions 2025-xx', async () => {
    await using client = await connectV1('v1');
    const leave = new AbortController();
    const call = client.callTool({ name: 'wait', arguments: {} }, undefined, { signal: leave.signal });
    await v1.inbox.first(({ message }) => message.params?.name === 'wait');
    leave.abort('enough');
    await expect(call).rejects.toThrow('enough');
    await v1.cancelled;
  });

  it('a closed stream is a cancelled call at a server of 2026-07-28', async () => {
    await using client = await connectV2('v2', { pin: '2026-07-28' });
    const leave = new AbortController();
    const call = client.callTool({ name: 'wait', arguments: {} }, { signal: leave.signal });
    await v2.inbox.first(({ message }) => message.params?.name === 'wait');
    leave.abort('enough');
    await expect(call).rejects.toThrow();
    await v2.cancelled;
  });

  it("the server's own requests reach the client and its answers the server", async () => {
    await using client = await connectV1('v1', { sampling: {}, elicitation: {} });
    client.setRequestHandler(CreateMessageRequestSchema, () => ({
      model: 'm',
      role: 'assistant' as const,
      content: { type: 'text' as const, text: 'sampled' },
    }));
    expect(await client.text('ask')).toBe('sampled');
  });

  it('sampling and elicitation work with the reference server', async () => {
    await using client = await connectV1('everything', { sampling: {}, elicitation: {} });
    client.setRequestHandler(CreateMessageRequestSchema, () => ({
      model: 'm',
      role: 'assistant' as const,
      content: { type: 'text' as const, text: 'a sample of mine' },
    }));
    client.setRequestHandler(ElicitRequestSchema, () => ({ action: 'decline' as const }));
    expect(await client.text('trigger-sampling-request', { prompt: 'p', maxTokens: 5 })).toContain(
      'a sample of mine',
    );
    expect(await client.text('trigger-elicitation-request')).toMatch(/declined/);
  });

  it('what happens between calls comes over the GET stream', async () => {
    await using client = await connectV1('everything');
    const { promise, resolve } = Promise.withResolvers<string>();
    client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => resolve(params.uri));
    const { resources } = await client.listResources();
    const uri = resources[0]?.uri ?? '';
    await client.subscribeResource({ uri });
    await client.text('toggle-subscriber-updates');
    expect(await promise).toBe(uri);
  });

  it('an error of ours to the first request is in what SDK v2 says of it, mode auto (docs/pass-through.md)', async () => {
    const client = new ClientV2({ name: 'test', version: '1' }, { versionNegotiation: { mode: 'auto' } });
    const withWrongKey = new TransportV2(endpoint('v2'), { requestInit: { headers: { 'X-API-Key': 'x' } } });
    await expect(client.connect(withWrongKey)).rejects.toMatchObject({
      message: expect.stringMatching(/^Version negotiation failed/),
      data: { text: expect.stringContaining('"reason":"unauthorized"') },
    });
  });

  it('DELETE ends the session at the server', async () => {
    const client = await connectV1('v1');
    const before = v1.sessionIds.length;
    await client.transport1.terminateSession();
    expect(v1.sessionIds.length).toBe(before - 1);
    await client.close();
  });
});
