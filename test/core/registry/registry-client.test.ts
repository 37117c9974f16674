import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createGuardedFetch } from '../../../src/platform/outbound/fetch.ts';
import { Guard } from '../../../src/platform/outbound/guard.ts';
import { pagesOf, type ClientLimits } from '../../../src/core/registry/client.ts';
import {
  listed,
  sendJson,
  startRegistry,
  type RegistryFault,
  type RegistryServer,
} from '../../support/registry.ts';

const MAX_PAGE_BYTES = 100_000;

let registry: RegistryServer;
let waits: number[];
beforeEach(async () => {
  waits = [];
  registry = await startRegistry(['a', 'b', 'c'].map(letter => listed(`x.y/${letter}`)));
});
afterEach(() => registry[Symbol.asyncDispose]());

async function read({
  allowPrivateNetwork = true,
  pageMs,
  signal = new AbortController().signal,
  ...limits
}: Partial<ClientLimits> & { allowPrivateNetwork?: boolean; pageMs?: number; signal?: AbortSignal } = {}) {
  const guard = new Guard({ allowPrivateNetwork, connectTimeoutMs: 2_000 });
  const { fetch, close } = createGuardedFetch(guard, MAX_PAGE_BYTES, pageMs);
  const items: unknown[] = [];
  try {
    const options = {
      fetch,
      key: 'a-key',
      signal,
      limits,
      wait: (ms: number) => Promise.resolve(void waits.push(ms)),
    };
    for await (const page of pagesOf({ source: registry.url }, options)) items.push(...page);
    return items;
  } finally {
    await close();
  }
}

const answer =
  (status: number, body: unknown, headers?: Record<string, string>): RegistryFault =>
  response =>
    sendJson(response, status, body, headers);

/** The next few requests only. */
const times = (count: number, fault: RegistryFault): RegistryFault => {
  let left = count;
  return (response, good, url) => (left-- > 0 ? fault(response, good, url) : good());
};

const failsWith = async (code: string, text: RegExp, limits = {}) => {
  const error = await read(limits).catch((thrown: unknown) => thrown);
  expect(error).toMatchObject({ code, message: expect.stringMatching(text) });
  expect((error as Error).message).toMatch(/^The registry .*Nothing was changed\.$/);
};

describe('a listing', () => {
  it('is read page by page, with the key as a Bearer token', async () => {
    expect(await read()).toHaveLength(3);
    expect(registry.requests.map(({ url }) => url.searchParams.get('cursor'))).toEqual([null, '2']);
    expect(new Set(registry.requests.map(({ authorization }) => authorization))).toEqual(
      new Set(['Bearer a-key']),
    );
  });

  it.each([[null], ['']])('ends where nextCursor is %j', async nextCursor => {
    registry.fault = answer(200, { servers: [1], metadata: { count: 1, nextCursor } });
    expect(await read()).toEqual([1]);
    registry.fault = answer(200, { servers: null });
    expect(await read()).toEqual([]);
  });

  it('asks again after a failure that may pass, as late as the registry wants, within a bound', async () => {
    registry.fault = times(1, answer(503, {}, { 'retry-after': '7' }));
    expect(await read()).toHaveLength(3);
    registry.fault = times(2, response => response.destroy());
    expect(await read()).toHaveLength(3);
    registry.fault = times(1, answer(429, {}, { 'retry-after': '99999' }));
    expect(await read({ maxWaitMs: 1_234 })).toHaveLength(3);
    expect(waits).toEqual([7_000, 2_000, 4_000, 1_234]);
  });

  it('fails after three tries', async () => {
    registry.fault = answer(500, 'out of \u001b[31morder');
    await failsWith('upstream_http_error', /answered 500: out of order/);
    expect(registry.requests).toHaveLength(3);
  });
});

describe('a listing fails at once', () => {
  it.each([
    ['a refusal', answer(401, {}), 'upstream_unauthorized', /returned HTTP 401.*SWITCHBOARD_REGISTRY_KEYS/],
    ['a wrong address', answer(404, { error: 'no' }), 'upstream_http_error', /answered 404/],
    [
      'a redirect',
      answer(302, {}, { location: 'http://169.254.169.254/' }),
      'upstream_http_error',
      /redirected to http:\/\/169\.254\.169\.254\//,
    ],
    ['a web page', answer(200, '<html>'), 'upstream_protocol', /JSON/],
    ['other JSON', answer(200, { items: [] }), 'upstream_protocol', /page of servers \(servers: /],
    [
      'half a character',
      answer(200, Buffer.from([0x22, 0xc3, 0x22]) as never),
      'upstream_protocol',
      /page of servers/,
    ],
    [
      'a page that is too large',
      answer(200, { pad: 'x'.repeat(MAX_PAGE_BYTES) }),
      'upstream_too_large',
      /too large/,
    ],
    [
      'deep nesting',
      answer(200, `{"servers":${'['.repeat(20_000)}${']'.repeat(20_000)}}`),
      'upstream_too_large',
      /nested too deeply/,
    ],
  ] as const)('with %s', async (_name, fault, code, text) => {
    registry.fault = fault;
    await failsWith(code, text);
    expect(registry.requests).toHaveLength(1);
  });

  it('with a cursor that comes twice', async () => {
    registry.fault = answer(200, { servers: [], metadata: { nextCursor: 'again' } });
    await failsWith('upstream_protocol', /same cursor/);
  });

  it('with pages, or entries, without end', async () => {
    let page = 0;
    registry.fault = response =>
      sendJson(response, 200, { servers: [1, 2], metadata: { nextCursor: String(page++) } });
    await failsWith('upstream_too_large', /more than 3 pages/, { maxPages: 3 });
    await failsWith('upstream_too_large', /more than 5 entries/, { maxEntries: 5 });
  });

  it('when it takes longer than a whole listing may', async () => {
    registry.fault = () => {};
    await failsWith('upstream_timeout', /did not respond in time/, { totalMs: 50 });
  });

  it('when a page begins and does not end, and is asked for no more than three times', async () => {
    registry.fault = response => {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.write('{"servers":[');
    };
    await failsWith('upstream_timeout', /did not respond in time/, { pageMs: 50 });
    expect(registry.requests.length).toBeLessThanOrEqual(3);
  });

  it('with the reason of whoever ends it, while a page or a next try is waited for', async () => {
    const gone = new Error('gone');
    for (const fault of [() => {}, answer(503, {}, { 'retry-after': '7' })]) {
      const ending = new AbortController();
      registry.fault = (...request) => {
        fault(...request);
        ending.abort(gone);
      };
      await expect(read({ signal: ending.signal })).rejects.toBe(gone);
    }
  });

  it('at an address that is not public', async () => {
    await failsWith('upstream_blocked', /must be public, and https/, { allowPrivateNetwork: false });
    expect(registry.requests).toHaveLength(0);
  });
});
