import { isDeepStrictEqual } from 'node:util';
import { sql } from 'drizzle-orm';
import { Client } from 'pg';
import { afterEach, beforeEach, describe, expect, inject, it } from 'vitest';
import { Catalogue, type CatalogueChange } from '../../../src/core/catalogue/catalogue.ts';
import type { Entry } from '../../../src/core/catalogue/entry.ts';
import { followChanges } from '../../../src/core/catalogue/change-feed.ts';
import type { OpenDatabase } from '../../../src/platform/database/database.ts';
import { createLog } from '../../../src/platform/telemetry/log.ts';
import { openPostgres } from '../../../src/platform/database/postgres.ts';
import { createDatabase, type TestDatabase } from '../../support/postgres.ts';
import { eventually } from '../../support/processes.ts';
import { wholeOf } from './whole.ts';

const entry = (id: string, description = `Does ${id}.`, tools: Entry['tools'] = []): Entry => ({
  id,
  name: id.toUpperCase(),
  description,
  remote_url: `https://${id}.example/mcp`,
  tools,
});
const tool = (name: string, description: string) => ({ name, description, input_schema: { type: 'object' } });

/** The longest time of a timer: so what is seen was told. */
const NEVER = 2 ** 31 - 1;

/** A catalogue as one process has it, over connections of its own, and what its index was told. */
interface Replica extends AsyncDisposable {
  readonly catalogue: Catalogue;
  readonly database: OpenDatabase;
  readonly told: CatalogueChange[];
  readonly lines: string[];
  /** What the index waits for before it is ready with a change. */
  gate: Promise<unknown>;
}

describe.skipIf(inject('postgresUrl') === undefined)('catalogues on one Postgres', () => {
  let stack: AsyncDisposableStack;
  let database: TestDatabase;
  let a: Replica;
  let b: Replica;
  beforeEach(async () => {
    stack = new AsyncDisposableStack();
    database = stack.use(await createDatabase());
    a = stack.use(await replica());
    b = stack.use(await replica());
  });
  afterEach(() => stack.disposeAsync());

  async function replica({ isTold = true } = {}): Promise<Replica> {
    const opened = new AsyncDisposableStack();
    const own = await openPostgres(database.url, { poolSize: 2 });
    opened.defer(() => own.close());
    const lines: string[] = [];
    const log = createLog('info', { write: (line: string) => void lines.push(JSON.parse(line).msg) });
    const catalogue = await Catalogue.load(own.db, undefined, { shared: true });
    if (isTold) opened.use(followChanges(() => catalogue.catchUp(), database.url, log, NEVER));
    const one: Replica = {
      catalogue,
      database: own,
      told: [],
      lines,
      gate: Promise.resolve(),
      [Symbol.asyncDispose]: () => opened.disposeAsync(),
    };
    await catalogue.attachIndex(async change => {
      await one.gate;
      return () => Promise.resolve(void one.told.push(change));
    });
    one.told.length = 0;
    return one;
  }

  const activeIn = ({ catalogue }: Replica) => [...catalogue.active()].map(({ id }) => id).sort();
  const serversIn = ({ catalogue }: Replica) =>
    Promise.all(Array.from(catalogue.active(), ({ id }) => wholeOf(catalogue, id)));
  const isSame = async () => isDeepStrictEqual(await serversIn(a), await serversIn(b));
  const put = (one: Replica, entries: readonly Entry[], replace = false) =>
    one.catalogue.put(entries, { origin: 'operator', replace });

  it('a process sees what another puts, lists, deactivates and replaces, and its index hears of nothing else', async () => {
    await put(a, [entry('mail', 'Mail.', [tool('send', 'Sends.')]), entry('maps')]);
    await eventually('both have both', () => activeIn(b).length === 2);
    expect(await wholeOf(b.catalogue, 'mail')).toEqual(await wholeOf(a.catalogue, 'mail'));

    await a.catalogue.refreshTools(
      a.catalogue.require('mail'),
      [{ name: 'send', description: 'Sends a mail.', inputSchema: { type: 'object' } }],
      1_000,
    );
    await eventually('the tools are there', () => b.catalogue.get('mail')?.toolsListedAt === 1_000);
    expect(await wholeOf(b.catalogue, 'mail')).toEqual(await wholeOf(a.catalogue, 'mail'));

    await b.catalogue.deactivate('maps');
    await eventually('it is gone', () => activeIn(a).length === 1);
    expect(() => a.catalogue.require('maps')).toThrow(/no longer active/);

    await put(a, [entry('docs')], true);
    await eventually('it is replaced', () => activeIn(b).join() === 'docs');
    const seen = b.told.map(({ upserted, removed, whole }) => [
      upserted.map(({ id }) => id).sort(),
      removed,
      whole?.parts,
    ]);
    expect(seen).toEqual([
      [['mail', 'maps'], [], undefined],
      [['mail'], [], undefined],
      [[], ['maps'], undefined],
      // Seen at once, as where it was made.
      [['docs'], ['mail'], 1],
    ]);
  });

  it('what one learns of access, the other shows without indexing it again', async () => {
    await put(a, [entry('mail')]);
    await eventually('the other has it', () => activeIn(b).length === 1);
    b.told.length = 0;
    await a.catalogue.learnAccess('mail', 'https://mail.example/mcp', { kind: 'oauth', scopes: ['read'] });
    await eventually('the other shows it', () => b.catalogue.get('mail')?.learned !== undefined);
    expect(await wholeOf(b.catalogue, 'mail')).toEqual(await wholeOf(a.catalogue, 'mail'));
    await Promise.all([a.catalogue.catchUp(), b.catalogue.catchUp()]);
    expect(b.told).toEqual([]);
    await put(b, [entry('mail', 'Sends mail.')]);
    await eventually(
      'the change is back',
      async () => (await wholeOf(a.catalogue, 'mail'))?.description === 'Sends mail.',
    );
    expect(a.catalogue.get('mail')?.learned).toEqual({ kind: 'oauth', scopes: ['read'] });
  });

  it('own changes, and rows rewritten without a change, are not taken over again', async () => {
    const large = Array.from({ length: 80 }, (_, at) => tool(`t${at}`, 'x'.repeat(900)));
    await put(a, [entry('large', 'Large.', large), entry('mail')]);
    await eventually('the other has it', () => activeIn(b).length === 2);
    expect(await wholeOf(b.catalogue, 'large')).toEqual(await wholeOf(a.catalogue, 'large'));
    await put(a, [entry('large', 'Large.', structuredClone(large)), entry('mail')]);
    await Promise.all([a.catalogue.catchUp(), b.catalogue.catchUp()]);
    expect([a.told.length, b.told.length]).toEqual([2, 1]);

    // Only a later part of its tools differs: the row itself stays as it is.
    const other = large.with(79, tool('t79', 'Something else.'));
    await put(a, [entry('large', 'Large.', other)]);
    await eventually(
      'the tool is there',
      async () => (await wholeOf(b.catalogue, 'large'))?.tools[79]?.description === 'Something else.',
    );
  });

  it('a change that is committed after a later one is not missed', async () => {
    const slow = new Client({ connectionString: database.url });
    await slow.connect();
    try {
      await put(a, [entry('mail'), entry('maps')]);
      await eventually('the other has both', () => activeIn(b).length === 2);
      await slow.query('begin');
      await slow.query(`update servers set name = 'Slow' where id = 'mail'`);
      await put(a, [entry('docs')]);
      await eventually('the later one is seen', () => activeIn(b).length === 3);
      expect(b.catalogue.get('mail')?.name).toBe('MAIL');
      await slow.query('commit');
      await eventually('the earlier one is seen', () => b.catalogue.get('mail')?.name === 'Slow');
    } finally {
      await slow.end();
    }
  });

  it('a lost connection is restored, and changes made meanwhile are seen', async () => {
    const listening = () =>
      a.database.db.execute(
        sql`select pid from pg_stat_activity where application_name = 'switchboard-listen' and datname = current_database() and query like 'listen%'`,
      ) as unknown as Promise<{ rows: { pid: number }[] }>;
    await eventually('both listen', async () => (await listening()).rows.length === 2);
    const before = new Set((await listening()).rows.map(({ pid }) => pid));
    await a.database.db.execute(
      sql`select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'switchboard-listen' and datname = current_database()`,
    );
    await put(a, [entry('mail')]);
    await eventually('it is seen', () => activeIn(b).length === 1);
    await eventually('both listen again', async () => {
      const { rows } = await listening();
      return rows.length === 2 && rows.every(({ pid }) => !before.has(pid));
    });
    await eventually('and say so', () => b.lines.length === 2);
    expect(b.lines).toEqual([
      'cannot listen for changes of other processes: polling every few seconds',
      'listening for changes of other processes again',
    ]);
    await put(a, [entry('maps')]);
    await eventually('it is seen', () => activeIn(b).length === 2);
  });

  it('a process that hears no notification looks for changes every few seconds', async () => {
    await using deaf = await replica({ isTold: false });
    // Notifications go to listeners on the same database alone.
    await using elsewhere = await createDatabase();
    const catchUp = () => deaf.catalogue.catchUp();
    await using _following = followChanges(catchUp, elsewhere.url, createLog('silent'), 10);
    await put(a, [entry('mail')]);
    await eventually('it is seen', () => activeIn(deaf).length === 1);
  });

  it('the last write of a server wins in every process', async () => {
    await put(a, [entry('mail')]);
    await eventually('both have it', () => activeIn(b).length === 1);
    const { promise: gate, resolve: open } = Promise.withResolvers<void>();
    b.gate = gate;
    // Under way at `b`, with what it knew before, while `a` writes and is done.
    const late = put(b, [entry('mail', 'By b.'), entry('docs')], true);
    const deactivated = b.catalogue.deactivate('docs');
    await eventually('it is under way', () => b.catalogue.isWriting);
    await put(a, [entry('mail', 'By a.'), entry('maps')]);
    expect((await wholeOf(b.catalogue, 'mail'))?.description).toBe('Does mail.');
    open();
    await Promise.all([late, deactivated]);
    await eventually(
      'both have the same',
      async () => (await isSame()) && activeIn(a).join() === 'mail,maps',
    );
    expect((await wholeOf(a.catalogue, 'mail'))?.description).toBe('By b.');
    expect(() => a.catalogue.require('docs')).toThrow(/no longer active/);
  });

  it('a change that cannot be prepared is retried and holds up no change made here', async () => {
    const failing = Promise.reject(new Error('no vectors'));
    failing.catch(() => {});
    b.gate = failing;
    await put(a, [entry('mail')]);
    await eventually('it was tried', () => b.lines.length === 1);
    expect(activeIn(b)).toEqual([]);
    b.gate = Promise.resolve();
    await put(b, [entry('maps')]);
    expect(activeIn(b)).toEqual(['mail', 'maps']);
    await eventually('both have the same', isSame);
  });
});
