import { describe, expect, it, vi } from 'vitest';
import { startMeilisearchDouble } from '../core/search/index/meilisearch-double.ts';
import { startTestSwitchboard } from '../support/switchboard.ts';

const CATALOGUE = [
  { id: 'mail', description: 'Sends letters.', remote_url: 'https://mail.example/mcp' },
  { id: 'weather', description: 'Rain and sun.', remote_url: 'https://weather.example/mcp' },
];

describe('with MEILISEARCH_URL', () => {
  it('Meilisearch finds the servers; while it is down, search answers, /readyz says so, and it comes back by itself', async () => {
    await using double = await startMeilisearchDouble({ apiKey: 'key' });
    await using sb = await startTestSwitchboard({
      catalogue: CATALOGUE,
      env: { MEILISEARCH_URL: double.url, MEILISEARCH_API_KEY: 'key' },
    });
    const degraded = async () => (await sb.get('/readyz')).json.degraded;
    const found = async (query: string) =>
      (await sb.post('/v1/search', { query })).json.servers.map(({ id }: { id: string }) => id);
    expect(await degraded()).toEqual([]);
    expect((await found('letters'))[0]).toBe('mail');
    // One list by keyword, and one by meaning.
    expect(double.searches()).toHaveLength(2);

    await double.stop();
    expect((await found('send a letter'))[0]).toBe('mail');
    expect(await degraded()).toEqual(['Meilisearch unavailable']);
    expect((await sb.get('/readyz')).status).toBe(200);

    await double.start();
    await vi.waitFor(async () => expect(await degraded()).toEqual([]), { timeout: 30_000, interval: 50 });
    expect((await found('sunny'))[0]).toBe('weather');
  });

  it('that cannot be reached at the start, the program is ready all the same and says what is missing', async () => {
    await using double = await startMeilisearchDouble();
    await double.stop();
    await using sb = await startTestSwitchboard({
      catalogue: CATALOGUE,
      env: { MEILISEARCH_URL: double.url },
    });
    expect(await sb.get('/readyz')).toMatchObject({
      status: 200,
      json: { status: 'ready', degraded: ['Meilisearch unavailable'] },
    });
    expect((await sb.post('/v1/search', { query: 'rain' })).json.servers[0].id).toBe('weather');
    expect(sb.logged()).toContain('ECONNREFUSED');
  });
});
