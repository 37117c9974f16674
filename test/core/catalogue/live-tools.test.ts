import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Catalogue } from '../../../src/core/catalogue/catalogue.ts';
import { hashOf, type Definition } from '../../../src/core/catalogue/tools/definitions.ts';
import type { Entry } from '../../../src/core/catalogue/entry.ts';
import { ToolRefresh } from '../../../src/core/catalogue/tools/refresh.ts';
import { warnedTools, warningsOf } from '../../../src/core/catalogue/tools/warnings.ts';
import { servers, toolDefinitions } from '../../../src/core/catalogue/schema.ts';
import type { OpenDatabase } from '../../../src/platform/database/database.ts';
import { openTestDatabase } from '../../support/database.ts';
import { createLog } from '../../../src/platform/telemetry/log.ts';
import { wholeOf } from './whole.ts';

const DAY_MS = 86_400_000;
const NOW = Date.UTC(2026, 10, 21);

let database: OpenDatabase;
let catalogue: Catalogue;
let logged: Record<string, unknown>[];
const log = () => createLog('trace', { write: (line: string) => void logged.push(JSON.parse(line)) });

beforeAll(async () => void (database = await openTestDatabase()));
afterAll(() => database.close());
beforeEach(async () => {
  await database.db.delete(servers);
  await database.db.delete(toolDefinitions);
  logged = [];
  catalogue = await Catalogue.load(database.db, log());
  await catalogue.put([A], { origin: 'shipped' });
});

const A: Entry = {
  id: 'a',
  name: 'A',
  description: 'Does a.',
  remote_url: 'https://a.example/mcp',
  tools: [{ name: 'shipped', description: 'As shipped.', input_schema: { type: 'object' } }],
};
const SERVER = { id: 'a', remoteUrl: 'https://a.example/mcp', tools: [] };
const tool = (name: string, description = `Runs ${name}.`, more: object = {}): Definition => ({
  name,
  description,
  inputSchema: { type: 'object' },
  ...more,
});
const toolsOf = async (stored: Catalogue) => (await wholeOf(stored, 'a'))?.tools ?? [];
const reload = () => Catalogue.load(database.db);
const names = async () => (await toolsOf(catalogue)).map(({ name }) => name);
const lines = (message: string) => logged.filter(({ msg }) => msg === message);

describe('refreshTools', () => {
  it("puts the server's own tools in the place of the entry's, keeps its origin, and survives a restart", async () => {
    await catalogue.refreshTools(SERVER, [tool('x'), tool('y')], NOW);
    const reloaded = await wholeOf(await reload(), 'a');
    expect(reloaded).toEqual(await wholeOf(catalogue, 'a'));
    expect(reloaded).toMatchObject({
      origin: 'shipped',
      toolsListedAt: NOW,
      tools: [{ name: 'x' }, { name: 'y' }],
    });
    await catalogue.put([A], { origin: 'shipped', replace: true });
    expect(await names()).toEqual(['shipped']);
    expect(catalogue.get('a')).not.toHaveProperty('toolsListedAt');
    expect((await Catalogue.load(database.db)).get('a')).not.toHaveProperty('toolsListedAt');
  });

  it('reindexes only if a text has changed', async () => {
    let prepared = 0;
    await catalogue.attachIndex(() => {
      prepared++;
      return Promise.resolve(() => Promise.resolve());
    });
    for (const description of ['One.', 'One.', 'Two.'])
      await catalogue.refreshTools(SERVER, [tool('x', description)], NOW);
    expect(prepared).toBe(3);
  });

  it('writes nothing for an unchanged listing with unlessSame', async () => {
    const row = async () => (await database.db.select().from(servers))[0];
    const refresh = (description: string, nowMs: number) =>
      catalogue.refreshTools(SERVER, [tool('shipped', description)], nowMs, { unlessSame: true });
    // The texts of the entry, which its server had never listed.
    await refresh('As shipped.', NOW);
    expect(catalogue.get('a')?.toolsListedAt).toBe(NOW);
    const before = await row();
    await refresh('As shipped.', NOW + DAY_MS);
    expect(await row()).toEqual(before);
    await refresh('Another.', NOW + DAY_MS);
    expect(catalogue.get('a')).toMatchObject({ toolsListedAt: NOW + DAY_MS });
    // The same to search, and yet another definition.
    const titled = [tool('shipped', 'Another.', { annotations: { destructiveHint: true } })];
    await catalogue.refreshTools(SERVER, titled, NOW + 2 * DAY_MS, { unlessSame: true });
    expect(catalogue.get('a')).toMatchObject({ toolsListedAt: NOW + 2 * DAY_MS });
  });

  it('takes at most maxNews new or changed tools, and the rest with the next listings', async () => {
    const refresh = (...tools: Definition[]) => catalogue.refreshTools(SERVER, tools, NOW, { maxNews: 1 });
    await refresh(tool('x'), tool('shipped', 'Another.'), tool('y'));
    // What is changed beyond that stays what it was, and is not a definition of its server's.
    expect(await names()).toEqual(['x', 'shipped']);
    expect((await toolsOf(catalogue))[1]).toEqual(A.tools?.[0]);
    expect(await database.db.select().from(toolDefinitions)).toMatchObject([{ tool: 'x' }]);
    await refresh(tool('x'), tool('shipped', 'Another.'), tool('y'));
    expect(await toolsOf(catalogue)).toMatchObject([
      { name: 'x' },
      { description: 'Another.', live: { hash: expect.any(String) } },
    ]);
    await refresh(tool('x'), tool('shipped', 'Another.'), tool('y'));
    expect(await names()).toEqual(['x', 'shipped', 'y']);
    expect(lines('tool definition changed')).toEqual([]);
  });

  it('changes nothing if aborted before the commit', async () => {
    const ending = new AbortController();
    await catalogue.attachIndex(({ upserted }) => {
      if (upserted[0]?.tools[0]?.name === 'x') ending.abort(new Error('enough'));
      return Promise.resolve(() => Promise.resolve());
    });
    const { signal } = ending;
    await expect(catalogue.refreshTools(SERVER, [tool('x')], NOW, { signal })).rejects.toThrow('enough');
    expect(await names()).toEqual(['shipped']);
    expect(await toolsOf(await reload())).toMatchObject([{ name: 'shipped' }]);
  });

  it('changes nothing for an empty listing, an inactive server, an address that is no longer its own', async () => {
    await catalogue.refreshTools(SERVER, [], NOW);
    await catalogue.refreshTools({ ...SERVER, remoteUrl: 'https://b.example/mcp' }, [tool('x')], NOW);
    expect(await names()).toEqual(['shipped']);
    await catalogue.deactivate('a');
    await catalogue.refreshTools(SERVER, [tool('x')], NOW);
    expect(await names()).toEqual(['shipped']);
  });

  it('leaves out and logs tools that are too large, cannot be stored or have hidden characters in their names', async () => {
    const deep = (levels: number): object => (levels === 0 ? {} : { a: deep(levels - 1) });
    const definitions = [
      tool('good'),
      tool('talks', 'x'.repeat(20_001)),
      tool('large', '', { inputSchema: { enum: ['x'.repeat(65_536)] } }),
      tool('deep', '', { inputSchema: deep(70) }),
      tool('nul', '', { inputSchema: { default: '\0' } }),
      tool('bi\u{202e}di'),
      tool('x'.repeat(257)),
      ...Array.from({ length: 1_000 }, (_, at) => tool(`t${at}`)),
    ];
    await catalogue.refreshTools(SERVER, definitions, NOW);
    expect((await names()).length).toBe(994);
    expect(lines('skipped a listed tool')).toHaveLength(7);
    expect(await toolsOf(await reload())).toHaveLength(994);
  });

  it('cleans texts and marks what was hidden in them', async () => {
    const inputSchema = { properties: { a: { description: 'the\u{200b} key', default: 'a\u{200b}b' } } };
    await catalogue.refreshTools(
      SERVER,
      [tool('x', 'Runs\u{202e} \u{1b}[31mx.\r\nOk.', { inputSchema })],
      NOW,
    );
    const [x] = await toolsOf(catalogue);
    expect(x).toMatchObject({
      description: 'Runs x.\nOk.',
      input_schema: { properties: { a: { description: 'the key', default: 'a\u{200b}b' } } },
      suspicious: ['hidden_text'],
    });
    const [reloaded] = await toolsOf(await reload());
    expect(reloaded?.suspicious).toEqual(['hidden_text']);
    await catalogue.refreshTools(
      SERVER,
      [tool('x', 'Runs\u{202e} \u{1b}[31mx.\r\nOk.', { inputSchema })],
      NOW,
    );
    expect(lines('suspicious tool definition')).toHaveLength(1);
  });
});

describe('a changed definition', () => {
  const warnings = async (nowMs = NOW) => (await toolsOf(catalogue)).map(each => warningsOf(each, nowMs));

  it('is one that differs from the last live one, not from the entry; for 7 days, across restarts and upgrades', async () => {
    await catalogue.refreshTools(SERVER, [tool('shipped', 'Live.')], NOW);
    expect(await warnings()).toEqual([[]]);
    await catalogue.put([A], { origin: 'shipped' });
    catalogue = await Catalogue.load(database.db, log());
    await catalogue.refreshTools(SERVER, [tool('shipped', 'Live, and more.')], NOW);
    expect(await warnings()).toEqual([['definition_changed']]);
    expect(lines('tool definition changed')).toEqual([
      expect.objectContaining({
        serverId: 'a',
        tool: 'shipped',
        oldHash: hashOf(tool('shipped', 'Live.')),
        newHash: hashOf(tool('shipped', 'Live, and more.')),
      }),
    ]);
    await catalogue.refreshTools(SERVER, [tool('shipped', 'Live, and more.')], NOW + DAY_MS);
    catalogue = await Catalogue.load(database.db, log());
    expect(await warnings(NOW + 7 * DAY_MS - 1)).toEqual([['definition_changed']]);
    expect(await warnings(NOW + 7 * DAY_MS)).toEqual([[]]);
  });

  it('is noticed after the tool was gone for a while', async () => {
    for (const listed of [[tool('x'), tool('y')], [tool('y')], [tool('x', 'Another.'), tool('y')]])
      await catalogue.refreshTools(SERVER, listed, NOW);
    expect(await warnings()).toEqual([['definition_changed'], []]);
  });

  it.each([
    ['description', { description: 'Another.' }],
    ['title', { title: 'T' }],
    ['inputSchema', { inputSchema: { type: 'object', required: [] } }],
    ['outputSchema', { outputSchema: {} }],
    ['annotations', { annotations: { readOnlyHint: true } }],
  ])('may change only its %s', (_field, change) => {
    expect(hashOf({ ...tool('x'), ...change })).not.toBe(hashOf(tool('x')));
  });

  it('ignores the order of members and fields that no model is told', () => {
    const one = tool('x', '', { inputSchema: { type: 'object', properties: { a: {}, b: {} } } });
    const other = tool('x', '', {
      inputSchema: { properties: { b: {}, a: {} }, type: 'object' },
      _meta: { at: 1 },
    });
    expect(hashOf(one)).toBe(hashOf(other));
  });

  it('is marked in a listing before the catalogue has it', async () => {
    await catalogue.refreshTools(SERVER, [tool('x')], NOW);
    const server = await catalogue.readActive('a');
    expect(warnedTools(server, [tool('x'), tool('new')], NOW).map(each => each['warnings'])).toEqual([
      undefined,
      undefined,
    ]);
    expect(warnedTools(server, [tool('x', 'Another.')], NOW)).toMatchObject([
      { warnings: ['definition_changed'] },
    ]);
  });

  it('is none for a server that an operator moved to another address', async () => {
    await catalogue.refreshTools(SERVER, [tool('x')], NOW);
    const remoteUrl = 'https://moved.example/mcp';
    await catalogue.put([{ ...A, remote_url: remoteUrl }], { origin: 'operator' });
    await catalogue.refreshTools({ id: 'a', remoteUrl }, [tool('x', 'Another.')], NOW);
    expect(await warnings()).toEqual([[]]);
  });

  it('is remembered for 2,000 tools a server at most', async () => {
    for (let round = 0; round < 3; round++) {
      const listed = Array.from({ length: 900 }, (_, at) => tool(`r${round}-${at}`));
      await catalogue.refreshTools(SERVER, listed, NOW + round);
    }
    expect(await database.db.$count(toolDefinitions)).toBe(2_000);
  });
});

describe('ToolRefresh', () => {
  it('stores a changed definition at once and logs it once, at most once in ten minutes', async () => {
    let nowMs = NOW;
    const refresh = new ToolRefresh({ catalogue, clock: { now: () => nowMs }, log: log() });
    const offer = async (...tools: Definition[]) => {
      refresh.offer(await catalogue.readCalled('a'), tools);
      await catalogue.settled();
    };
    const changes = () => lines('tool definition changed').length;
    await offer(tool('x'));
    nowMs += 60_000;
    await offer(tool('x'), tool('y'));
    expect(await names()).toEqual(['x']);
    await offer(tool('x', 'Other.'));
    expect(await toolsOf(catalogue)).toMatchObject([{ description: 'Other.' }]);
    expect(changes()).toBe(1);
    nowMs += 60_000;
    await offer(tool('x', 'Other.'));
    await offer(tool('x', 'Yet another.'));
    expect(changes()).toBe(1);
    nowMs += 9 * 60_000;
    await offer(tool('x', 'Yet another.'));
    expect(changes()).toBe(2);
  });

  it('writes the tools of a server once in ten minutes, and goes on after a failure', async () => {
    let nowMs = NOW;
    const written: string[] = [];
    const refreshTools = (server: { id: string }) => {
      written.push(server.id);
      return Promise.reject(new Error('down'));
    };
    const refresh = new ToolRefresh({ catalogue: { refreshTools }, clock: { now: () => nowMs }, log: log() });
    refresh.offer(SERVER, []);
    refresh.offer(SERVER, []);
    refresh.offer({ ...SERVER, id: 'b' }, []);
    nowMs += 10 * 60_000;
    refresh.offer(SERVER, []);
    expect(written).toEqual(['a', 'b', 'a']);
    await new Promise(resolve => setImmediate(resolve));
    expect(lines('failed to store listed tools')).toHaveLength(3);
  });
});
