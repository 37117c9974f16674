import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { openTestDatabase } from '../support/database.ts';
import {
  cut,
  hang,
  isProbe,
  refuse,
  startEmbeddingsServer,
  twisted,
  type EmbeddingsServer,
  type Fault,
} from '../support/embeddings-server.ts';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';

const KEY = 'sk-a-secret-that-must-not-be-seen';
const catalogue = [
  {
    id: 'weather',
    remote_url: 'https://weather.example/mcp',
    description: 'Weather forecasts.',
    tools: [{ name: 'get_rain', description: 'Rain of a city.', input_schema: { type: 'object' } }],
  },
  { id: 'mail', remote_url: 'https://mail.example/mcp', description: 'Reads and sends letters.' },
];
const LATER = JSON.stringify({
  id: 'stamps',
  name: 'stamps',
  description: 'Postage stamps for parcels.',
  remote_url: 'https://stamps.example/mcp',
});

let api: EmbeddingsServer;
beforeEach(async () => void (api = await startEmbeddingsServer()));
afterEach(() => api[Symbol.asyncDispose]());

/** The limits are short where something is to be waited for in vain, and long where something comes. */
const start = (options: Parameters<typeof startTestSwitchboard>[0] = {}) =>
  startTestSwitchboard({
    catalogue,
    env: { OPENAI_API_KEY: KEY, OPENAI_BASE_URL: api.baseUrl, EMBEDDING_MODEL: 'a-model' },
    embeddingLimits: {
      queryWaitMs: 60_000,
      firstBackOffMs: 1,
      maxBackOffMs: 2,
      firstTrialMs: 1,
      maxTrialMs: 20,
    },
    ...options,
  });

const search = async (sb: RunningSwitchboard, query: string) => {
  const { status, json } = await sb.post('/v1/search', { query });
  expect(status).toBe(200);
  return json.servers as { id: string; scores: { semantic: number } }[];
};
const best = async (sb: RunningSwitchboard, query: string) => (await search(sb, query))[0];
const degraded = async (sb: RunningSwitchboard) => (await sb.get('/readyz')).json.degraded as string[];
const gauge = async (sb: RunningSwitchboard, part: string) =>
  new RegExp(`^switchboard_degraded\\{part="${part}"\\} (\\d)$`, 'm').exec(
    (await sb.get('/metrics')).text,
  )?.[1];

const untilWell = async (sb: RunningSwitchboard) => {
  await vi.waitFor(async () => expect(await degraded(sb)).toEqual([]), { timeout: 60_000, interval: 20 });
  expect([await gauge(sb, 'embedder'), await gauge(sb, 'index')]).toEqual(['0', '0']);
};

describe('an embedding API', () => {
  it('gives the vectors of catalogue and queries', async () => {
    await using sb = await start();
    expect(await degraded(sb)).toEqual([]);
    expect(await best(sb, 'rain of a city')).toMatchObject({ id: 'weather' });
    expect((await best(sb, 'rain of a city'))?.scores.semantic).toBeGreaterThan(0.5);
    expect(api.requests.every(({ authorization }) => authorization === `Bearer ${KEY}`)).toBe(true);
    expect(sb.logged()).not.toContain(KEY);
    expect(sb.logged()).toMatch(/openai:127[^ ]*:a-model:384/);
  });

  it('needs no key where the server wants none', async () => {
    await using sb = await start({ env: { OPENAI_BASE_URL: api.baseUrl } });
    expect(await degraded(sb)).toEqual([]);
    expect(api.requests[0]).toMatchObject({ authorization: undefined, model: 'text-embedding-3-small' });
  });

  it('is paid once for a text: not again after a restart', async () => {
    await using stack = new AsyncDisposableStack();
    const database = stack.adopt(await openTestDatabase(), ({ close }) => close());
    const shared = () => Promise.resolve({ ...database, close: () => Promise.resolve() });
    const env = {
      OPENAI_BASE_URL: api.baseUrl,
      SWITCHBOARD_KEKS: `k1:${Buffer.alloc(32, 7).toString('base64')}`,
    };
    const first = await start({ env, database: shared });
    await first[Symbol.asyncDispose]();
    expect(first.logged()).toMatch(/"texts":4,"tokens":\d+,"msg":"embedding API used"/);
    expect(api.embedded.length).toBeGreaterThanOrEqual(3);
    api.embedded.length = 0;
    await using sb = await start({ env, database: shared });
    expect((await best(sb, 'rain of a city'))?.scores.semantic).toBeGreaterThan(0.5);
    expect(api.embedded).toEqual(['rain of a city']);
  });
});

describe('while the embedding API', () => {
  it.each<[string, Fault, RegExp]>([
    ['hangs', hang, /did not respond in time/],
    ['is down', refuse(503), /fails/],
    ['breaks connections', cut, /cannot be reached/],
    ['refuses the key', refuse(401, KEY), /rejected the key/],
    ['answers nonsense', twisted(() => ({ data: [{ embedding: [0, 0] }] })), /no valid list of vectors/],
  ])(
    '%s, searches are answered by keyword; it is named, and no restart is needed',
    async (_, fault, reason) => {
      // No answer comes from a hanging API however long one waits: what answers has not waited for it.
      await using sb = await start({
        embeddingLimits: {
          queryWaitMs: 200,
          trialLimitMs: 200,
          firstTrialMs: 1,
          maxTrialMs: 20,
          firstBackOffMs: 1,
        },
      });
      api.fault = fault;
      for (const query of ['rain', 'rain city', 'forecasts of rain', 'the weather'])
        expect((await search(sb, query)).map(({ id, scores }) => [id, scores.semantic])).toEqual([
          ['weather', 0],
        ]);
      expect(await degraded(sb)).toEqual([expect.stringMatching(reason)]);
      expect(await gauge(sb, 'embedder')).toBe('1');
      api.fault = undefined;
      await untilWell(sb);
      await vi.waitFor(async () => expect((await best(sb, 'rain'))?.scores.semantic).toBeGreaterThan(0.2), {
        timeout: 60_000,
        interval: 20,
      });
      expect(sb.logged()).toContain('the embedding API works again');
      expect(sb.logged()).not.toContain(KEY);
    },
  );

  it('is down, an import succeeds: found by keyword at once, by meaning once the API is back', async () => {
    await using sb = await start();
    api.fault = refuse(500);
    const imported = await sb.admin.request('POST', '/catalogue/import', LATER);
    expect(imported.status).toBe(200);
    expect(await best(sb, 'postage')).toMatchObject({ id: 'stamps', scores: { semantic: 0 } });
    expect(await gauge(sb, 'index')).toBe('1');
    api.fault = undefined;
    await untilWell(sb);
    expect((await best(sb, 'postage stamps for parcels'))?.scores.semantic).toBeGreaterThan(0.5);
    // Neither lost nor paid again.
    expect((await best(sb, 'rain of a city'))?.scores.semantic).toBeGreaterThan(0.5);
    expect(api.embedded.filter(text => text.includes('Rain of a city'))).toHaveLength(1);
  });

  it('has never answered, the start succeeds, and vectors come when it does', async () => {
    api.fault = refuse(500);
    await using sb = await start();
    const ready = await sb.get('/readyz');
    expect(ready.status).toBe(200);
    expect(ready.json.degraded).toEqual([expect.stringMatching(/searching by keyword only/)]);
    expect(await best(sb, 'rain of a city')).toMatchObject({ id: 'weather', scores: { semantic: 0 } });
    expect((await sb.admin.request('POST', '/catalogue/import', LATER)).status).toBe(200);
    api.fault = undefined;
    await untilWell(sb);
    expect((await best(sb, 'rain of a city'))?.scores.semantic).toBeGreaterThan(0.5);
    expect((await best(sb, 'postage stamps'))?.scores.semantic).toBeGreaterThan(0.5);
    expect(api.requests.filter(request => !isProbe(request)).flatMap(({ input }) => input)).toContain(
      'postage stamps',
    );
  });

  it('comes back with a model of other dimensions, the vectors are made anew and never mixed', async () => {
    await using sb = await start();
    api.fault = refuse(500);
    await search(sb, 'rain');
    api.model = 2;
    api.dimensions = 200;
    api.fault = undefined;
    await untilWell(sb);
    await vi.waitFor(
      async () => expect((await best(sb, 'rain of a city'))?.scores.semantic).toBeGreaterThan(0.5),
      60_000,
    );
    expect(sb.logged()).toMatch(/openai:127[^ ]*:a-model:200/);
  });
});

describe('catalogue reindex', () => {
  it('embeds all texts again, after which another model of the same dimensions is in use', async () => {
    await using sb = await start();
    api.model = 2;
    // Nobody notices by itself.
    expect((await best(sb, 'rain of the city'))?.scores.semantic).toBeLessThan(0.5);
    api.embedded.length = 0;
    const { status, json } = await sb.admin.request('POST', '/catalogue/reindex', {});
    expect([status, json]).toEqual([200, { servers: 2 }]);
    expect(api.embedded.filter(text => text.includes('Rain of a city'))).toHaveLength(1);
    expect((await best(sb, 'rain of a city'))?.scores.semantic).toBeGreaterThan(0.5);
  });

  it('deletes nothing while the API is down', async () => {
    await using sb = await start();
    api.fault = refuse(503, 'out of order');
    const { status, json } = await sb.admin.request('POST', '/catalogue/reindex', {});
    expect([status, json.code]).toEqual([503, 'unavailable']);
    expect(json.detail).toMatch(/out of order/);
    api.fault = undefined;
    api.embedded.length = 0;
    await untilWell(sb);
    expect((await best(sb, 'rain of a city'))?.scores.semantic).toBeGreaterThan(0.5);
    expect(api.embedded).toEqual(['rain of a city']);
  });
});

describe('GET /metrics', () => {
  it('needs no key, is in the text format, and names no tenant, key or query', async () => {
    await using sb = await start();
    await search(sb, 'rain of a city');
    await search(sb, 'rain of a city');
    await search(sb, 'zzz');
    const { status, headers, text } = await sb.get('/metrics', { 'x-api-key': '' });
    expect(status).toBe(200);
    expect(headers.get('content-type')).toMatch(/^text\/plain; version=0\.0\.4/);
    expect(text).toContain('switchboard_search_duration_seconds_count{cache="hit"} 1');
    expect(text).toContain('switchboard_search_duration_seconds_count{cache="miss"} 2');
    expect(text).toMatch(/^switchboard_search_empty_total \d/m);
    expect(text).toContain('switchboard_embedding_query_cache_total{cache="miss"} 2');
    expect(text).toMatch(/^switchboard_embedding_tokens_total\{lane="query"\} [1-9]/m);
    expect(text).not.toMatch(/rain|local|sk-/);
    const own =
      text.match(/^switchboard_(search_duration|search_empty|embedding|degraded).*/gm)?.join('\n') ?? '';
    const labels = new Set(Array.from(own.matchAll(/[{,](\w+)="/g), ([, name]) => name));
    expect(labels).toEqual(new Set(['cache', 'lane', 'le', 'outcome', 'part']));
  });
});
