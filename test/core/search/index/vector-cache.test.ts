import { mkdtemp, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import * as fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { wordsOf, type Embedder } from '../../../../src/core/search/embed/embedder.ts';
import { quantize, VectorFile, writeVectorFile } from '../../../../src/core/search/index/vectors.ts';
import { textHash, VectorCache } from '../../../../src/core/search/index/vector-cache.ts';
import { embeddings } from '../../../../src/core/search/schema.ts';
import type { OpenDatabase } from '../../../../src/platform/database/database.ts';
import { openTestDatabase } from '../../../support/database.ts';
import { controlledEmbedder, recordingLog } from '../support.ts';

const texts = ['weather', 'maps', 'mail'];
let database: OpenDatabase;
let folder: string;
beforeAll(async () => {
  database = await openTestDatabase();
  folder = await mkdtemp(path.join(tmpdir(), 'vectors-'));
});
afterAll(async () => {
  await database.close();
  await rm(folder, { recursive: true });
});
beforeEach(async () => {
  await database.db.delete(embeddings);
});

async function vectorFile(id: string, of: readonly string[] = texts) {
  const { embedder } = controlledEmbedder();
  const vectors = await embedder.embed(of, 'index');
  const entries = of.map(
    (text, at) => [textHash(text), quantize(vectors[at] ?? new Float32Array())] as const,
  );
  return writeVectorFile({ embedderId: id, dimensions: embedder.dimensions, entries });
}

async function open(shipped?: Buffer) {
  const control = controlledEmbedder();
  const { log, messages } = recordingLog();
  const shippedFile = shipped && path.join(folder, 'vectors.bin');
  if (shippedFile) await writeFile(shippedFile, shipped);
  const cache = await VectorCache.open({ embedder: control.embedder, db: database.db, log, shippedFile });
  return { cache, control, messages };
}

describe('VectorCache.vectorsOf', () => {
  it('embeds a text once, and never again while the database has it', async () => {
    const first = await open();
    const vectors = await first.cache.vectorsOf(['maps', 'mail', 'maps']);
    expect(vectors[0]).toEqual(vectors[2]);
    expect(first.control.embedded).toEqual(['maps', 'mail']);
    const second = await open();
    expect(await second.cache.vectorsOf(['mail', 'maps'])).toEqual([vectors[1], vectors[0]]);
    expect(second.control.embedded).toEqual([]);
  });

  it('takes shipped vectors of the same embedder and embeds the rest', async () => {
    const { cache, control, messages } = await open(await vectorFile('char-ngrams-v1'));
    expect(await cache.vectorsOf(['maps', 'news'])).toHaveLength(2);
    expect(control.embedded).toEqual(['news']);
    expect(messages()).toEqual([]);
  });

  it('never mixes in vectors of another embedder', async () => {
    await database.db
      .insert(embeddings)
      .values({ embedder: 'other', textHash: textHash('maps'), vector: Buffer.alloc(388) });
    const { cache, control } = await open(await vectorFile('other'));
    await cache.vectorsOf(['maps']);
    expect(control.embedded).toEqual(['maps']);
  });

  it('says how many of the texts that it has to embed are embedded', async () => {
    const { cache } = await open();
    await cache.vectorsOf(['text 0', 'maps']);
    const heard: { done: number; of: number }[] = [];
    const many = Array.from({ length: 121 }, (_, at) => `text ${at}`);
    await cache.vectorsOf(many, progress => heard.push(progress));
    expect(heard).toEqual([0, 50, 100, 120].map(done => ({ done, of: 120 })));
    await cache.vectorsOf(many, () => expect.unreachable('nothing is to be embedded'));
  });

  it('has the next texts embedded while it writes', async () => {
    const { cache, control } = await open();
    const { embedder } = controlledEmbedder();
    const stored: number[] = [];
    control.embedder.embed = async batch => {
      // Asked before anything that follows this call is written.
      stored.push(await database.db.$count(embeddings));
      return embedder.embed(batch, 'index');
    };
    await cache.vectorsOf(Array.from({ length: 150 }, (_, at) => `text ${at}`));
    expect(stored.slice(0, 2)).toEqual([0, 0]);
  });

  it('keeps what was embedded before a failure', async () => {
    const { cache, control } = await open();
    const many = Array.from({ length: 150 }, (_, at) => `text ${at}`);
    const { embedder } = controlledEmbedder();
    control.embedder.embed = async batch => {
      if (control.embedded.length > 0) throw new Error('down');
      control.embedded.push(...batch.map(wordsOf));
      return embedder.embed(batch, 'index');
    };
    await expect(cache.vectorsOf(many)).rejects.toThrow('down');
    const again = await open();
    await again.cache.vectorsOf(many);
    expect(again.control.embedded).toHaveLength(many.length - control.embedded.length);
  });

  it('gives zeros on where the embedder has no vector for now, and asks for it again', async () => {
    const { cache, control } = await open();
    const { embed } = control.embedder;
    control.embedder.embed = async batch =>
      (await embed(batch, 'index')).map((vector, at) =>
        batch[at] === 'mail' ? new Float32Array(384) : vector,
      );
    const [maps, mail] = await cache.vectorsOf(['maps', 'mail']);
    expect(maps?.scale).toBeGreaterThan(0);
    expect(mail).toEqual({ values: new Int8Array(384), scale: 0 });
    const later = await open();
    await later.cache.vectorsOf(['maps', 'mail']);
    expect(later.control.embedded).toEqual(['mail']);
  });

  it('has as many calls under way as the embedder wants, and none once it has rejected', async () => {
    const { embedder } = controlledEmbedder();
    const calls: { reject: (error: Error) => void; resolve: () => void }[] = [];
    const slow: Embedder = {
      ...embedder,
      indexCalls: 3,
      async embed(batch) {
        await new Promise<void>((resolve, reject) => calls.push({ resolve, reject }));
        return embedder.embed(batch, 'index');
      },
    };
    const { log } = recordingLog();
    const cache = await VectorCache.open({ embedder: slow, db: database.db, log });
    const many = Array.from({ length: 1_000 }, (_, at) => `text ${at}`);
    const vectors = cache.vectorsOf(many);
    let settled = false;
    const ended = vectors.catch(() => (settled = true));
    await vi.waitFor(() => expect(calls).toHaveLength(3), 60_000);
    calls[0]?.reject(new Error('down'));
    calls[1]?.resolve();
    await vi.waitFor(async () => expect(await database.db.$count(embeddings)).toBe(50), 60_000);
    expect(settled).toBe(false);
    calls[2]?.resolve();
    await ended;
    expect(settled).toBe(true);
    expect(calls).toHaveLength(3);
    expect(await database.db.$count(embeddings)).toBe(100);
  });

  it.each([
    ['truncated', (file: Buffer) => file.subarray(0, -1)],
    ['cut inside its header', (file: Buffer) => file.subarray(0, 20)],
    ['empty', () => Buffer.alloc(0)],
    ['changed in one bit', (file: Buffer) => Buffer.from(file).fill(file.readUInt8(200) ^ 1, 200, 201)],
    ['of a later version', (file: Buffer) => Buffer.from(file).fill(9, 8, 9)],
  ])('ignores a shipped file that is %s, with a warning', async (_, damage) => {
    const { cache, control, messages } = await open(damage(await vectorFile('char-ngrams-v1')));
    await cache.vectorsOf(texts);
    expect(control.embedded).toEqual(texts);
    expect(messages()).toHaveLength(1);
  });
});

describe('vector file', () => {
  /** Writes the bytes and reads them. */
  async function read(bytes: Uint8Array) {
    const file = path.join(folder, 'read.bin');
    await writeFile(file, bytes);
    return VectorFile.read(file);
  }

  it('has the same bytes in whatever order its entries come, and finds each text', async () => {
    const bytes = await vectorFile('id', texts);
    expect(await vectorFile('id', texts.toReversed())).toEqual(bytes);
    const file = await read(bytes);
    expect(file).toMatchObject({ embedderId: 'id', dimensions: 384 });
    using vectors = file.open();
    const { embedder } = controlledEmbedder();
    const made = await embedder.embed(texts, 'index');
    for (const [at, text] of texts.entries())
      expect(vectors.find(textHash(text))).toEqual(quantize(made[at] ?? new Float32Array()));
    expect(vectors.find(textHash('other'))).toBeUndefined();
    expect(file.hashes()).toHaveLength(3);
  });

  it('has as many entries as there are, whatever the size of a read', async () => {
    const many = Array.from({ length: 6_000 }, (_, at) => `text ${at}`);
    const file = await read(await vectorFile('id', many));
    using vectors = file.open();
    expect(file.hashes()).toEqual(many.map(textHash).toSorted(Buffer.compare));
    expect(many.filter(text => vectors.find(textHash(text)) === undefined)).toEqual([]);
  });

  it('is never misread, wherever a bit has changed', async () => {
    const bytes = await vectorFile('id', ['one']);
    await fc.assert(
      fc.asyncProperty(
        fc.nat({ max: bytes.length - 1 }),
        fc.integer({ min: 1, max: 255 }),
        async (at, change) => {
          const damaged = Buffer.from(bytes);
          damaged[at] = (damaged[at] ?? 0) ^ change;
          await expect(read(damaged)).rejects.toThrow();
        },
      ),
    );
  });

  it.each([
    ['is gone', (file: string) => rm(file)],
    ['was cut short', (file: string) => truncate(file, 100)],
    ['has other texts', async (file: string) => writeFile(file, await vectorFile('id', ['a', 'b', 'c']))],
  ])('finds nothing any more if it %s', async (_, change) => {
    const file = await read(await vectorFile('id'));
    await change(path.join(folder, 'read.bin'));
    using vectors = file.open();
    expect(texts.map(text => vectors.find(textHash(text)))).toEqual(texts.map(() => undefined));
  });
});
