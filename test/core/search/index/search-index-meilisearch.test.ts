import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type { Server } from '../../../../src/core/catalogue/entry.ts';
import { createMeilisearchIndex } from '../../../../src/core/search/index/search-index-meilisearch.ts';
import type { Database, OpenDatabase } from '../../../../src/platform/database/database.ts';
import { openTestDatabase } from '../../../support/database.ts';
import { startMeilisearchDouble } from './meilisearch-double.ts';
import { find, mail, update, weather } from './search-index.contract.ts';
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

const API_KEY = 'key-of-the-double';
const CATALOGUE = ['a', 'b', 'c', 'd', 'e', 'f'].map(id =>
  server(id, `Zebra ${id}.`, { feed: `Feeds ${id}.` }),
);

/** The ids of the documents of servers, sorted: one for each text. */
const documentIds = (...servers: readonly Server[]) =>
  servers
    .flatMap(({ id, tools }) => ['own', ...tools].map((_, at) => `${id.replaceAll('.', 'D')}P${at}`))
    .sort();

async function start({ apiKey = API_KEY, engineUp = true } = {}) {
  const double = await startMeilisearchDouble({ apiKey: API_KEY });
  if (!engineUp) await double.stop();
  const control = controlledEmbedder();
  control.embedder = { ...control.embedder, id: `char-ngrams-${randomBytes(6).toString('hex')}` };
  const { log, messages, text } = recordingLog();
  const clock = settableClock(Date.now());
  const open = async (embedder = control.embedder) => {
    const catalogue = catalogueDouble();
    const index = await createMeilisearchIndex({
      url: double.url,
      apiKey,
      embedder,
      db: database.db,
      log,
      clock,
      readServers: catalogue.readServers,
      retry: { firstMs: 5, lastMs: 20 },
    });
    return catalogue.follow(index);
  };
  const index = await open();
  const opened = [index];
  return {
    double,
    index,
    control,
    messages,
    text,
    clock,
    /** That of another process on the same engine. */
    openBeside: () => open(),
    /** As after a restart of the process. */
    async reopen(embedder = control.embedder) {
      await opened.at(-1)?.close();
      const next = await open(embedder);
      opened.push(next);
      return next;
    },
    /** The ids of the documents of the index that is searched. */
    documents: () =>
      [...double.indexes.values()].flatMap(({ documents }) => Array.from<string>(documents.keys()).sort()),
    uids: () => [...double.indexes.keys()],
    async [Symbol.asyncDispose]() {
      await opened.at(-1)?.close();
      await double.stop();
    },
  };
}

const recovered = (index: { degraded: string | undefined }) =>
  vi.waitFor(() => expect(index.degraded).toBeUndefined(), { timeout: 20_000, interval: 5 });

describe('the index in Meilisearch', () => {
  it('has settings for terms, and only for our own vectors', async () => {
    await using started = await start();
    const { index, double } = started;
    await update(index, { upserted: CATALOGUE });
    expect(started.documents()).toEqual(documentIds(...CATALOGUE));
    expect(started.uids()).toEqual([expect.stringMatching(/^switchboard-[0-9a-f]{16}-v\d+$/)]);
    expect([...double.indexes.values()][0]?.settings).toMatchObject({
      filterableAttributes: ['server'],
      displayedAttributes: ['id', 'server', 'hash'],
      typoTolerance: { enabled: false },
      embedders: { switchboard: { source: 'userProvided', dimensions: 384 } },
    });
  });

  it('asks for a list by keyword while the query is embedded, and then for one by meaning', async () => {
    await using started = await start();
    await update(started.index, { upserted: CATALOGUE });
    const embedding = Promise.withResolvers<void>();
    started.control.gate = embedding.promise;
    const found = started.index.find(started.index.ask('feeds the zebra d'));
    await vi.waitFor(() => expect(started.double.searches()).toHaveLength(1), 60_000);
    embedding.resolve();
    await found;
    const searches = started.double.searches().map(({ body }) => body.queries);
    expect(searches).toMatchObject([
      // The rarest first: it is given up last.
      [{ q: expect.stringMatching(/^d /), limit: 100, matchingStrategy: 'last' }],
      [
        {
          hybrid: { embedder: 'switchboard', semanticRatio: 1 },
          limit: 50,
          attributesToRetrieve: ['server'],
        },
      ],
    ]);
    expect(searches[1]?.[0].vector).toHaveLength(384);
    // A compressed response would come 40 ms later: see `Engine`.
    expect(started.double.searches().map(({ encodings }) => encodings)).toEqual(['identity', 'identity']);
  });

  it('embeds and seeks a clause that is a sentence of the request only once', async () => {
    await using started = await start();
    const { index, control, double } = started;
    await update(index, { upserted: CATALOGUE });
    control.embedded.length = 0;
    const asked = index.ask('Feeds the zebra d. Then look for the zebra e today.');
    const clauses = asked.clauses.map(clause => index.find(clause, 30));
    const found = await Promise.all([index.find(asked), ...clauses]);
    expect(control.embedded).toEqual([
      'Feeds the zebra d',
      'Then look for the zebra e today',
      'look for the zebra e today',
    ]);
    const vectors = double.searches().flatMap(({ body }) => body.queries.filter((one: any) => one.vector));
    expect(vectors.map(({ limit }) => limit).toSorted((a, b) => a - b)).toEqual([15, 25, 25]);
    const alone = await index.find(asked.clauses[0] ?? index.ask(''), 30);
    expect(found[1]?.candidates).toEqual(alone.candidates);
  });

  it('finds as many servers while the engine still has removed ones', async () => {
    await using started = await start();
    const { index, double } = started;
    const many = (prefix: string) =>
      Array.from({ length: 60 }, (_, at) => server(`${prefix}${at}`, 'Zebra.', { feed: 'Feeds.' }));
    await update(index, { upserted: many('old') });
    const removed = many('old').map(({ id }) => id);
    const apply = await index.prepare({ upserted: many('new'), removed });
    double.paused = true;
    const applied = apply();
    expect((await index.find(index.ask('zebra'))).candidates).toHaveLength(60);
    expect(started.documents()).toContain('old0P0');
    double.paused = false;
    double.work();
    await applied;
  });

  it('sends only what a change touches', async () => {
    await using started = await start();
    const { index, double } = started;
    await update(index, { upserted: CATALOGUE });
    double.requests.length = 0;
    await update(index, { upserted: [mail], removed: ['a'] });
    const writes = double.requests.filter(
      ({ method, path }) => method !== 'GET' && path.includes('/documents'),
    );
    expect(writes.map(({ body }) => body.map((one: any) => one.id ?? one))).toEqual([
      documentIds(mail),
      ['aP0', 'aP1'],
    ]);
  });

  it('is made by two processes at once, and kept up to date by both', async () => {
    await using started = await start();
    const { index, double } = started;
    const other = await started.openBeside();
    double.paused = true;
    const made = Promise.all([index, other].map(one => update(one, { upserted: CATALOGUE })));
    await vi.waitFor(
      () => expect(double.enqueuedTypes().filter(type => type === 'indexCreation')).toHaveLength(2),
      60_000,
    );
    double.paused = false;
    double.work();
    await made;
    await Promise.all([recovered(index), recovered(other)]);
    for (const one of [index, other]) await update(one, { upserted: [mail], removed: ['a'] });
    for (const one of [index, other]) expect(await find(one, 'inbox')).toEqual(['mail']);
    expect(started.documents()).toEqual(documentIds(...CATALOGUE.slice(1), mail));
    expect(started.messages()).toEqual([]);
    await other.close();
  });

  it('is replaced whole by an import that replaces the catalogue', async () => {
    await using started = await start();
    const { index } = started;
    await update(index, { upserted: CATALOGUE });
    const whole = [weather, mail];
    await update(index, { upserted: whole, removed: CATALOGUE.map(({ id }) => id), whole: wholeOf(whole) });
    expect(started.documents()).toEqual(documentIds(mail, weather));
    expect(await find(index, 'inbox')).toEqual(['mail']);
    expect(await find(index, 'zebra')).toEqual([]);
  });

  it('survives a restart unchanged and is updated if the catalogue has changed', async () => {
    await using started = await start();
    const { double } = started;
    await update(started.index, { upserted: CATALOGUE });
    double.requests.length = 0;
    const again = await started.reopen();
    await update(again, { upserted: CATALOGUE });
    const writes = () =>
      double.requests.filter(({ method, path }) => method === 'POST' && path.endsWith('/documents'));
    expect(writes()).toEqual([]);
    expect(await find(again, 'zebra')).toHaveLength(6);
    const third = await started.reopen();
    const changed = [server('b', 'A penguin.'), ...CATALOGUE.slice(2)];
    await update(third, { upserted: changed });
    expect(writes().flatMap(({ body }) => body.map(({ id }: any) => id))).toEqual(['bP0']);
    expect(started.documents()).toEqual(documentIds(...changed));
    expect(await find(third, 'penguin')).toEqual(['b']);
  });

  it('is another one for another embedder', async () => {
    await using started = await start();
    await update(started.index, { upserted: CATALOGUE });
    const other = await started.reopen({ ...started.control.embedder, id: 'another' });
    await update(other, { upserted: [weather] });
    expect(started.uids()).toHaveLength(2);
    expect(started.documents()).toContain('aP0');
  });

  it('removes foreign documents at startup', async () => {
    await using started = await start();
    await update(started.index, { upserted: CATALOGUE });
    const theirs: any[] = [{ id: 'theirs', hash: 5 }, { id: 7 }];
    for (const { documents } of started.double.indexes.values())
      for (const document of theirs) documents.set(String(document.id), document);
    await update(await started.reopen(), { upserted: CATALOGUE });
    expect(started.documents()).toEqual(documentIds(...CATALOGUE));
  });

  it('has a document for each text of a server, and deletes those of tools that are gone', async () => {
    await using started = await start();
    const tools = Object.fromEntries(Array.from({ length: 600 }, (_, at) => [`tool_${at}`, `Task ${at}.`]));
    const [big, small] = [server('big.one', 'Does a lot.', tools), server('big.one', 'Does a little.')];
    await update(started.index, { upserted: [weather, mail, big] });
    expect(started.documents()).toEqual(documentIds(big, mail, weather));
    await update(started.index, { upserted: [small] });
    expect(started.documents()).toEqual(documentIds(small, mail, weather));
  });

  it('is sent a server again of which a document is missing or different', async () => {
    await using started = await start();
    await update(started.index, { upserted: CATALOGUE });
    const [{ documents }]: any[] = [...started.double.indexes.values()];
    documents.delete('aP0');
    documents.set('bP1', { ...documents.get('bP1'), hash: 'other' });
    documents.delete('cP1');
    const again = await started.reopen();
    await update(again, { upserted: CATALOGUE });
    await recovered(again);
    expect(started.documents()).toEqual(documentIds(...CATALOGUE));
    expect(documents.get('bP1').hash).toBe(documents.get('bP0').hash);
  });
});

describe('a change that Meilisearch refuses', () => {
  const refusing = ({ type, indexUid }: { type: string; indexUid: string | null }) =>
    type === 'documentAdditionOrUpdate' && indexUid !== null ? 'no space left on device' : undefined;

  it.each([
    ['a few servers', [weather]],
    ['a whole catalogue', [weather, mail, ...CATALOGUE.map(one => ({ ...one, description: 'New.' }))]],
  ])('is refused with its message and changes nothing: %s', async (_, upserted) => {
    await using started = await start();
    const { index, double } = started;
    await update(index, { upserted: CATALOGUE });
    const before = started.documents();
    double.failing = refusing;
    await expect(update(index, { upserted, removed: ['a'] })).rejects.toThrow(
      /failed: no space left on device/,
    );
    double.failing = () => undefined;
    await recovered(index);
    expect(index.size).toBe(6);
    expect(await find(index, 'zebra')).toHaveLength(6);
    await vi.waitFor(() => expect(started.documents()).toEqual(before), 60_000);
  });

  it('is refused as a whole: earlier requests are rolled back', async () => {
    await using started = await start();
    const { index, double } = started;
    await update(index, {
      upserted: Array.from({ length: 30 }, (_, at) => server(`s${at}`, `Zebra ${at}.`)),
    });
    const before = started.documents();
    let additions = 0;
    double.failing = task =>
      task.type === 'documentAdditionOrUpdate' && additions++ === 1 ? 'out of luck' : undefined;
    const tools = Object.fromEntries(Array.from({ length: 600 }, (_, at) => [`t${at}`, `Task ${at}.`]));
    const upserted = ['x', 'y'].map(id => server(id, 'Big.', tools));
    await expect(update(index, { upserted })).rejects.toThrow('out of luck');
    expect(additions).toBe(2);
    await vi.waitFor(() => expect(started.documents()).toEqual(before), 60_000);
  });

  it('does not keep the program from serving at its start', async () => {
    await using started = await start();
    const { index, double } = started;
    double.failing = refusing;
    await update(index, { upserted: CATALOGUE });
    expect(index.degraded).toMatch(/Meilisearch rejected/);
    expect(started.messages()).toEqual([expect.stringMatching(/Meilisearch rejected/)]);
    expect(await find(index, 'zebra')).toHaveLength(6);
    double.failing = () => undefined;
    await recovered(index);
    expect(started.documents()).toEqual(documentIds(...CATALOGUE));
  });
});

describe('without Meilisearch', () => {
  it('the program starts, finds by words and meaning what it has in memory, and catches up later', async () => {
    await using started = await start({ engineUp: false });
    const { index, double } = started;
    await update(index, { upserted: CATALOGUE });
    expect(index.degraded).toMatch(/Meilisearch unavailable/);
    expect(await find(index, 'zebra')).toHaveLength(6);
    expect((await index.find(index.ask('feeding'))).candidates[0]?.semantic).toBeGreaterThan(0.3);
    await double.start();
    await recovered(index);
    expect(started.documents()).toEqual(documentIds(...CATALOGUE));
    await index.find(index.ask('zebra'));
    expect(double.searches()).toHaveLength(2);
  });

  it('changes take effect, and the engine receives them once it recovers', async () => {
    await using started = await start();
    const { index, double } = started;
    await update(index, { upserted: CATALOGUE });
    await double.stop();
    await update(index, { upserted: [mail], removed: ['a', 'b'] });
    expect(await find(index, 'inbox')).toEqual(['mail']);
    expect(index.degraded).toMatch(/Meilisearch unavailable/);
    await double.start();
    await recovered(index);
    expect(started.documents()).toEqual(documentIds(...CATALOGUE.slice(2), mail));
  });

  it('whose documents somebody deleted, searches find all the same, and it is given them again', async () => {
    await using started = await start();
    await update(started.index, { upserted: CATALOGUE });
    for (const { documents } of started.double.indexes.values()) documents.clear();
    expect(await find(started.index, 'zebra')).toEqual(['a', 'b', 'c', 'd', 'e', 'f']);
    expect(started.index.degraded).toBe('Meilisearch unavailable');
    await recovered(started.index);
    expect(started.documents()).toEqual(documentIds(...CATALOGUE));
  });

  it('that lost its data, the index is built again', async () => {
    await using started = await start();
    const { index, double } = started;
    await update(index, { upserted: CATALOGUE });
    double.indexes.clear();
    expect(await find(index, 'zebra')).toHaveLength(6);
    expect(index.degraded).toBeDefined();
    await recovered(index);
    expect(started.documents()).toEqual(documentIds(...CATALOGUE));
  });

  it.each(['silent', 'broken', 'html', 'nonsense'] as const)(
    'that responds to every search %s, search falls back, and the engine is used again only after a successful check',
    async mode => {
      await using started = await start();
      const { index, double } = started;
      await update(index, { upserted: CATALOGUE });
      double.onlySearches = true;
      double.mode = mode;
      expect(await find(index, 'zebra')).toHaveLength(6);
      expect(index.degraded).toMatch(/Meilisearch unavailable/);
      expect(await find(index, 'zebra')).toHaveLength(6);
      expect(started.messages()).toHaveLength(1);
      double.mode = 'right';
      await recovered(index);
      const before = double.searches().length;
      expect(await find(index, 'zebra')).toHaveLength(6);
      expect(double.searches()).toHaveLength(before + 2);
    },
  );

  it.each(['broken', 'html', 'nonsense'] as const)(
    'that responds to everything %s, changes take effect',
    async mode => {
      await using started = await start();
      const { index, double } = started;
      await update(index, { upserted: CATALOGUE });
      double.mode = mode;
      await update(index, { upserted: [mail] });
      expect(await find(index, 'inbox')).toEqual(['mail']);
      double.mode = 'right';
      await recovered(index);
      expect(started.documents()).toContain('mailP0');
    },
  );

  it('that knows another key, the program serves; the log says why and has no key', async () => {
    await using started = await start({ apiKey: 'a-wrong-key-that-nobody-may-read' });
    await update(started.index, { upserted: CATALOGUE });
    expect(started.index.degraded).toMatch(/Meilisearch rejected the key.*MEILISEARCH_API_KEY/);
    expect(started.text()).toContain('The provided API key is invalid');
    expect(started.text()).not.toContain('nobody-may-read');
    expect(await find(started.index, 'zebra')).toHaveLength(6);
  });

  it('the log says so once, however long it lasts and whoever notices, and once more the next time', async () => {
    await using started = await start();
    const { index, double, clock } = started;
    await update(index, { upserted: CATALOGUE });
    for (const outages of [1, 2]) {
      await double.stop();
      for (let hour = 0; hour < 3; hour++) {
        clock.time += 3_600_000;
        await Promise.all([find(index, 'zebra'), find(index, 'feeds')]);
        await update(index, { upserted: [mail], removed: ['a'] });
      }
      expect(started.messages()).toEqual(
        Array(outages).fill('Meilisearch unavailable: candidates are found without it until it recovers'),
      );
      await double.start();
      await recovered(index);
    }
    expect(started.text().match(/ECONNREFUSED/g)).toHaveLength(2);
  });

  it('that is only slow with its tasks, searches go on', async () => {
    await using started = await start();
    const { index, double } = started;
    await update(index, { upserted: CATALOGUE });
    double.paused = true;
    const changed = update(index, { upserted: [mail] });
    await vi.waitFor(() => expect(double.tasks.at(-1)?.status).toBe('enqueued'), 60_000);
    expect(await find(index, 'zebra')).toHaveLength(6);
    expect(index.degraded).toBeUndefined();
    double.paused = false;
    double.work();
    await changed;
    expect(await find(index, 'inbox')).toEqual(['mail']);
  });
});

describe('the evidence of what Meilisearch finds', () => {
  it('is read from memory while the database cannot be read; if there is none, the search fails; it recovers afterwards', async () => {
    const db = await openTestDatabase();
    await using double = await startMeilisearchDouble();
    const { embedder } = controlledEmbedder();
    const { log, messages } = recordingLog();
    const clock = settableClock(Date.now());
    let isDown = false;
    const failing: Database = Object.create(db.db, {
      select: {
        get() {
          if (isDown) throw new Error('the database is down');
          return db.db.select.bind(db.db);
        },
      },
    });
    const open = async (evidenceBytes?: number) => {
      const catalogue = catalogueDouble();
      const { readServers } = catalogue;
      const context = { url: double.url, embedder, log, clock, db: failing, readServers };
      const index = await createMeilisearchIndex({ ...context, ...(evidenceBytes ? { evidenceBytes } : {}) });
      return catalogue.follow(index);
    };
    // One of them has too little memory for any evidence.
    const [roomy, tight] = [await open(), await open(1)];
    for (const index of [roomy, tight]) await update(index, { upserted: [weather, mail] });
    isDown = true;
    expect(await find(roomy, 'inbox')).toEqual(['mail']);
    expect(roomy.degraded).toBeUndefined();
    await expect(find(tight, 'inbox')).rejects.toThrow('the database is down');
    await expect(find(tight, 'inbox')).rejects.toThrow('the database is down');
    expect(tight.degraded).toBe('search evidence not readable: ranking only what is in memory');
    expect(messages()).toHaveLength(1);
    isDown = false;
    expect(await find(tight, 'inbox')).toEqual(['mail']);
    expect(tight.degraded).toBeUndefined();
    await Promise.all([roomy, tight].map(index => index.close()));
    await db.close();
  });

  it('takes in vectors that were missing, in the engine and in memory, when the servers are indexed anew', async () => {
    await using started = await start();
    const { index, control, double } = started;
    const real = control.embedder.embed;
    let isMissing = true;
    // As the embedding API does for texts to be kept while it is down.
    control.embedder.embed = async texts =>
      isMissing ? texts.map(() => new Float32Array(control.embedder.dimensions)) : real(texts, 'index');
    await update(index, { upserted: [weather, mail, ...CATALOGUE] });
    const embeddings = () =>
      [...double.indexes.values()].flatMap(({ documents }: any) =>
        documentIds(mail).flatMap(id => documents.get(id)._vectors.switchboard.embeddings),
      );
    expect(embeddings()).toEqual([]);
    expect(await find(index, 'inbox')).toEqual(['mail']);
    isMissing = false;
    await update(index, { upserted: [weather, mail, ...CATALOGUE] });
    expect(embeddings()).toHaveLength(3);
    const found = (await index.find(index.ask('search inbox'))).candidates;
    expect(found.find(({ serverId }) => serverId === 'mail')?.semantic).toBeGreaterThan(0.4);
  });
});
