import { like } from 'drizzle-orm';
import { describe, expect, it, vi } from 'vitest';
import { settings } from '../../../../../src/platform/database/schema.ts';
import {
  isProbe,
  refuse,
  sendJson,
  textsOf,
  times,
  twisted,
  type Fault,
} from '../../../../support/embeddings-server.ts';
import { failing, NO_TRIAL, useEmbeddingApi, working } from './embedding-api.harness.ts';

const used = useEmbeddingApi();
const { open, connected, vector } = used;

const NOTHING = new Float32Array(384);
/** Queries are to carry the probe only when a test says so. */
const ALWAYS = { verifyEveryMs: 0 };
const inputs = () => used.server.requests.map(({ input }) => input);
const names = async () =>
  (await used.database.db.select().from(settings).where(like(settings.key, 'embedding_model_names:%'))).map(
    ({ value }) => JSON.parse(value),
  );

/** Every vector turned towards an axis, so that its cosine with what it was is about that. */
const turned = (cosine: number) =>
  twisted(answer => ({
    ...answer,
    data: answer.data.map((one: { embedding: string }) => {
      const values = Buffer.from(one.embedding, 'base64');
      const floats = new Float32Array(values.buffer.slice(values.byteOffset, values.byteOffset + 384 * 4));
      const axis = floats.indexOf(0);
      floats[axis] = Math.tan(Math.acos(cosine));
      return { ...one, embedding: [...floats] };
    }),
  }));

describe('models', () => {
  it('are told apart by their vectors: not by the address, and not by the name alone', async () => {
    const here = await open().api.connect();
    used.server.model = 2;
    const other = await open().api.connect();
    expect(other.id).toBe('openai:a-model:384:2');
    used.server.model = 1;
    const baseUrl = used.server.baseUrl.replace('127.0.0.1', 'localhost');
    const again = await open({}, { baseUrl }).api.connect();
    expect(again.id).toBe(here.id);
    expect((await open({}, { model: 'b-model' }).api.connect()).id).toBe('openai:b-model:384');
  });

  it.each([
    [0.993, 'openai:a-model:384'],
    [0.98, 'openai:a-model:384:2'],
  ])('whose vectors of one text have a cosine of %d are %s', async (cosine, id) => {
    await open().api.connect();
    used.server.fault = turned(cosine);
    expect((await open().api.connect()).id).toBe(id);
  });

  it('are known from the last time while the API is down at the start', async () => {
    used.server.model = 2;
    const { id } = await open().api.connect();
    used.server.fault = refuse(500);
    const { api } = open(NO_TRIAL);
    const embedder = await api.connect();
    expect(embedder).toMatchObject({ id, dimensions: 384 });
    expect(api.degraded).toMatch(/fails: searching by keyword only/);
  });

  it('are not changed at the first sight of another one; the old embedder then gives nothing', async () => {
    const { embedder, api } = await connected(refuse(500));
    await failing(embedder.embed(['rain'], 'query'));
    used.server.dimensions = 200;
    used.server.requests.length = 0;
    const well = working(api);
    used.server.fault = undefined;
    await well;
    expect(used.server.requests.filter(isProbe).length).toBeGreaterThanOrEqual(3);
    const found = api.embedder();
    expect(found).toMatchObject({ id: 'openai:a-model:200', dimensions: 208 });
    expect(api.gives(embedder)).toBe(false);
    used.server.requests.length = 0;
    expect(await failing(embedder.embed(['rain'], 'query'))).toMatchObject({ kind: 'held_back' });
    expect(await embedder.embed(['rain'], 'index')).toEqual([NOTHING]);
    expect(inputs()).toEqual([]);
    expect((await found.embed(['rain'], 'query'))[0]).toHaveLength(208);
  });
});

describe('another model of the same dimensions, while every request succeeds,', () => {
  const OTHER = /gives vectors of another model than before: searching by keyword only/;

  it('is noticed by the import that it answers: nothing of that answer is kept', async () => {
    const { embedder, api, messages } = await connected(undefined, NO_TRIAL);
    expect(await embedder.embed(['rain'], 'index')).toEqual([vector('rain')]);
    expect(textsOf({ input: inputs()[0] ?? [] })).toEqual(['rain']);
    expect(inputs()[0]).toHaveLength(2);
    used.server.model = 2;
    expect(await embedder.embed(['snow'], 'index')).toEqual([NOTHING]);
    expect([...embedder.missing]).toEqual(['snow']);
    expect(api.degraded).toMatch(OTHER);
    expect(messages()).toEqual([expect.stringMatching(OTHER)]);
    // Nobody is given anything until it is clear.
    used.server.model = 1;
    expect(await failing(embedder.embed(['rain'], 'query'))).toMatchObject({ kind: 'held_back' });
  });

  it('is noticed by the query that is due to look', async () => {
    const { embedder, api } = await connected(undefined, { ...NO_TRIAL, ...ALWAYS });
    expect(await embedder.embed(['rain'], 'query')).toEqual([vector('rain')]);
    used.server.model = 2;
    expect(await failing(embedder.embed(['snow'], 'query'))).toMatchObject({ kind: 'other_model' });
    // What was kept may be of either.
    expect(await failing(embedder.embed(['rain'], 'query'))).toMatchObject({ kind: 'held_back' });
    expect(api.degraded).toMatch(OTHER);
  });

  it('is looked for by no query within five minutes of the last look', async () => {
    const { embedder } = await connected();
    await embedder.embed(['rain'], 'query');
    await embedder.embed(['snow'], 'query');
    expect(inputs()).toEqual([['rain'], ['snow']]);
  });

  it('is noticed at once where answers have another model name', async () => {
    const { embedder, api } = await connected(undefined, NO_TRIAL);
    used.server.model = 2;
    used.server.modelName = 'b-model';
    expect(await failing(embedder.embed(['rain'], 'query'))).toMatchObject({ kind: 'other_model' });
    expect(api.degraded).toMatch(OTHER);
  });

  it('is noticed for queries under way, too', async () => {
    const { embedder } = await connected(undefined, NO_TRIAL);
    let answer = () => {};
    used.server.fault = (response, _request, good) => (answer = () => sendJson(response, 200, good()));
    const asked = used.server.next();
    const query = failing(embedder.embed(['rain'], 'query'));
    await asked;
    used.server.fault = undefined;
    used.server.model = 2;
    await embedder.embed(['snow'], 'index');
    answer();
    expect(await query).toMatchObject({ kind: 'held_back' });
  });

  it('is taken when three trials have found it, and gives its vectors under another id', async () => {
    const { embedder, api, messages } = await connected();
    used.server.model = 2;
    const well = working(api);
    await embedder.embed(['rain'], 'index');
    await well;
    expect(used.server.requests.filter(isProbe)).toHaveLength(3);
    const found = api.embedder();
    expect(found.id).toBe('openai:a-model:384:2');
    expect(api.degraded).toBeUndefined();
    expect(await found.embed(['rain'], 'index')).toEqual([vector('rain')]);
    expect(await found.embed(['rain'], 'query')).toEqual([vector('rain')]);
    expect(messages()).toEqual([
      expect.stringMatching(OTHER),
      'the embedding API has another model: all vectors are made anew with it',
    ]);
  });

  it('is not doubted for an answer of the one before that comes late', async () => {
    const { embedder, api } = await connected();
    let answer = () => {};
    used.server.fault = (response, _request, good) => {
      const body = good();
      answer = () => sendJson(response, 200, body);
    };
    const asked = used.server.next();
    const late = embedder.embed(['rain'], 'index');
    await asked;
    used.server.fault = undefined;
    used.server.model = 2;
    const well = working(api);
    await embedder.embed(['snow'], 'index');
    await well;
    answer();
    expect(await late).toEqual([NOTHING]);
    expect(api.degraded).toBeUndefined();
    expect(await api.embedder().embed(['rain'], 'query')).toEqual([vector('rain')]);
  });

  it('that gave one odd answer costs nothing: all goes on with the one before', async () => {
    const { embedder, api } = await connected();
    used.server.fault = times(used.server, 1, (response, request, good) => {
      used.server.model = 2;
      sendJson(response, 200, good());
      used.server.model = 1;
      expect(isProbe(request)).toBe(false);
    });
    const well = working(api);
    expect(await embedder.embed(['rain'], 'index')).toEqual([NOTHING]);
    await well;
    expect(api.gives(embedder)).toBe(true);
    expect(api.embedder().id).toBe(embedder.id);
    expect(await embedder.embed(['rain'], 'index')).toEqual([vector('rain')]);
    expect((await open().api.connect()).id).toBe(embedder.id);
  });
});

describe('another name of the same model', () => {
  it('is looked at once, kept with the model, and changes nothing', async () => {
    const { embedder, api } = await connected();
    expect(await names()).toEqual([['a-model']]);
    used.server.modelName = 'a-model-v2';
    for (const text of ['rain', 'snow'])
      expect(await embedder.embed([text], 'query')).toEqual([vector(text)]);
    expect(inputs().map(input => input.length)).toEqual([1, 1, 1]);
    expect(used.server.requests.filter(isProbe)).toHaveLength(1);
    expect(api.degraded).toBeUndefined();
    await vi.waitFor(async () => expect(await names()).toEqual([['a-model', 'a-model-v2']]));
    expect((await open().api.connect()).id).toBe(embedder.id);
  });

  it('with every answer is soon no reason to look', async () => {
    const { embedder } = await connected();
    for (let at = 0; at < 12; at++) {
      used.server.modelName = `request-${at}`;
      await embedder.embed([`text ${at}`], 'query');
    }
    expect(used.server.requests.filter(isProbe)).toHaveLength(7);
  });

  it('is not needed: an API that says none is known by its vectors', async () => {
    const fault = twisted(answer => ({ ...answer, model: undefined }));
    used.server.fault = fault;
    const { embedder, api } = await connected(fault, { ...NO_TRIAL, ...ALWAYS });
    expect(await embedder.embed(['rain'], 'query')).toEqual([vector('rain')]);
    used.server.model = 2;
    await failing(embedder.embed(['snow'], 'query'));
    expect(api.degraded).toMatch(/another model/);
  });
});

describe('a server that takes one text a request', () => {
  const one: Fault = (response, request, good) =>
    request.input.length > 1
      ? refuse(400, 'one at a time')(response, request, good)
      : sendJson(response, 200, good());

  it('is asked for the probe by itself, and another model is noticed', async () => {
    const { embedder, api } = await connected(one, { ...NO_TRIAL, ...ALWAYS });
    expect(await embedder.embed(['rain', 'snow', 'hail'], 'index')).toEqual(
      ['rain', 'snow', 'hail'].map(vector),
    );
    used.server.requests.length = 0;
    expect(await embedder.embed(['fog'], 'query')).toEqual([vector('fog')]);
    expect(inputs()).toEqual([['fog'], [expect.stringMatching(/^Which model/)]]);
    expect(api.degraded).toBeUndefined();
    used.server.model = 2;
    expect(await embedder.embed(['mist'], 'index')).toEqual([NOTHING]);
    expect(api.degraded).toMatch(/another model/);
  });
});
