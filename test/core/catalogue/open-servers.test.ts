import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Catalogue } from '../../../src/core/catalogue/catalogue.ts';
import type { Entry } from '../../../src/core/catalogue/entry.ts';
import { OpenServers } from '../../../src/core/catalogue/open-servers.ts';
import { servers } from '../../../src/core/catalogue/schema.ts';
import type { OpenDatabase } from '../../../src/platform/database/database.ts';
import { openTestDatabase } from '../../support/database.ts';
import { recordingLog, settableClock } from '../search/support.ts';

const URL = 'https://maps.example/mcp';
const entry = (auth?: Entry['auth']): Entry => ({
  id: 'maps',
  name: 'Maps',
  description: 'Shows maps.',
  remote_url: URL,
  auth,
});
const DONE = { content: [{ type: 'text', text: 'Bonn is in Germany.' }] };
const says = (text: string) => ({ content: [{ type: 'image' }, { type: 'text', text }] });

describe('a tool that ran', () => {
  let database: OpenDatabase;
  let catalogue: Catalogue;
  beforeAll(async () => void (database = await openTestDatabase()));
  afterAll(() => database.close());
  beforeEach(async () => {
    await database.db.delete(servers);
    catalogue = await Catalogue.load(database.db);
    await catalogue.put([entry()], { origin: 'operator' });
  });

  const { log, messages } = recordingLog();
  const openServers = (
    of: Pick<Catalogue, 'hasUnknownAccess' | 'isClosedByRefusal' | 'learnAccess'> = catalogue,
  ) => new OpenServers(of, log, settableClock());
  const maps = () => catalogue.require('maps');
  const learned = () => catalogue.get('maps')?.learned;

  it('in a call that carried no credential shows that its server is open', async () => {
    await openServers().learn(maps(), { result: DONE });
    expect(learned()).toEqual({ kind: 'none' });
    expect((await Catalogue.load(database.db)).get('maps')?.learned).toEqual({ kind: 'none' });
  });

  it('counts only where neither the entry nor the server says anything else', async () => {
    const isAsked: unknown[] = [catalogue.hasUnknownAccess('gone')];
    for (const kind of ['none', 'static_header', 'own_oauth', 'unknown'] as const) {
      await catalogue.put([entry({ kind })], { origin: 'operator' });
      isAsked.push(catalogue.hasUnknownAccess('maps'));
    }
    await catalogue.learnAccess('maps', URL, { kind: 'none' });
    isAsked.push(catalogue.hasUnknownAccess('maps'));
    expect(isAsked).toEqual([false, false, false, false, true, false]);
  });

  it.each(['none', 'unknown'] as const)(
    'opens a server of kind %s that had refused a call, once an hour',
    async kind => {
      await catalogue.put([entry({ kind })], { origin: 'operator' });
      const refusal = { kind: 'oauth', scopes: ['read'] } as const;
      const clock = settableClock();
      const openedOnce = new OpenServers(catalogue, log, clock);
      await catalogue.learnAccess('maps', URL, refusal);
      await openedOnce.learn(maps(), { result: DONE });
      expect(learned()).toEqual({ kind: 'none' });
      // One that refuses some tools is not written at each call.
      await catalogue.learnAccess('maps', URL, refusal);
      await openedOnce.learn(maps(), { result: DONE });
      expect(learned()).toEqual(refusal);
      clock.time += 3_600_001;
      await openedOnce.learn(maps(), { result: DONE });
      expect(learned()).toEqual({ kind: 'none' });
    },
  );

  it('does not open a server whose entry says what it requires', async () => {
    await catalogue.put([entry({ kind: 'static_header' })], { origin: 'operator' });
    await catalogue.learnAccess('maps', URL, { kind: 'oauth' });
    await openServers().learn(maps(), { result: DONE });
    expect(learned()).toEqual({ kind: 'oauth' });
  });

  it('does not count for an address to which its server has moved in the meantime', async () => {
    const moved = { ...entry(), remote_url: 'https://new.example/mcp' };
    const called = maps();
    await catalogue.put([moved], { origin: 'operator' });
    await openServers().learn(called, { result: DONE });
    expect([catalogue.get('maps')?.remoteUrl, learned()]).toEqual([moved.remote_url, undefined]);
  });

  it.each([
    'Error: missing API key. Get one at https://maps.example/keys.',
    'Please sign in first.',
    'Request failed with status code 401',
    'Unauthorized',
    'Authentication required',
  ])('and says %j shows nothing, although it was no error', async text => {
    await openServers().learn(maps(), { result: says(text) });
    expect(learned()).toBeUndefined();
    await openServers().learn(maps(), { result: says('The author of the map is Alice, route 4012.') });
    expect(learned()).toEqual({ kind: 'none' });
  });

  it('does not fail because that cannot be stored, which is logged once a minute', async () => {
    const learnAccess = () => Promise.reject(new Error('the disk is full'));
    const failing = openServers({
      hasUnknownAccess: () => true,
      isClosedByRefusal: () => false,
      learnAccess,
    });
    for (let at = 0; at < 3; at++) await failing.learn(maps(), { result: DONE });
    expect(messages()).toEqual(['failed to store learned access']);
  });
});
