import { createHash, randomBytes } from 'node:crypto';
import { sql } from 'drizzle-orm';
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { Evidence, ServerTexts } from '../../../../src/core/search/index/evidence/evidence.ts';
import { EvidenceStore, pruneDocuments } from '../../../../src/core/search/index/evidence/store.ts';
import { createMeilisearchIndex } from '../../../../src/core/search/index/search-index-meilisearch.ts';
import { quantize } from '../../../../src/core/search/index/vectors.ts';
import { embeddings, searchDocuments } from '../../../../src/core/search/schema.ts';
import type { OpenDatabase } from '../../../../src/platform/database/database.ts';
import { openTestDatabase } from '../../../support/database.ts';
import { startMeilisearchDouble } from './meilisearch-double.ts';
import { evidence, find, mail, update, weather } from './search-index.contract.ts';
import {
  catalogueDouble,
  controlledEmbedder,
  recordingLog,
  server,
  settableClock,
  wholeOf,
} from '../support.ts';

let database: OpenDatabase;
beforeAll(async () => {
  database = await openTestDatabase();
});
afterAll(() => database.close());
beforeEach(async () => {
  await database.db.delete(searchDocuments);
  await database.db.delete(embeddings);
});

/** Too little for any evidence, so that all is read from the database. */
const NONE = 1;

async function start({ engineUp = true } = {}) {
  const double = await startMeilisearchDouble();
  if (!engineUp) await double.stop();
  const control = controlledEmbedder();
  control.embedder = { ...control.embedder, id: `char-ngrams-${randomBytes(6).toString('hex')}` };
  const { log, messages } = recordingLog();
  const catalogue = catalogueDouble();
  const opened: Awaited<ReturnType<typeof createMeilisearchIndex>>[] = [];
  return {
    double,
    control,
    messages,
    catalogue,
    async open(evidenceBytes?: number) {
      const index = await createMeilisearchIndex({
        url: double.url,
        embedder: control.embedder,
        db: database.db,
        log,
        clock: settableClock(Date.now()),
        retry: { firstMs: 5, lastMs: 20 },
        readServers: catalogue.readServers,
        ...(evidenceBytes === undefined ? {} : { evidenceBytes }),
      });
      opened.push(index);
      return catalogue.follow(index);
    },
    documents: () =>
      [...double.indexes.values()].flatMap(({ documents }) => Array.from<any>(documents.values())),
    async [Symbol.asyncDispose]() {
      for (const index of opened) await index.close();
      await double.stop();
    },
  };
}

const rowCount = () => database.db.$count(searchDocuments);
const age = (days: number) =>
  database.db.update(searchDocuments).set({ createdAt: sql`now() - make_interval(days => ${days})` });

describe('stored evidence', () => {
  it('is used after a restart, without tokenizing or embedding anything again', async () => {
    await using started = await start();
    const first = await started.open();
    await update(first, { upserted: [weather, mail] });
    const query = 'finds messages in the inbox';
    const before = await evidence(first, query);
    await first.close();
    // Nothing but the stored rows can give what is found.
    await database.db.delete(embeddings);
    started.control.embedded.length = 0;
    const again = await started.open(NONE);
    await update(again, { upserted: [weather, mail] });
    expect(await evidence(again, query)).toEqual(before);
    expect(started.control.embedded).toEqual([query]);
    expect(await rowCount()).toBe(2);
  });

  it('is shared by servers with the same texts', async () => {
    await using started = await start();
    const index = await started.open();
    const twin = { ...mail, id: 'mail-twin' };
    await update(index, { upserted: [mail, twin, weather] });
    expect(await rowCount()).toBe(2);
    expect(await find(index, 'inbox')).toEqual(['mail', 'mail-twin']);
    await update(index, { removed: ['mail'] });
    expect(await find(index, 'inbox')).toEqual(['mail-twin']);
  });

  it('keeps the statistics exact through changes, restarts and changes that were given up', async () => {
    await using started = await start();
    const index = await started.open(NONE);
    await update(index, { upserted: [weather, mail] });
    const given = new AbortController();
    await index.prepare(
      { upserted: [server('new', 'Weather messages.')], removed: ['mail'] },
      undefined,
      given.signal,
    );
    given.abort(new Error('given up'));
    await update(index, {
      upserted: [server('mail', 'Postage stamps for messages.'), server('old', 'Weather.')],
    });
    await update(index, { upserted: [mail], removed: ['old'] });
    const fresh = await started.open();
    await update(fresh, { upserted: [mail, weather] });
    const query = 'send weather messages to an inbox';
    expect(await evidence(index, query)).toEqual(await evidence(fresh, query));
  });

  it('is computed again if somebody deletes it', async () => {
    await using started = await start();
    const index = await started.open(NONE);
    await update(index, { upserted: [weather, mail] });
    await database.db.delete(searchDocuments);
    expect(await find(index, 'inbox')).toEqual([]);
    await vi.waitFor(async () => expect(await find(index, 'inbox')).toEqual(['mail']), { timeout: 20_000 });
    expect(started.messages()).toContain('search evidence missing: will be computed again');
  });

  it('gets other vectors after a reindex, in the engine and in memory', async () => {
    await using started = await start();
    const index = await started.open();
    await update(index, { upserted: [weather, mail] });
    const sent = started.documents().find(({ id }) => id === 'mailP0');
    const before = await evidence(index, 'messages');
    const { embed } = started.control.embedder;
    // Another model behind the same name.
    started.control.embedder.embed = async (texts, purpose) =>
      (await embed(texts, purpose)).map(vector => vector.map(component => -component));
    await database.db.delete(embeddings);
    await database.db.update(searchDocuments).set({ isComplete: false });
    const whole = { ...wholeOf([weather, mail]), isAnew: true };
    await update(index, { upserted: [], removed: [], whole });
    const now = started.documents().find(({ id }) => id === 'mailP0');
    expect(now.hash).not.toBe(sent.hash);
    const [vector, old] = [now, sent].map(one => one._vectors.switchboard.embeddings[0]);
    expect(vector.map((component: number) => 0 - component)).toEqual(
      old.map((component: number) => component + 0),
    );
    // Query and texts are turned alike.
    expect(await evidence(index, 'messages')).toEqual(before);
  });

  it('belongs to terms and texts as they are: a change of tokenize or of documentsOf needs a new FORMAT', () => {
    const texts = new ServerTexts(mail, 'an embedder');
    const { words } = Evidence.of(texts.terms, [], 16);
    const digest = createHash('sha256').update(words).digest('hex').slice(0, 16);
    expect([texts.hash, digest]).toEqual([
      'wINnOpMmfp5j7E6ebV84FE6cDZUF3be5puQ2zAWWLVU=',
      'f415bb6a0bb371fe',
    ]);
  });
});

describe('a change that is not applied', () => {
  it('is taken back from the engine', async () => {
    await using started = await start();
    const index = await started.open();
    await update(index, { upserted: [weather, mail] });
    const before = started.documents();
    const given = new AbortController();
    await index.prepare(
      { upserted: [server('mail', 'Postage stamps.'), server('new', 'New.')], removed: ['weather'] },
      undefined,
      given.signal,
    );
    expect(started.documents().map(({ id }) => id)).toContain('newP0');
    given.abort(new Error('the database is down'));
    await vi.waitFor(() => expect(started.documents().toSorted(byId)).toEqual(before.toSorted(byId)), {
      timeout: 20_000,
    });
    expect(await find(index, 'inbox')).toEqual(['mail']);
  });
});

const byId = (a: { id: string }, b: { id: string }) => a.id.localeCompare(b.id);

describe('without Meilisearch and with nothing in memory', () => {
  it('servers are found by their rarest words', async () => {
    await using started = await start({ engineUp: false });
    const index = await started.open(NONE);
    const others = Array.from({ length: 300 }, (_, at) => server(`s${at}`, `Sends number ${at}.`));
    await update(index, { upserted: [weather, mail, ...others] });
    expect(await find(index, 'inbox')).toEqual(['mail']);
    expect(await find(index, 'the number 77')).toContain('s77');
    expect(
      (await index.find(index.ask('finds messages'))).candidates.find(one => one.serverId === 'mail')
        ?.semantic,
    ).toBeGreaterThan(0.4);
    expect((await index.find(index.ask('qwertz'))).candidates).toEqual([]);
    await update(index, { removed: ['mail'] });
    expect(await find(index, 'inbox')).toEqual([]);
  });
});

describe('EvidenceStore', () => {
  const vector = quantize(new Float32Array(384).fill(0.05));
  const rowsOf = (count: number) =>
    Array.from({ length: count }, (_, at) => ({
      hash: createHash('sha256').update(`${at}`).digest('base64'),
      embedder: 'one',
      evidence: Evidence.of({ whole: ['a', `b${at}`], parts: [['a'], [`b${at}`]] }, [vector, vector], 384),
    }));

  it('keeps at most so many bytes in memory, and reads the rest', async () => {
    const maxBytes = 60_000;
    const store = new EvidenceStore(database.db, maxBytes);
    const rows = rowsOf(100);
    const hashes = rows.map(({ hash }) => hash);
    await store.add(rows);
    expect(store.bytesInMemory).toBeLessThanOrEqual(maxBytes);
    expect(store.bytesInMemory).toBeGreaterThan(maxBytes / 2);
    const read = new Map<string, Evidence>();
    // The evidence of a visit is written over later.
    const found = await store.read(hashes, (hash, { words, vectors }) =>
      read.set(hash, new Evidence(words.slice(), vectors.slice())),
    );
    expect(found).toEqual(new Set(hashes));
    expect(store.bytesInMemory).toBeLessThanOrEqual(maxBytes);
    for (const { hash, evidence: one } of rows) {
      const same = { words: one.words, vectors: one.vectors, parts: 2 };
      expect(read.get(hash)).toMatchObject(same);
      if (store.isInMemory(hash)) expect(store.recent(hash)).toMatchObject(same);
    }
    expect(await store.wordsOf(hashes)).toEqual(
      new Map(rows.map(({ hash, evidence: one }) => [hash, one.words])),
    );
  });

  it('never replaces complete vectors with missing ones', async () => {
    const store = new EvidenceStore(database.db, NONE);
    const [row] = rowsOf(1);
    if (!row) throw new Error('no row');
    const missing = {
      ...row,
      evidence: Evidence.of({ whole: ['a', 'b0'], parts: [['a'], ['b0']] }, [vector], 384),
    };
    await store.add([missing]);
    expect((await store.statesOf([row.hash])).get(row.hash)?.isComplete).toBe(false);
    await store.add([row]);
    await store.add([missing]);
    const { vectorsHash } = row.evidence;
    expect(await store.statesOf([row.hash])).toEqual(
      new Map([[row.hash, { isComplete: true, vectorsHash }]]),
    );
  });
});

describe('pruneDocuments', () => {
  it('deletes what no server needs and nothing has used for a day', async () => {
    await using started = await start();
    const index = await started.open(NONE);
    await update(index, { upserted: [weather, mail] });
    await update(index, { upserted: [server('mail', 'Postage stamps.')] });
    const prune = () => pruneDocuments(database.db, index.neededDocuments() ?? new Set());
    expect(await prune()).toBe(0);
    await age(2);
    expect(await prune()).toBe(1);
    expect(await rowCount()).toBe(2);
    expect(await find(index, 'stamps')).toEqual(['mail']);
  });

  it('leaves what a change needs that is not committed yet', async () => {
    await using started = await start();
    const index = await started.open(NONE);
    await update(index, { upserted: [weather, mail] });
    await update(index, { removed: ['mail'] });
    await age(2);
    const takeEffect = await index.prepare({ upserted: [mail], removed: [] });
    expect(await pruneDocuments(database.db, index.neededDocuments() ?? new Set())).toBe(0);
    await takeEffect();
    expect(await find(index, 'inbox')).toEqual(['mail']);
  });

  it('is not asked for while nothing is indexed', async () => {
    await using started = await start();
    expect((await started.open()).neededDocuments()).toBeUndefined();
  });
});
