import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { run } from '../support/program.ts';
import { scrape } from '../support/scrape.ts';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';

/**
 * Holds what users, operators and their programs build on. A difference belongs in the changelog; `npx vitest run
 * test/contract/outside.test.ts -u` accepts it.
 */
let sb: RunningSwitchboard;
beforeAll(async () => void (sb = await startTestSwitchboard()));
afterAll(() => sb[Symbol.asyncDispose]());

const asJson = (value: unknown) => `${JSON.stringify(value, undefined, 2)}\n`;

/** A schema without its prose. */
const structureOf = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(structureOf);
  if (typeof value !== 'object' || value === null) return value;
  const kept = Object.entries(value).filter(
    ([name, of]) =>
      !(['description', 'summary', 'title'].includes(name) && typeof of === 'string') &&
      !/^examples?$/.test(name),
  );
  return Object.fromEntries(kept.map(([name, of]) => [name, structureOf(of)]));
};

describe('what is built on', () => {
  it('is the structure of /openapi.json', async () => {
    const { json } = await sb.get('/openapi.json');
    const { paths, components } = structureOf(json) as Record<'paths' | 'components', Record<string, object>>;
    const lines = [...Object.entries(paths), ...Object.entries(components)].flatMap(([name, of]) =>
      Object.entries(of).map(([part, value]) => `${name} ${part} ${JSON.stringify(value)}\n`),
    );
    await expect(lines.join('')).toMatchFileSnapshot('../golden/openapi.txt');
  });

  it('are the tools and the instructions of /mcp', async () => {
    const ask = (method: string, params: object) =>
      sb.post(
        '/mcp',
        { jsonrpc: '2.0', id: 1, method, params },
        { accept: 'application/json, text/event-stream', 'mcp-protocol-version': '2025-11-25' },
      );
    const initialized = await ask('initialize', {
      protocolVersion: '2025-11-25',
      capabilities: {},
      clientInfo: { name: 'test', version: '1' },
    });
    const listed = await ask('tools/list', {});
    const resultOf = ({ json, text }: { json: any; text: string }) =>
      (json ?? JSON.parse(/^data: (.*)$/m.exec(text)?.[1] ?? '')).result;
    const { serverInfo, ...served } = resultOf(initialized);
    expect(serverInfo.name).toBe('switchboard');
    await expect(asJson({ ...served, ...resultOf(listed) })).toMatchFileSnapshot('../golden/mcp.json');
  });

  it('are the names, kinds and labels of the metrics', async () => {
    await sb.post('/v1/search', { query: 'anything' });
    const text = await (await fetch(`${sb.url}/metrics`)).text();
    const kinds = [...text.matchAll(/^# TYPE (switchboard_\S+) (\S+)$/gm)].map(([, name = '', kind = '']) => [
      name,
      kind,
    ]);
    const labels = new Map<string, Set<string>>();
    for (const { name, labels: own } of await scrape(sb.url)) {
      const of = labels.get(name) ?? new Set();
      for (const label of Object.keys(own)) of.add(label);
      labels.set(name, of);
    }
    const lines = kinds.map(([name = '', kind]) => {
      const samples = [name, `${name}_bucket`];
      const own = samples.flatMap(sample => Array.from(labels.get(sample) ?? []));
      return `${name} ${kind} ${[...new Set(own)].sort().join(',')}`.trim();
    });
    await expect(`${lines.sort().join('\n')}\n`).toMatchFileSnapshot('../golden/metrics.txt');
  });

  it('is --help', async () => {
    const { stdout } = await run(['--help'], {});
    await expect(stdout).toMatchFileSnapshot('../golden/help.txt');
  });
});
