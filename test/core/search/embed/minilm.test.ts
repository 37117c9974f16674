import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { setFlagsFromString } from 'node:v8';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readEntries } from '../../../../src/core/catalogue/import-file.ts';
import { toServer } from '../../../../src/core/catalogue/to-server.ts';
import { documentsOf } from '../../../../src/core/search/documents.ts';
import type { Embedder } from '../../../../src/core/search/embed/embedder.ts';
import {
  createMiniLmEmbedder,
  WeightsUnavailable,
} from '../../../../src/core/search/embed/minilm/embedder.ts';
import { WEIGHTS_SHA256 } from '../../../../src/core/search/embed/minilm/weights.ts';
import { type Job, WorkerPool } from '../../../../src/core/search/embed/minilm/worker-pool.ts';
import { quantize, VectorFile } from '../../../../src/core/search/index/vectors.ts';
import { textHash } from '../../../../src/core/search/index/vector-cache.ts';
import reference from './minilm-reference.json' with { type: 'json' };

const dot = (a: ArrayLike<number>, b: ArrayLike<number>) =>
  Array.from(a).reduce((sum, component, i) => sum + component * (b[i] ?? Number.NaN), 0);
const cosine = (a: ArrayLike<number>, b: ArrayLike<number>) => dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
const largestDifference = (a: Float32Array, b: Float32Array | undefined) =>
  Math.max(...a.map((component, i) => Math.abs(component - (b?.[i] ?? Number.NaN))));
const TOOLS = Array.from(
  { length: 40 },
  (_, i) => `tool_${i}: ${'lists the invoices of a customer '.repeat(1 + (i % 7))}`,
);

// Unlike the other tests (vitest.config.ts), these run one piece of WebAssembly for long.
setFlagsFromString('--no-liftoff-only');
setFlagsFromString('--wasm-dynamic-tiering');

let embedder: Embedder;
beforeAll(async () => {
  embedder = await createMiniLmEmbedder({ threads: 2 });
});
afterAll(() => embedder.close());

describe('embed', () => {
  const texts = reference.cases.map(({ text }) => text);

  it('computes what PyTorch computes from the same 8-bit weights', async () => {
    const vectors = await embedder.embed(texts, 'index');
    for (const [i, { text, quantized_e4 }] of reference.cases.entries()) {
      expect(cosine(vectors[i] ?? [], quantized_e4), text).toBeGreaterThan(0.99999);
    }
  });

  it('gives vectors of unit length, also for empty, endless and strange texts', async () => {
    const strange = [
      '',
      ' ',
      'word '.repeat(5_000),
      'x'.repeat(100_000),
      '🎉👩‍💻🇫🇷',
      '漢字かな交じり文',
      '\uD800',
      'a\uDFFFb',
      '\0',
    ];
    const vectors = await embedder.embed(strange, 'index');
    expect(vectors).toHaveLength(strange.length);
    for (const vector of vectors) {
      expect(vector).toHaveLength(embedder.dimensions);
      expect(Math.sqrt(dot(vector, vector))).toBeCloseTo(1, 5);
    }
  });

  it('gives a text the same vector alone and in a batch, in the order of the texts', async () => {
    const batch = await embedder.embed(TOOLS, 'index');
    expect(batch).toHaveLength(TOOLS.length);
    for (const [i, text] of TOOLS.entries()) {
      const [alone] = await embedder.embed([text], 'index');
      expect(largestDifference(batch[i] ?? new Float32Array(1), alone), text).toBeLessThan(1e-5);
    }
  });

  it('embeds a search before a long import that started earlier', async () => {
    // One thread, because of two the operating system may hold up the one with the search until the other has done the import.
    const single = await createMiniLmEmbedder({ threads: 1 });
    const finished: string[] = [];
    const note = (name: string) => () => finished.push(name);
    const imported = single.embed(TOOLS, 'index').then(note('import'));
    await Promise.all([imported, single.embed(['send an email'], 'query').then(note('search'))]);
    expect(finished).toEqual(['search', 'import']);
    await single.close();
  });

  it('gives each of many requests at once its own vectors', async () => {
    const alone = await embedder.embed(TOOLS, 'index');
    const atOnce = await Promise.all(TOOLS.map(text => embedder.embed([text], 'index')));
    expect(atOnce.flat()).toEqual(alone);
  });

  it('gives the shipped texts the very vectors that are shipped: stored ones must not age', async () => {
    const shipped = await VectorFile.read('catalogue/vectors.bin');
    expect(shipped.embedderId).toBe(embedder.id);
    using stored = shipped.open();
    const { entries } = readEntries(await readFile('catalogue/servers.jsonl', 'utf8'), { allowHttp: false });
    const sample = entries.filter((_, at) => at % 20 === 0);
    const made = await Promise.all(sample.map(entry => toServer(entry, 'shipped')));
    const prose = made.map(({ server }) => documentsOf(server).parts.at(-1)?.prose ?? '');
    const vectors = await embedder.embed(prose, 'index');
    for (const [at, text] of prose.entries()) {
      expect(quantize(vectors[at] ?? new Float32Array()), text).toEqual(stored.find(textHash(text)));
    }
  });

  it('reads the texts as they were when it was called', async () => {
    const changing = Array.from({ length: 30 }, () => 'send an email');
    const pending = embedder.embed(changing, 'index');
    changing.fill('stock prices');
    const vectors = await pending;
    expect(largestDifference(vectors[29] ?? new Float32Array(1), vectors[0])).toBe(0);
  });

  it('gives a part of a text a vector of its own, near that of its words', async () => {
    const of = 'turn off the lamp and then send an email to my sister';
    const [lamp, mail] = [
      { of, from: 0, to: 17 },
      { of, from: 27, to: of.length },
    ];
    const [alone, words] = await embedder.embed([of, 'turn off the lamp'], 'index');
    const [whole, ofLamp, ofMail] = await embedder.embed([of, lamp, mail], 'index');
    expect(largestDifference(whole ?? new Float32Array(1), alone)).toBeLessThan(1e-5);
    const near = (vector: Float32Array | undefined) =>
      dot(vector ?? new Float32Array(), words ?? new Float32Array());
    expect(near(ofLamp)).toBeGreaterThan(0.6);
    expect(near(ofLamp)).toBeGreaterThan(near(whole));
    expect(near(whole)).toBeGreaterThan(near(ofMail));
  });

  it('gives a part beyond what is read of a text the vector of the text', async () => {
    const of = `${'word '.repeat(400)}and send an email`;
    const [whole, part] = await embedder.embed([of, { of, from: 2_004, to: of.length }], 'index');
    expect(part).toEqual(whole);
  });

  it('returns no vectors for no texts', async () => {
    expect(await embedder.embed([], 'index')).toEqual([]);
  });
});

describe('id', () => {
  it('names model, weights, tokenization and arithmetic', () => {
    expect(embedder.id).toBe(`switchboard-minilm:${WEIGHTS_SHA256.slice(0, 16)}:wordpiece-256-v1:i16`);
  });
});

describe('close', () => {
  it('rejects running, waiting and later requests, and may be called twice', async () => {
    const closing = await createMiniLmEmbedder({ threads: 1 });
    const requests = Promise.allSettled([closing.embed(TOOLS, 'index'), closing.embed(['waits'], 'index')]);
    await Promise.all([closing.close(), closing.close()]);
    const later = await Promise.allSettled([closing.embed(['too late'], 'index')]);
    for (const outcome of [...(await requests), ...later]) {
      expect(outcome).toMatchObject({
        status: 'rejected',
        reason: { message: 'The embedding model is closed.' },
      });
    }
  });
});

describe('createMiniLmEmbedder', () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(path.join(tmpdir(), 'minilm-'));
  });
  afterAll(() => rm(folder, { recursive: true }));

  it('says which file is missing and what to do', async () => {
    const failure = createMiniLmEmbedder({ modelFile: pathToFileURL(path.join(folder, 'none.gz')) });
    await expect(failure).rejects.toThrow(WeightsUnavailable);
    await expect(failure).rejects.toThrow(/none\.gz cannot be read: install Switchboard again/);
  });

  it('refuses weights that are not the pinned ones, with both hashes', async () => {
    const file = path.join(folder, 'other.gz');
    await writeFile(file, 'other weights');
    const failure = createMiniLmEmbedder({ modelFile: pathToFileURL(file) });
    await expect(failure).rejects.toThrow(WeightsUnavailable);
    await expect(failure).rejects.toThrow(
      new RegExp(String.raw`other\.gz has sha256 [0-9a-f]{64}, not ${WEIGHTS_SHA256}`),
    );
  });

  it('refuses a number of threads that makes no sense', async () => {
    await expect(createMiniLmEmbedder({ threads: 0 })).rejects.toThrow(RangeError);
  });
});

describe('WorkerPool', () => {
  /** Answers a message with itself; "die" ends the thread. */
  const echo = new URL(
    `data:text/javascript,${encodeURIComponent(`
      import { parentPort } from 'node:worker_threads';
      parentPort.on('message', message => {
        if (message === 'die') throw new Error('told to die');
        parentPort.postMessage(message);
      });`)}`,
  );

  /** A pool of one worker and a way to ask it. */
  function pool(restMs?: number) {
    const jobs: Job[] = [];
    const queue = {
      take: () => jobs.shift(),
      rejectAll: (error: Error) => {
        for (const job of jobs.splice(0)) job.failed(error);
      },
    };
    const workers: WorkerPool = new WorkerPool(echo, [undefined], queue, restMs);
    const ask = (message: string) => {
      const { promise, resolve, reject } = Promise.withResolvers<unknown>();
      jobs.push({ message, done: resolve, failed: reject });
      workers.wake();
      return promise;
    };
    return { workers, ask };
  }

  it('fails the job of a worker that dies, and goes on with another', async () => {
    const { workers, ask } = pool();
    for (let round = 0; round < 4; round++) {
      const [dead, alive] = await Promise.allSettled([ask('die'), ask('hello')]);
      expect(dead).toMatchObject({ reason: { code: 'unavailable', cause: { message: 'told to die' } } });
      expect(alive).toMatchObject({ value: 'hello' });
    }
    expect(workers.stopped).toBeUndefined();
    await workers.close(new Error('done'));
  });

  it('rests after three crashes in a row and fails what waits', async () => {
    const { workers, ask } = pool();
    const outcomes = await Promise.allSettled([ask('die'), ask('die'), ask('die'), ask('hello')]);
    expect(outcomes.map(({ status }) => status)).toEqual(Array(4).fill('rejected'));
    expect(outcomes[3]).toMatchObject({
      reason: { message: 'The search workers crashed 3 times in a row. They will be restarted soon.' },
    });
    expect(workers.stopped?.message).toContain('3 times in a row');
    await workers.close(new Error('done'));
    expect(workers.stopped?.message).toBe('done');
  });

  it('starts workers again after a rest, by itself', async () => {
    const { workers, ask } = pool(1);
    await Promise.allSettled([ask('die'), ask('die'), ask('die')]);
    expect(await ask('hello')).toBe('hello');
    expect(workers.stopped).toBeUndefined();
    await Promise.allSettled([ask('die'), ask('die'), ask('die')]);
    expect(await ask('hello again')).toBe('hello again');
    await workers.close(new Error('done'));
  });
});
