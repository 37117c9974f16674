import { randomBytes } from 'node:crypto';
import { sql } from 'drizzle-orm';
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it } from 'vitest';
import type { Caller } from '../../../src/core/access/caller.ts';
import { Results, type ResultLimits } from '../../../src/core/results/results.ts';
import { keptResultParts, keptResults } from '../../../src/core/results/schema.ts';
import { Sealing } from '../../../src/platform/sealing.ts';
import {
  openDatabase,
  rows,
  type Database,
  type OpenDatabase,
} from '../../../src/platform/database/database.ts';
import { openTestDatabase } from '../../support/database.ts';
import { openPostgres } from '../../../src/platform/database/postgres.ts';
import { heapAfterCollection } from '../../support/fuzz/heap.ts';
import { createDatabase, type TestDatabase } from '../../support/postgres.ts';
import { temporaryFolder } from '../../support/program.ts';
import { caller, recordingLog, settableClock, silent } from '../search/support.ts';

const MIB = 1024 * 1024;
const PART_CHARS = 65_536;
const KEY = { id: 'k1', key: new Uint8Array(randomBytes(32)) };
const isPostgresMissing = inject('postgresUrl') === undefined;

/** Distinct everywhere, so that a text from the wrong place is seen. */
function numbered(chars: number): string {
  const lines: string[] = [];
  for (let length = 0, at = 0; length < chars; at++) {
    const line = `line ${at}\n`;
    lines.push(line);
    length += line.length;
  }
  return lines.join('').slice(0, chars);
}

const count = async (db: Database) => {
  const [row] = await rows<{ heads: number; parts: number }>(
    db,
    sql`select (select count(*) from ${keptResults}) heads, (select count(*) from ${keptResultParts}) parts`,
  );
  return row;
};

describe.each(['the embedded database', 'Postgres'])('stored results on %s', kind => {
  const shared = kind === 'Postgres';
  let server: TestDatabase | undefined;
  let database: OpenDatabase;
  beforeAll(async () => {
    if (shared && isPostgresMissing) return;
    if (shared) server = await createDatabase();
    database = server ? await openPostgres(server.url) : await openTestDatabase();
  });
  afterAll(async () => {
    await database?.close();
    await server?.[Symbol.asyncDispose]();
  });
  beforeEach(async context => {
    if (shared && isPostgresMissing) context.skip();
    await database.db.delete(keptResults);
    await database.db.delete(keptResultParts);
  });

  function start({ db = database.db, limits }: { db?: Database; limits?: Partial<ResultLimits> } = {}) {
    const { log, messages, text } = recordingLog();
    const clock = settableClock();
    const sealing = new Sealing([KEY], clock);
    return {
      results: new Results({ db, sealing, clock, log, shared, limits }),
      clock,
      messages,
      logged: text,
    };
  }

  async function kept(results: Results, text: string, who = caller): Promise<string> {
    const one = await results.keep(who, text);
    if (!one) throw new Error('not kept');
    return one.handle;
  }

  async function readWhole(
    results: Results,
    handle: string,
    maxChars: number,
    who = caller,
  ): Promise<string> {
    const pieces: string[] = [];
    for (let offset: number | undefined = 0; offset !== undefined;) {
      const part = await results.read(who, { handle, offset, maxChars });
      expect(part.offset).toBe(offset);
      pieces.push(part.text);
      offset = part.nextOffset;
    }
    return pieces.join('');
  }

  const missing = { code: 'result_not_found', status: 404 };

  describe('a stored result', () => {
    it('of 8 MiB can be read completely and unchanged', async () => {
      const { results, clock } = start();
      const text = numbered(8 * MIB);
      const one = await results.keep(caller, text);
      expect(one).toEqual({
        handle: expect.stringMatching(/^res_\w{22}$/),
        expiresAtMs: clock.time + 600_000,
      });
      const handle = one?.handle ?? '';
      expect(await readWhole(results, handle, 100_000)).toBe(text);
      expect(await results.read(caller, { handle, offset: 8 * MIB - 3, maxChars: 5 })).toEqual({
        ...one,
        offset: 8 * MIB - 3,
        text: text.slice(-3),
        totalChars: 8 * MIB,
      });
    });

    it('is counted in characters, and no character is ever halved', async () => {
      const { results } = start();
      const characters: string[] = Array.from({ length: 2 * PART_CHARS + 10 }, (_, at) =>
        at % 3 === 0 ? 'é' : '🐘',
      );
      characters[PART_CHARS] = 'X';
      const handle = await kept(results, characters.join(''));
      expect(await readWhole(results, handle, 9_999)).toBe(characters.join(''));
      const at = await results.read(caller, { handle, offset: PART_CHARS - 1, maxChars: 3 });
      expect(at).toMatchObject({
        text: characters.slice(PART_CHARS - 1, PART_CHARS + 2).join(''),
        nextOffset: PART_CHARS + 2,
        totalChars: characters.length,
      });
    });

    it.each([0, 1, PART_CHARS - 1, PART_CHARS, PART_CHARS + 1, 2 * PART_CHARS])(
      'of %i characters has that length, and nothing beyond it',
      async length => {
        const { results } = start();
        const text = numbered(length);
        const handle = await kept(results, text);
        expect(await readWhole(results, handle, PART_CHARS)).toBe(text);
        expect(await results.read(caller, { handle, offset: length, maxChars: 10 })).toMatchObject({
          text: '',
        });
        await expect(
          results.read(caller, { handle, offset: length + 1, maxChars: 10 }),
        ).rejects.toMatchObject({
          code: 'invalid_request',
          message: `offset: must be at most ${length}, the length of the result in characters`,
        });
      },
    );

    it('may hold what Postgres cannot store', async () => {
      const { results } = start();
      const handle = await kept(results, 'nul \0 and half \ud800!');
      expect(await readWhole(results, handle, 7)).toBe('nul \0 and half \ufffd!');
    });

    it('is in the database in no readable form', async () => {
      const { results } = start();
      await kept(results, 'the password is swordfish '.repeat(10_000));
      for (const table of [keptResults, keptResultParts]) {
        const dumped = JSON.stringify(await database.db.select().from(table));
        expect(dumped).not.toContain('swordfish');
        for (const shift of ['the password', 'he password ', 'e password i'])
          expect(dumped).not.toContain(Buffer.from(shift).toString('base64url').slice(0, 15));
      }
    });

    it('belongs to nobody else', async () => {
      const { results } = start();
      const user = { ...caller, subject: { userId: 'usr_1', epoch: 1 } };
      const others: Caller[] = [
        { ...user, tenantId: 'another' },
        { ...user, keyId: 'another' },
        { ...user, subject: { userId: 'usr_2', epoch: 1 } },
        caller,
      ];
      const handle = await kept(results, 'mine', user);
      for (const other of others) {
        await expect(results.read(other, { handle, offset: 0, maxChars: 10 })).rejects.toMatchObject(missing);
        await expect(results.find(other, { handle, find: 'mine', maxChars: 10 })).rejects.toMatchObject(
          missing,
        );
        // Not even that it has an end can be learned.
        await expect(results.read(other, { handle, offset: 99, maxChars: 1 })).rejects.toMatchObject(missing);
      }
      expect(await readWhole(results, handle, 10, { ...user, subject: { userId: 'usr_1', epoch: 2 } })).toBe(
        'mine',
      );
    });

    it('does not open for another whose id was written over the owner’s', async () => {
      const { results } = start();
      const handle = await kept(results, 'mine');
      await database.db.update(keptResults).set({ keyId: 'another' });
      const other = { ...caller, keyId: 'another' };
      await expect(results.read(other, { handle, offset: 0, maxChars: 10 })).rejects.toMatchObject(missing);
    });

    it('is stored for ten minutes', async () => {
      const { results, clock } = start();
      const handle = await kept(results, 'soon gone');
      clock.time += 599_999;
      expect(await readWhole(results, handle, 10)).toBe('soon gone');
      clock.time += 1;
      await expect(results.read(caller, { handle, offset: 0, maxChars: 10 })).rejects.toMatchObject(missing);
      await expect(results.find(caller, { handle, find: 'gone', maxChars: 9 })).rejects.toMatchObject({
        ...missing,
        message: `There is no stored result "${handle}". Results are stored for at most 10 minutes, and only for the key and the user that made the call. Repeat the call.`,
      });
    });

    it.each([
      '',
      'res_',
      'nonsense',
      'res_0123456789012345678901',
      `res_${'x'.repeat(5_000)}`,
      "res_' or '1",
    ])('is not found as %j', async handle => {
      const { results } = start();
      await expect(results.read(caller, { handle, offset: 0, maxChars: 1 })).rejects.toMatchObject(missing);
    });

    it('is read by every process on the database, with the same keys', async () => {
      const text = numbered(3 * PART_CHARS);
      const handle = await kept(start().results, text);
      expect(await readWhole(start().results, handle, 100_000)).toBe(text);
    });
  });

  describe('what is found in it', () => {
    const find = async (text: string, query: string, more: { from?: number; maxChars?: number } = {}) => {
      const { results } = start();
      const handle = await kept(results, text);
      return {
        ...(await results.find(caller, { handle, find: query, maxChars: 20_000, ...more })),
        handle,
        results,
      };
    };

    it('is a line with the one before and after it, in either case', async () => {
      const text = numbered(200_000);
      const { matches, nextFrom, totalChars } = await find(text, 'LINE 7777');
      const offset = text.indexOf('line 7776\n');
      expect(matches).toEqual([{ offset, text: 'line 7776\nline 7777\nline 7778' }]);
      expect({ nextFrom, totalChars }).toEqual({ totalChars: 200_000 });
    });

    it('is everywhere around the border of two parts', async () => {
      for (let shift = -12; shift <= 2; shift++) {
        const before = '🐘'.repeat(PART_CHARS + shift - 1);
        const text = `${before}\nThe needle\nis here${'.'.repeat(PART_CHARS)}`;
        const { matches, handle, results } = await find(text, 'needle');
        // The line after is too long to be shown.
        expect(matches).toEqual([{ offset: PART_CHARS + shift, text: 'The needle' }]);
        const part = await results.read(caller, { handle, offset: PART_CHARS + shift, maxChars: 10 });
        expect(part.text).toBe('The needle');
      }
    });

    it('is empty where nothing matches, and a dot matches only a dot', async () => {
      const found = await find('a.b\nacb\n(x)+[y]\n', 'A.B');
      expect(found.matches).toEqual([{ offset: 0, text: 'a.b\nacb' }]);
      expect((await find('aaa', 'b')).matches).toEqual([]);
      expect(await find('', 'b')).toMatchObject({ matches: [], totalChars: 0 });
      expect((await find('a (x)+[y]$^|\\/ {2}', '(X)+[Y]$^|\\/ {2}')).matches).toHaveLength(1);
    });

    it('is a window of a line that is very long', async () => {
      const text = `${'🐘'.repeat(100_000)} needle ${'x'.repeat(100_000)}`;
      const { matches } = await find(text, 'needle');
      expect(matches).toEqual([
        { offset: 100_001 - 101, text: `${'🐘'.repeat(100)} needle ${'x'.repeat(199)}` },
      ]);
    });

    it('is one piece where pieces overlap, from a hit to the next', async () => {
      const text = `0\n1 hit\n2\n3 hit\n4\n${'5\n'.repeat(300)}6 hit\n7`;
      const { matches } = await find(text, 'hit');
      expect(matches.map(one => one.text)).toEqual(['0\n1 hit\n2\n3 hit\n4', '5\n6 hit\n7']);
      expect(matches.map(one => text.indexOf(one.text))).toEqual(matches.map(one => one.offset));
    });

    it('fits into what was asked for; the next search goes on at the first that did not', async () => {
      const text = `${'.\n'.repeat(40)}a hit here\n`.repeat(5_000);
      const { matches, nextFrom = -1, handle, results } = await find(text, 'hit', { maxChars: 1_000 });
      expect(nextFrom).toBeGreaterThan(0);
      expect(matches.reduce((sum, one) => sum + one.text.length, 0)).toBeLessThanOrEqual(1_000);
      let seen = matches.length;
      for (let from: number | undefined = nextFrom; from !== undefined;) {
        expect(text.startsWith('hit', from)).toBe(true);
        const next = await results.find(caller, { handle, find: 'hit', from, maxChars: 20_000 });
        seen += next.matches.length;
        from = next.nextFrom;
      }
      expect(seen).toBe(5_000);
    });

    it('is the first hit at least, however little was asked for', async () => {
      const { matches, nextFrom } = await find('an elephant', 'ELEPHANT', { maxChars: 3 });
      expect({ matches, nextFrom }).toEqual({ matches: [{ offset: 3, text: 'ele' }] });
      expect((await find('one hit, two hits', 'hit', { from: 5, maxChars: 100 })).matches).toHaveLength(1);
      expect((await find('aaa', 'aa', { from: 1, maxChars: 100 })).matches).toHaveLength(1);
      expect((await find('aaa', 'aa', { from: 2, maxChars: 100 })).matches).toEqual([]);
    });

    it('is what a search of the whole text finds, whatever that is', async () => {
      for (let round = 0; round < 20; round++) {
        const words = ['needle', '\n', 'x', ' ', '🐘', 'Nee', 'DLE', `\n${'long '.repeat(120)}`, '\n\n'];
        const bytes = randomBytes(5_000);
        const text = Array.from(bytes, byte => (byte < 3 ? words[0] : words[1 + (byte % 8)])).join('');
        const { matches, nextFrom } = await find(text, 'needle', { maxChars: 10_000_000 });
        expect(nextFrom).toBeUndefined();
        const characters = Array.from(text);
        for (const one of matches)
          expect(characters.slice(one.offset, one.offset + Array.from(one.text).length).join('')).toBe(
            one.text,
          );
        const hits = (within: string) => within.toLowerCase().split('needle').length - 1;
        expect(matches.reduce((sum, one) => sum + hits(one.text), 0)).toBe(hits(text));
      }
    });

    it('needs 1 to 200 characters, and a place that the text has', async () => {
      const { results } = start();
      const handle = await kept(results, 'abc');
      const wrong = { code: 'invalid_request', message: 'find: must have 1 to 200 characters' };
      await expect(results.find(caller, { handle, find: '', maxChars: 9 })).rejects.toMatchObject(wrong);
      const long = '🐘'.repeat(201);
      await expect(results.find(caller, { handle, find: long, maxChars: 9 })).rejects.toMatchObject(wrong);
      await expect(results.find(caller, { handle, find: 'a', from: 4, maxChars: 9 })).rejects.toMatchObject({
        message: 'from: must be at most 3, the length of the result in characters',
      });
    });
  });

  describe('the bounds', () => {
    it('one result has at most 8 MiB', async () => {
      const { results, logged } = start();
      expect(await results.keep(caller, 'é'.repeat(4 * MIB + 1))).toBeUndefined();
      expect(logged()).toContain('too big');
      expect(await results.keep(caller, 'é'.repeat(4 * MIB))).toBeDefined();
    });

    it('the oldest of a key give way to its newest, those of other keys do not', async () => {
      const { results, clock } = start({ limits: { maxKeyBytes: 450_000 } });
      const other = { ...caller, keyId: 'another' };
      const others = await kept(results, numbered(100_000), other);
      const handles: string[] = [];
      for (let at = 0; at < 5; at++) {
        clock.time += 1;
        handles.push(await kept(results, numbered(100_000)));
      }
      const readable = await Promise.all(
        handles.map(handle =>
          results.read(caller, { handle, offset: 0, maxChars: 1 }).then(Boolean, () => false),
        ),
      );
      expect(readable).toEqual([false, false, true, true, true]);
      expect(await readWhole(results, others, 100_000, other)).toBe(numbered(100_000));
      expect(await count(database.db)).toEqual({ heads: 4, parts: 8 });
    });

    it('stores nothing while the total limit is reached, and logs this once a minute', async () => {
      const { results, clock, messages } = start({ limits: { maxAllBytes: 300_000 } });
      const keepAs = (keyId: string) => results.keep({ ...caller, keyId }, numbered(100_000));
      const all = await Promise.all(['a', 'b'].map(keepAs));
      expect(all.filter(Boolean)).toHaveLength(2);
      for (let at = 0; at < 5; at++) expect(await keepAs(`c${at}`)).toBeUndefined();
      expect(messages()).toEqual(['failed to store a tool result']);
      expect(await count(database.db)).toEqual({ heads: 2, parts: 4 });
      clock.time += 600_000;
      expect(await results.purge()).toBe(2);
      expect(await keepAs('d')).toBeDefined();
    });

    it('hold for all processes together', async () => {
      const limits = { maxAllBytes: 300_000 };
      const processes = Array.from({ length: 6 }, () => start({ limits }).results);
      const answers = await Promise.all(
        processes.map((results, at) => results.keep({ ...caller, keyId: `k${at}` }, numbered(100_000))),
      );
      expect(answers.filter(Boolean).length).toBeLessThanOrEqual(2);
      const [sum] = await rows<{ bytes: number }>(
        database.db,
        sql`select coalesce(sum(${keptResults.bytes}), 0) bytes from ${keptResults}`,
      );
      expect(sum?.bytes).toBeLessThanOrEqual(300_000);
    });

    it('count about what the database holds', async () => {
      const { results } = start();
      await kept(results, numbered(3 * MIB));
      const [sizes] = await rows<{ counted: number; held: number }>(
        database.db,
        sql`select (select sum(${keptResults.bytes}) from ${keptResults}) counted,
            (select sum(octet_length(${keptResultParts.sealed})) from ${keptResultParts}) held`,
      );
      expect((sizes?.counted ?? 0) / (sizes?.held ?? 1)).toBeGreaterThan(1);
      expect((sizes?.counted ?? 0) / (sizes?.held ?? 1)).toBeLessThan(1.05);
    });
  });

  describe('a result that could not be stored completely', () => {
    /** Fails with the so manyth statement. */
    function failingAt(at: number): Database {
      let statements = 0;
      return new Proxy(database.db, {
        get(target, name, receiver) {
          if (['insert', 'update', 'execute', 'delete'].includes(String(name)) && ++statements >= at)
            throw new Error('the database is down');
          return Reflect.get(target, name, receiver) as unknown;
        },
      });
    }

    it.each([1, 2, 3, 4, 5, 6])('cannot be read, whichever statement failed (%i)', async at => {
      const { results, messages, clock } = start({ db: failingAt(at) });
      // On Postgres eight parts are one statement.
      const answer = await results.keep(caller, numbered(17 * PART_CHARS));
      expect([answer, messages()]).toEqual([undefined, ['failed to store a tool result']]);
      const heads = await database.db.select().from(keptResults);
      expect(heads.map(one => one.totalChars)).toEqual(heads.map(() => null));
      const healthy = start().results;
      for (const { handle } of heads)
        await expect(healthy.read(caller, { handle, offset: 0, maxChars: 1 })).rejects.toMatchObject(missing);
      const later = start();
      later.clock.time = clock.time + 600_000;
      await later.results.purge();
      expect(await count(database.db)).toEqual({ heads: 0, parts: 0 });
    });

    it('leaves nothing behind when its caller disconnects', async () => {
      const leaving = new AbortController();
      const { results, messages } = start();
      const keeping = results.keep({ ...caller, signal: leaving.signal }, numbered(8 * MIB));
      leaving.abort();
      expect([await keeping, messages()]).toEqual([undefined, []]);
      expect(await count(database.db)).toEqual({ heads: 0, parts: 0 });
    });

    it('leaves no part behind when newer ones take its place while it is written', async () => {
      const { results, clock } = start({ limits: { maxKeyBytes: 3 * MIB } });
      const first = results.keep(caller, numbered(2 * MIB));
      clock.time += 1;
      const second = await results.keep(caller, numbered(2 * MIB));
      expect([await first, second]).toEqual([undefined, expect.anything()]);
      expect(await count(database.db)).toEqual({ heads: 1, parts: 32 });
    });

    it('parts without their result expire', async () => {
      const { results, clock } = start();
      await kept(results, numbered(20 * PART_CHARS));
      await database.db.delete(keptResults);
      clock.time += 599_999;
      await results.purge();
      expect(await count(database.db)).toEqual({ heads: 0, parts: 20 });
      clock.time += 1;
      await results.purge();
      expect(await count(database.db)).toEqual({ heads: 0, parts: 0 });
    });
  });

  it('is deleted by a process that runs, without being asked', async () => {
    const { results, clock } = start();
    await kept(results, numbered(20 * PART_CHARS));
    clock.time += 600_000;
    const other = start();
    other.clock.time = clock.time;
    other.results.start();
    await other.results.close();
    expect(await count(database.db)).toEqual({ heads: 0, parts: 0 });
  });

  it('new results use the room of deleted ones', async () => {
    const { results, clock } = start();
    const size = async () => {
      const [row] = await rows<{ bytes: number }>(
        database.db,
        sql`select pg_total_relation_size('kept_result_parts') bytes`,
      );
      return row?.bytes ?? 0;
    };
    const sizes: number[] = [];
    for (let round = 0; round < 4; round++) {
      for (let at = 0; at < 3; at++) await kept(results, numbered(8 * MIB));
      clock.time += 600_000;
      await results.purge();
      // A server does so by itself, in its own time.
      if (shared) await database.db.execute(sql`vacuum kept_result_parts`);
      sizes.push(await size());
    }
    expect(Math.max(...sizes)).toBeLessThan(60 * MIB);
  });
});

describe('a result in a data folder', () => {
  it('is read after a restart', async () => {
    await using folder = temporaryFolder();
    const clock = settableClock();
    const sealing = new Sealing([KEY], clock);
    const opened = async () => {
      const database = await openDatabase(folder.path);
      return {
        database,
        results: new Results({ db: database.db, sealing, clock, log: silent, shared: false }),
      };
    };
    const before = await opened();
    const kept = await before.results.keep(caller, numbered(100_000));
    await before.database.close();
    const after = await opened();
    const { text } = await after.results.read(caller, {
      handle: kept?.handle ?? '',
      offset: 0,
      maxChars: 100_000,
    });
    expect(text).toBe(numbered(100_000));
    await after.database.close();
  });
});

describe('keeping', () => {
  it('many results leaves nothing of them in memory', async () => {
    const database = await openTestDatabase();
    const clock = settableClock();
    const sealing = new Sealing([KEY], clock);
    const { log } = recordingLog();
    const results = new Results({ db: database.db, sealing, clock, log, shared: false });
    const keep = async (times: number) => {
      for (let at = 0; at < times; at++)
        await results.keep({ ...caller, keyId: `key${at % 100}` }, `${'x'.repeat(1_000)}${at}`);
    };
    await keep(300);
    const grownBytesEach: number[] = [];
    for (let batch = 0; batch < 4; batch++) {
      const before = heapAfterCollection();
      await keep(500);
      grownBytesEach.push((heapAfterCollection() - before) / 500);
    }
    expect(await count(database.db)).toEqual({ heads: 2_300, parts: 2_300 });
    // The heap grows for other reasons too, but what a result leaves is left in every batch.
    expect(Math.min(...grownBytesEach)).toBeLessThan(210);
    await database.close();
  });
});
