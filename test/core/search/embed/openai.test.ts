import { describe, expect, it, vi } from 'vitest';
import {
  cut,
  hang,
  isProbe,
  refuse,
  sendJson,
  times,
  twisted,
  type Fault,
} from '../../../support/embeddings-server.ts';
import { failing, KEY, NO_TRIAL, useEmbeddingApi, working } from './openai.harness.ts';

const used = useEmbeddingApi();
const { connect, connected, vector } = used;
const idOf = (dimensions: number) => `openai:${new URL(used.server.baseUrl).host}:a-model:${dimensions}`;

describe('the embedder of an embedding API', () => {
  it('gives the vectors of texts in their order, asked for in base64, with the key and the model', async () => {
    const { embedder } = await connected();
    const [rain, mail] = await embedder.embed(['rain', 'mail'], 'query');
    expect(rain).toEqual(vector('rain'));
    expect(mail).toEqual(vector('mail'));
    expect(embedder).toMatchObject({ id: idOf(384), dimensions: 384 });
    expect(used.server.requests).toEqual([
      {
        path: '/v1/embeddings',
        authorization: `Bearer ${KEY}`,
        model: 'a-model',
        input: ['rain', 'mail'],
        encoding: 'base64',
      },
    ]);
  });

  it('asks a server that refuses base64 for numbers', async () => {
    const fault: Fault = (response, request, good) =>
      request.encoding === undefined
        ? sendJson(response, 200, good())
        : refuse(400, 'encoding_format is not known')(response, request, good);
    used.server.fault = fault;
    const { embedder } = await connected(fault);
    expect((await embedder.embed(['rain'], 'query'))[0]).toEqual(vector('rain'));
    expect(used.server.requests.map(({ encoding }) => encoding)).toEqual([undefined]);
  });

  it('fills up to a multiple of 16 dimensions with zeros', async () => {
    used.server.dimensions = 100;
    const { embedder } = await connected();
    expect(embedder).toMatchObject({ id: idOf(100), dimensions: 112 });
    const [padded = new Float32Array()] = await embedder.embed(['rain'], 'index');
    expect(padded).toHaveLength(112);
    expect(Math.hypot(...padded)).toBeCloseTo(1, 6);
    expect([...padded.subarray(100)]).toEqual(Array(12).fill(0));
  });

  it('keeps a query address of the base URL', async () => {
    await connect({ baseUrl: `${used.server.baseUrl}/?api-version=1` });
    expect(used.server.requests[0]?.path).toBe('/v1/embeddings?api-version=1');
  });
});

describe('texts of an import', () => {
  const many = Array.from({ length: 200 }, (_, at) => `text ${at}`);

  it('go out a bounded number at a time, in a bounded number of requests', async () => {
    const held: (() => void)[] = [];
    const { embedder } = await connected((response, _request, good) => {
      held.push(() => sendJson(response, 200, good()));
    });
    const embedded = embedder.embed(many, 'index');
    await vi.waitFor(() => expect(held).toHaveLength(4), 60_000);
    // The fifth waits for a free turn, which a query need not.
    const query = embedder.embed(['overtaking'], 'query');
    await vi.waitFor(() => expect(held).toHaveLength(5), 60_000);
    expect(used.server.requests.at(-1)?.input).toEqual(['overtaking']);
    held.pop()?.();
    expect(await query).toHaveLength(1);
    used.server.fault = undefined;
    for (const answer of held) answer();
    expect(await embedded).toEqual(many.map(vector));
    expect(Math.max(...used.server.requests.map(({ input }) => input.length))).toBe(64);
  });

  it.each<[string, Fault]>([
    ['HTTP 500', refuse(500)],
    ['HTTP 503 with Retry-After', refuse(503, 'busy', { 'retry-after': '0' })],
    ['HTTP 429', refuse(429, 'slow down', { 'retry-after-ms': '3' })],
    ['a cut connection', cut],
    ['broken JSON', (response, _, good) => sendJson(response, 200, JSON.stringify(good()).slice(0, -9))],
    ['too few vectors', twisted(({ data }) => ({ data: data.slice(1) }))],
    [
      'NaN',
      twisted(({ data: [one, ...others] }) => ({ data: [{ ...one, embedding: [Number.NaN] }, ...others] })),
    ],
    [
      'a wrong dimension',
      twisted(({ data }) => ({ data: data.map((one: object) => ({ ...one, embedding: [1] })) })),
    ],
  ])('are sent again after %s', async (_, fault) => {
    const { embedder } = await connected();
    used.server.fault = times(used.server, 2, fault);
    expect(await embedder.embed(['rain', 'mail'], 'index')).toEqual(['rain', 'mail'].map(vector));
    expect(used.server.requests).toHaveLength(3);
    expect(embedder.degraded).toBeUndefined();
  });

  it('wait for as long as Retry-After says', async () => {
    const { embedder } = await connected(undefined, { maxRetryAfterMs: 500 });
    used.server.fault = times(used.server, 1, refuse(429, 'slow down', { 'retry-after-ms': '400' }));
    const before = performance.now();
    await embedder.embed(['rain'], 'index');
    expect(performance.now() - before).toBeGreaterThanOrEqual(400);
  });

  it('all wait for as long as Retry-After says', async () => {
    const { embedder } = await connected(undefined, { bulkTexts: 1, bulkRequests: 1 });
    const cameAtMs: number[] = [];
    used.server.fault = (response, request, good) => {
      if (cameAtMs.push(performance.now()) > 1) return sendJson(response, 200, good());
      return refuse(429, 'slow down', { 'retry-after-ms': '300' })(response, request, good);
    };
    expect(await embedder.embed(['rain', 'mail'], 'index')).toEqual(['rain', 'mail'].map(vector));
    const [first = 0, second = 0] = cameAtMs;
    expect(second - first).toBeGreaterThanOrEqual(290);
  });

  it.each<[string, Fault, RegExp]>([
    ['a refused key', refuse(401, `Incorrect API key: ${KEY}`), /rejected the key \(check OPENAI_API_KEY\)/],
    ['an unknown model', refuse(404, 'no model a-model'), /check EMBEDDING_MODEL/],
    ['a used-up quota', refuse(429, 'pay', {}, 'insufficient_quota'), /quota is used up/],
    ['a wait that is too long', refuse(429, 'later', { 'retry-after': '3600' }), /rate limit/],
    [
      'a redirection',
      refuse(302, 'there', { location: 'http://elsewhere.example/' }),
      /unexpected HTTP status/,
    ],
  ])('are not sent again after %s', async (_, fault, named) => {
    const { embedder } = await connected(fault, NO_TRIAL);
    expect(await embedder.embed(['rain'], 'index')).toEqual([new Float32Array(384)]);
    expect(embedder.missed).toBe(1);
    expect(used.server.requests).toHaveLength(1);
    expect(embedder.degraded).toMatch(named);
  });

  it('get zeros and are remembered when the API keeps failing, and the next ones do not wait for it', async () => {
    const { embedder } = await connected(refuse(500), NO_TRIAL);
    expect(await embedder.embed(['rain'], 'index')).toEqual([new Float32Array(384)]);
    expect(used.server.requests).toHaveLength(4);
    await embedder.embed(['mail'], 'index');
    expect(used.server.requests).toHaveLength(4);
    expect(embedder.missed).toBe(2);
    expect(embedder.degraded).toMatch(/the embedding API fails/);
  });

  it('that the API refuses do not hold up the others, and are cut shorter where that helps', async () => {
    const fault: Fault = (response, request, good) =>
      request.input.some(text => text.length > 1_000 || text === 'bad')
        ? refuse(400, 'cannot take it')(response, request, good)
        : sendJson(response, 200, good());
    const { embedder, messages } = await connected(fault);
    const long = 'word '.repeat(700);
    const vectors = await embedder.embed(['rain', 'bad', long, 'mail'], 'index');
    expect(vectors[0]).toEqual(vector('rain'));
    expect(vectors[1]).toEqual(new Float32Array(384));
    expect(vectors[2]).toEqual(vector(long.slice(0, 875)));
    expect(vectors[3]).toEqual(vector('mail'));
    expect(embedder.missed).toBe(0);
    expect(embedder.degraded).toBeUndefined();
    expect(messages()).toEqual([expect.stringMatching(/rejected/)]);
  });

  it('that are all refused stop nothing', async () => {
    const { embedder } = await connected((response, request, good) =>
      request.input.some(text => text.startsWith('bad'))
        ? refuse(400, 'cannot take it')(response, request, good)
        : sendJson(response, 200, good()),
    );
    const zeros = new Float32Array(384);
    expect(await embedder.embed(['bad 1', 'bad 2'], 'index')).toEqual([zeros, zeros]);
    expect(embedder).toMatchObject({ missed: 0, degraded: undefined, isAsked: true });
  });

  it('are not sent one by one to an API that refuses any text', async () => {
    const { embedder } = await connected(refuse(400, 'out of order'), NO_TRIAL);
    await embedder.embed(many.slice(0, 64), 'index');
    expect(embedder).toMatchObject({ missed: 64, isAsked: false });
    // The texts, and the trial with base64 and without.
    expect(used.server.requests).toHaveLength(3);
  });

  it('are at most 100,000 characters a request', async () => {
    const { embedder } = await connected();
    const long = Array.from({ length: 40 }, (_, at) => `text ${at}`.padEnd(6_000, ' word'));
    expect(await embedder.embed(long, 'index')).toEqual(long.map(vector));
    const sizes = used.server.requests.map(({ input }) => input.length);
    expect(sizes.toSorted((one, other) => one - other)).toEqual([8, 16, 16]);
  });

  it('come in smaller requests after a server has taken only so many', async () => {
    const fault: Fault = (response, request, good) =>
      request.input.length > 40
        ? refuse(422, 'batch too large')(response, request, good)
        : sendJson(response, 200, good());
    const { embedder } = await connected(fault);
    await embedder.embed(many.slice(0, 64), 'index');
    used.server.requests.length = 0;
    await embedder.embed(many.slice(64, 128), 'index');
    expect(used.server.requests.map(({ input }) => input.length)).toEqual([32, 32]);
  });
});

describe('a query', () => {
  it('is embedded once, however many ask and however often', async () => {
    const { embedder, metrics } = await connected();
    await Promise.all([
      embedder.embed(['rain', 'mail'], 'query'),
      embedder.embed(['rain'], 'query'),
      embedder.embed(['mail', 'mail'], 'query'),
    ]);
    await embedder.embed(['rain'], 'query');
    // The sentences of one query are one request.
    expect(used.server.requests.map(({ input }) => input)).toEqual([['rain', 'mail']]);
    expect(await metrics.text()).toContain('switchboard_embedding_query_cache_total{cache="hit"} 4');
  });

  it('fails at its time limit, and what comes later serves the next one', async () => {
    let answerLate = () => {};
    const { embedder } = await connected(undefined, { queryWaitMs: 20, ...NO_TRIAL });
    used.server.fault = (response, _request, good) => (answerLate = () => sendJson(response, 200, good()));
    const asked = used.server.next();
    expect(await failing(embedder.embed(['rain'], 'query'))).toMatchObject({ kind: 'timeout' });
    await asked;
    expect(embedder.degraded).toMatch(/did not respond in time: searching by keyword only/);
    answerLate();
    await vi.waitFor(
      async () => expect(await embedder.embed(['rain'], 'query')).toEqual([vector('rain')]),
      60_000,
    );
  });

  it('no longer waits after three have failed; a trial in the background finds out when the API is back', async () => {
    const { embedder } = await connected(hang, { queryWaitMs: 20, ...NO_TRIAL });
    for (const text of ['a', 'b', 'c']) {
      // The time limit may be over before the request has come.
      const asked = used.server.next();
      await failing(embedder.embed([text], 'query'));
      await asked;
    }
    expect(used.server.requests).toHaveLength(3);
    expect(await failing(embedder.embed(['d'], 'query'))).toMatchObject({ kind: 'held_back' });
    expect(used.server.requests).toHaveLength(3);
  });

  it('that is served from memory does not count as a response of the API', async () => {
    const { embedder } = await connected(undefined, NO_TRIAL);
    await embedder.embed(['known'], 'query');
    used.server.fault = refuse(500);
    for (const text of ['a', 'b', 'c']) {
      await failing(embedder.embed([text], 'query'));
      await embedder.embed(['known'], 'query');
    }
    expect(await failing(embedder.embed(['d'], 'query'))).toMatchObject({ kind: 'held_back' });
  });

  it('that fails late takes nothing from a later one with the same text', async () => {
    let failLate = () => {};
    const { embedder } = await connected((...asked) => (failLate = () => refuse(500)(...asked)), NO_TRIAL);
    const asked = used.server.next();
    const early = failing(embedder.embed(['rain'], 'query'));
    await asked;
    embedder.forgetQueries();
    used.server.fault = undefined;
    await embedder.embed(['rain'], 'query');
    failLate();
    await early;
    await embedder.embed(['rain'], 'query');
    expect(used.server.requests).toHaveLength(2);
  });

  it('is tried again once where the connection broke', async () => {
    const { embedder } = await connected();
    used.server.fault = times(used.server, 1, response => response.destroy());
    expect(await embedder.embed(['rain'], 'query')).toEqual([vector('rain')]);
  });
});

describe('recovery', () => {
  it.each<[string, Fault]>([
    ['down', refuse(500)],
    ['cut', cut],
    ['wrong', twisted(() => ({ data: [] }))],
  ])('comes by itself after the API was %s', async (_, fault) => {
    const { embedder, messages } = await connected(fault);
    await embedder.embed(['rain'], 'index');
    await failing(embedder.embed(['rain'], 'query'));
    expect(embedder.degraded).toMatch(/searching by keyword only/);
    const well = working(embedder);
    used.server.fault = undefined;
    await well;
    expect(embedder.degraded).toBeUndefined();
    expect(await embedder.embed(['rain'], 'query')).toEqual([vector('rain')]);
    expect(messages().length).toBeGreaterThan(0);
  });

  it('goes on where an import fails during a trial that succeeds', async () => {
    let answerTrial = () => {};
    const { embedder } = await connected((response, request, good) => {
      if (isProbe(request)) answerTrial = () => sendJson(response, 200, good());
      else refuse(401)(response, request, good);
    });
    const trial = used.server.next(isProbe);
    await failing(embedder.embed(['rain'], 'query'));
    await trial;
    await embedder.embed(['rain'], 'index');
    expect(embedder.isAsked).toBe(false);
    used.server.fault = undefined;
    answerTrial();
    await vi.waitFor(() => expect(embedder).toMatchObject({ isAsked: true, degraded: undefined }), 60_000);
  });

  it('of queries waits for a quick trial, whereas imports go on with a slow API', async () => {
    const slow: Fault = (response, _, good) => setTimeout(() => sendJson(response, 200, good()), 150);
    const { embedder } = await connected(slow, { queryWaitMs: 50 });
    for (const text of ['a', 'b', 'c']) await failing(embedder.embed([text], 'query'));
    await working(embedder);
    expect(await failing(embedder.embed(['d'], 'query'))).toMatchObject({ kind: 'held_back' });
    expect(embedder.degraded).toMatch(/did not respond in time: searching by keyword only/);
    expect(await embedder.embed(['rain'], 'index')).toEqual([vector('rain')]);
    used.server.fault = undefined;
    await vi.waitFor(() => expect(embedder.degraded).toBeUndefined(), 60_000);
  });
});

describe('the dimensions', () => {
  it('are known from the last time while the API is down at the start', async () => {
    const { embedder } = await connect();
    used.server.fault = refuse(500);
    expect((await connect({ limits: NO_TRIAL })).embedder).toMatchObject({
      id: embedder.id,
      dimensions: 384,
    });
    const unknown = await connect({ limits: NO_TRIAL, model: 'another' });
    expect(unknown.embedder.id).toMatch(/another:unknown$/);
  });

  it('are taken from the first answer where it comes late, and again where they have changed', async () => {
    used.server.fault = refuse(500);
    const { embedder } = await connect();
    expect(await embedder.embed(['rain'], 'index')).toEqual([new Float32Array(embedder.dimensions)]);
    const { missed } = embedder;
    used.server.fault = undefined;
    await working(embedder);
    expect(embedder).toMatchObject({ id: idOf(384), dimensions: 384 });
    expect(embedder.missed).toBeGreaterThan(missed);
    used.server.dimensions = 100;
    expect(await failing(embedder.embed(['rain'], 'query'))).toMatchObject({ kind: 'invalid_answer' });
    await working(embedder);
    expect(embedder.id).toBe(idOf(100));
    expect((await embedder.embed(['rain'], 'query'))[0]?.subarray(0, 100)).toEqual(vector('rain'));
  });
});

describe('what is written down', () => {
  it('counts requests, texts and tokens by who asked, and failures by kind', async () => {
    const { embedder, metrics } = await connected();
    await embedder.embed(['rain', 'mail'], 'index');
    used.server.fault = refuse(401);
    await failing(embedder.embed(['snow'], 'query'));
    const text = await metrics.text();
    expect(text).toContain('switchboard_embedding_texts_total{lane="bulk"} 2');
    expect(text).toContain('switchboard_embedding_tokens_total{lane="bulk"} 2');
    expect(text).toMatch(/request_duration_seconds_count\{lane="query",outcome="unauthorized"\} 1/);
  });

  it.each<[string, Fault]>([
    ['refuses', refuse(401, `Incorrect API key provided: ${KEY}`)],
    ['quotes', refuse(500, `Bearer ${KEY} is not welcome`)],
  ])('contains no key when the API %s it', async (_, fault) => {
    const { embedder, messages } = await connected(fault, NO_TRIAL);
    const error = (await failing(embedder.embed(['rain'], 'query'))) as Error;
    expect([error.message, error.stack, embedder.degraded, ...messages()].join(' ')).not.toContain(KEY);
    expect(error.message).toMatch(/HTTP (401|500)/);
  });
});

describe('close', () => {
  it('ends what is under way, an import with an error', async () => {
    const { embedder } = await connected(hang);
    const asked = used.server.next(request => !isProbe(request));
    const bulk = failing(embedder.embed(['rain'], 'index'));
    const query = failing(embedder.embed(['rain'], 'query'));
    await asked;
    await embedder.close();
    expect(await bulk).toMatchObject({ kind: 'closed' });
    expect(await query).toMatchObject({ kind: 'closed' });
  });
});
