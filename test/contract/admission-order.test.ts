import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startIdentity, type IdentityUnderTest } from '../support/identity.ts';
import type { Answer } from '../support/switchboard.ts';
import { startV2Server, type V2Server } from '../support/upstreams/v2.ts';

/** A key may make so many calls of each class in ten minutes. */
const CALLS = 4;

let upstream: V2Server;
let sb: IdentityUnderTest;
/** The headers of a call for a user who has been revoked. */
let forRevokedUser: Record<string, string>;
beforeAll(async () => {
  upstream = await startV2Server();
  sb = await startIdentity({
    catalogue: [{ id: 'v2', remote_url: upstream.url }],
    env: {
      SWITCHBOARD_RATE_LIMIT: `search=${CALLS}/600,proxy=${CALLS}/600,refresh=1000/60,sessions=1000/60,revoke=1000/60`,
    },
  });
  forRevokedUser = sb.as(await sb.connect('gone'));
  await sb.revoke('gone');
});
afterAll(async () => {
  await sb[Symbol.asyncDispose]();
  await upstream[Symbol.asyncDispose]();
});

/** Every check that a request can fail, in the order in which they are made. */
const CHECKS = {
  key: 'unauthorized',
  scope: 'insufficient_scope',
  rate: 'rate_limited',
  input: 'invalid_request',
  quota: 'quota_exceeded',
  user: 'identity_token_invalid',
} as const;
type Check = keyof typeof CHECKS;
const ORDER = Object.keys(CHECKS) as Check[];

interface Face {
  readonly scope: 'search' | 'proxy';
  /** Sends a request, which is well formed or not. */
  readonly send: (headers: Record<string, string>, isWrong: boolean) => Promise<Answer>;
}

const tool = (headers: Record<string, string>, name: string, args: object) =>
  sb.post(
    '/mcp',
    { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: args } },
    headers,
  );
const WRONG_TIMEOUT = { 'switchboard-timeout-ms': 'soon' };

const FACES: Readonly<Record<string, Face>> = {
  'POST /v1/search': {
    scope: 'search',
    send: (headers, isWrong) => sb.post('/v1/search', { query: isWrong ? '' : 'x' }, headers),
  },
  'POST /v1/mcp/tools/list': {
    scope: 'proxy',
    send: (headers, isWrong) => sb.post('/v1/mcp/tools/list', { server_id: isWrong ? '' : 'v2' }, headers),
  },
  'the time-out of POST /v1/mcp/tools/list': {
    scope: 'proxy',
    send: (headers, isWrong) =>
      sb.post('/v1/mcp/tools/list', { server_id: 'v2' }, { ...headers, ...(isWrong ? WRONG_TIMEOUT : {}) }),
  },
  'search_servers of /mcp': {
    scope: 'search',
    send: (headers, isWrong) => tool(headers, 'search_servers', { query: isWrong ? '' : 'x' }),
  },
  'call_remote_tool of /mcp': {
    scope: 'proxy',
    send: (headers, isWrong) =>
      tool(headers, 'call_remote_tool', {
        server_id: isWrong ? '' : 'v2',
        tool_name: 'echo',
        arguments: { message: 'x' },
      }),
  },
  '/mcp/{server_id}': {
    scope: 'proxy',
    send: (headers, isWrong) =>
      sb.post(
        '/mcp/v2',
        { jsonrpc: '2.0', id: 1, method: 'tools/list', params: {} },
        {
          ...headers,
          accept: 'application/json, text/event-stream',
          ...(isWrong ? WRONG_TIMEOUT : {}),
        },
      ),
  },
};

/** Reads the code of a refusal from problem details, a JSON-RPC error or a tool's text. */
function codeOf({ text }: Answer): string | undefined {
  const json = JSON.parse(/^data: (\{.*)$/m.exec(text)?.[1] ?? text);
  const words = json.result?.isError ? String(json.result.content[0].text) : '';
  return json.code ?? json.error?.data?.reason ?? /\(([a-z]\w+)[,)]/.exec(words)?.[1];
}

/** Makes a key, and the headers of its requests, which fail these checks as far as these are not about the input. */
async function failing({ scope, send }: Face, failed: readonly Check[]) {
  const { id, key } = (
    await sb.admin.request('POST', '/keys', {
      name: 'test',
      monthly_quota: { calls: 1, searches: 1 },
      scopes: failed.includes('scope') ? [scope === 'search' ? 'proxy' : 'search'] : [scope],
    })
  ).json;
  // A malformed request spends a call and no quota.
  if (failed.includes('quota') && !failed.includes('scope')) await send({ 'x-api-key': key }, false);
  if (failed.includes('rate') && !failed.includes('scope'))
    for (let call = 0; call < CALLS; call++) await send({ 'x-api-key': key }, true);
  const headers: Record<string, string> = {
    'x-api-key': failed.includes('key') ? `${key}x` : key,
    ...(failed.includes('user') ? forRevokedUser : {}),
  };
  return { id, headers };
}

const usedBy = async (id: string) => {
  const { keys } = (await sb.admin.request('GET', '/keys')).json;
  return keys.find((one: { id: string }) => one.id === id).used_this_month;
};

const PAIRS = ORDER.flatMap((first, at) =>
  ORDER.slice(at + 1).map((second): [Check, Check] => [first, second]),
);

describe.each(Object.entries(FACES))('%s', (_name, face) => {
  it.each(PAIRS)(
    'refuses what fails %s and %s for the first of them [access.order]',
    async (first, second) => {
      const failed = [first, second];
      const { id, headers } = await failing(face, failed);
      const before = await usedBy(id);
      expect(codeOf(await face.send(headers, failed.includes('input')))).toBe(CHECKS[first]);
      expect(await usedBy(id)).toEqual(before);
    },
  );

  it.each(ORDER)('refuses a request that fails only %s [access.order]', async check => {
    const { headers } = await failing(face, [check]);
    expect(codeOf(await face.send(headers, check === 'input'))).toBe(CHECKS[check]);
  });

  it('charges the budget of a class for nothing that its key may not do [access.order]', async () => {
    const { headers } = await failing(face, ['scope']);
    expect((await face.send(headers, false)).headers.get('ratelimit')).toBeNull();
  });
});
