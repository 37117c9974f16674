import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';
import { startHostile, type Hostile } from '../support/upstreams/hostile.ts';

const TEXT = 'Grüße "\\\n'.repeat(90_000);
const RESULT = `{ "content":[{"type":"text","text":${JSON.stringify(TEXT)}}], "structuredContent":{"n":1.0} }`;

let upstream: Hostile;
let sb: RunningSwitchboard;
beforeAll(async () => {
  upstream = await startHostile({
    modes: {
      large: ({ response, message }) => {
        response.writeHead(200, { 'content-type': 'application/json' });
        response.end(`{"jsonrpc":"2.0","id":${JSON.stringify(message.id)},"result":${RESULT}}`);
      },
    },
  });
  sb = await startTestSwitchboard({
    catalogue: [{ id: 'large', remote_url: upstream.url('large'), tools: [{ name: 't' }] }],
  });
});
afterAll(async () => {
  await sb[Symbol.asyncDispose]();
  await upstream[Symbol.asyncDispose]();
});

describe('a large result', () => {
  it.each([1, 'a "b"\u{1f600}'])('is passed on by /v1/mcp/call as it is, for the id %j', async id => {
    const body = { server_id: 'large', method: 'tools/call', params: { name: 't' }, id };
    const { status, headers, text } = await sb.post('/v1/mcp/call', body);
    expect(status).toBe(200);
    expect(headers.get('content-type')).toBe('application/json; charset=utf-8');
    expect(headers.get('content-length')).toBe(String(Buffer.byteLength(text)));
    expect(text === `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${RESULT}}`).toBe(true);
  });

  it('is passed on by /v1/mcp/tools/call, with isError', async () => {
    const body = { server_id: 'large', name: 't' };
    const { status, headers, text } = await sb.post('/v1/mcp/tools/call', body);
    expect(status).toBe(200);
    expect(headers.get('content-length')).toBe(String(Buffer.byteLength(text)));
    expect(text === `${RESULT.slice(0, -1)},"isError":false}`).toBe(true);
  });

  it('is cut for an agent by /mcp, with a handle for all of it', async () => {
    const params = { name: 'call_remote_tool', arguments: { server_id: 'large', tool_name: 't' } };
    const accept = { accept: 'application/json, text/event-stream' };
    const { text } = await sb.post('/mcp', { jsonrpc: '2.0', id: 1, method: 'tools/call', params }, accept);
    const { result } = JSON.parse(
      text
        .split('\n')
        .find(line => line.startsWith('data: {'))
        ?.slice(6) ?? text,
    );
    expect(result.content[0].text.startsWith('Grüße')).toBe(true);
    expect(JSON.stringify(result).length).toBeLessThan(100_000);
    expect(JSON.stringify(result)).toContain('res_');
  });
});
