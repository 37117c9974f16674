import { sql } from 'drizzle-orm';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { rows, type OpenDatabase } from '../../src/platform/database/database.ts';
import { openTestDatabase } from '../support/database.ts';
import { listed, startRegistry, type RegistryServer } from '../support/registry.ts';
import { scrape, sumOf } from '../support/scrape.ts';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';
import { startV2Server, type V2Server } from '../support/upstreams/v2.ts';

let upstream: V2Server;
let registry: RegistryServer;
let database: OpenDatabase;
let sb: RunningSwitchboard;

beforeAll(async () => {
  upstream = await startV2Server();
  registry = await startRegistry([listed('com.example/tides')]);
  database = await openTestDatabase();
  sb = await startTestSwitchboard({
    catalogue: [
      { id: 'v2', remote_url: upstream.url },
      { id: 'old', remote_url: upstream.url },
    ],
    database: () => Promise.resolve(database),
  });
  // What a server lists is also brought in by itself, the first time at once.
  await post('/catalogue/v2/tools');
  await database.db.execute(sql`create function broken() returns trigger language plpgsql as
    $$ begin raise exception 'the disk is full'; end $$`);
});
afterAll(async () => {
  await sb[Symbol.asyncDispose]();
  await registry[Symbol.asyncDispose]();
  await upstream[Symbol.asyncDispose]();
});

const post = (path: string, body: unknown = '') => sb.admin.request('POST', path, body);
const importNew = () =>
  post(
    '/catalogue/import?replace=true',
    JSON.stringify({
      id: 'new',
      name: 'New',
      description: 'A server.',
      remote_url: 'https://new.example/mcp',
    }),
  );
/** Everything that a change of the catalogue or its entry could leave behind. */
const stored = async () => ({
  servers: await rows(database.db, sql`select * from servers order by id`),
  audit: await rows(database.db, sql`select id from audit_log order by id`),
  settings: await rows(database.db, sql`select * from settings order by key`),
});
/** How often an event of the audit log was told elsewhere. */
const told = async () => ({
  lines: sb.logged().split('"msg":"audit event"').length - 1,
  count: sumOf(await scrape(sb.url), 'switchboard_audit_events_total'),
});
const known = () =>
  Promise.all(
    ['v2', 'old', 'new', 'com.example_tides'].map(async id => {
      const { status, json } = await sb.admin.request('GET', `/catalogue/${id}`);
      return [id, status, json.active, json.tools_listed_at];
    }),
  );

/** Where the database gives up: at the entry, or when all has been written. */
const BREAKS = [
  { when: 'at the entry', trigger: sql`create trigger broken before insert on audit_log`, times: 0 },
  {
    when: 'at the commit',
    trigger: sql`create constraint trigger broken after insert on audit_log deferrable initially deferred`,
    // The row was there.
    times: 1,
  },
];
const CHANGES: readonly { what: string; change: () => Promise<{ status: number }> }[] = [
  { what: 'an import', change: importNew },
  { what: 'a sync', change: () => post('/catalogue/sync', { url: registry.url }) },
  { what: 'a reading of tools', change: () => post('/catalogue/v2/tools') },
  { what: 'a deactivation', change: () => post('/catalogue/old/deactivate') },
  { what: 'a new key', change: () => post('/keys', { name: 'x' }) },
];

describe.each(BREAKS)('a database that fails $when [admin.audit]', ({ trigger, times }) => {
  it.each(CHANGES)('leaves neither $what nor its entry', async ({ change }) => {
    const before = [await stored(), await known()];
    const { lines, count } = await told();
    await database.db.execute(sql`${trigger} for each row execute function broken()`);
    const answer = await change();
    await database.db.execute(sql`drop trigger broken on audit_log`);
    expect(answer.status).toBe(500);
    expect([await stored(), await known()]).toEqual(before);
    expect(await told()).toEqual({ lines: lines + times, count: count + times });
  });
});

it('the same changes stand with one entry each, logged and counted, when it does not', async () => {
  for (const { what, change } of CHANGES.toReversed()) {
    const before = (await stored()).audit.length;
    const { lines, count } = await told();
    expect([what, (await change()).status]).toEqual([what, 200]);
    expect([what, (await stored()).audit.length]).toEqual([what, before + 1]);
    expect([what, await told()]).toEqual([what, { lines: lines + 1, count: count + 1 }]);
  }
});
