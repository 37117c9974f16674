import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { hang, isProbe, startEmbeddingsServer, type EmbeddingsServer } from '../support/embeddings-server.ts';
import { makeDataDir } from '../support/data-dir.ts';
import { run, serve, temporaryFolder } from '../support/program.ts';

const API_KEY = 'sk-a-secret-that-must-not-be-seen';
const KEY = 'an-operator-chose-this-key-of-32-chars';

let api: EmbeddingsServer;
beforeEach(async () => void (api = await startEmbeddingsServer()));
afterEach(() => api[Symbol.asyncDispose]());

const search = async (url: string, query: string) => {
  const response = await fetch(`${url}/v1/search`, {
    method: 'POST',
    headers: { 'x-api-key': KEY, 'content-type': 'application/json' },
    body: JSON.stringify({ query }),
  });
  return ((await response.json()) as any).servers;
};
const degraded = async (url: string) => ((await (await fetch(`${url}/readyz`)).json()) as any).degraded;

/** A data folder, a catalogue of so many servers, and the settings for both and the API. */
async function installation(servers: number) {
  const folder = temporaryFolder();
  const lines = Array.from({ length: servers }, (_, at) => ({
    id: `server-${at}`,
    name: `server-${at}`,
    description: `Colours of kind ${at}.`,
    remote_url: `https://server-${at}.example/mcp`,
  }));
  const file = path.join(folder.path, 'catalogue.jsonl');
  await writeFile(file, lines.map(line => JSON.stringify(line)).join('\n'));
  const env = {
    SWITCHBOARD_DATA_DIR: await makeDataDir(path.join(folder.path, 'data')),
    SWITCHBOARD_CATALOGUE: file,
    SWITCHBOARD_API_KEY: KEY,
    OPENAI_API_KEY: API_KEY,
    OPENAI_BASE_URL: api.baseUrl,
    EMBEDDING_MODEL: 'a-model',
  };
  return { folder, env };
}

describe('an installation with an embedding API', () => {
  it('that is killed in its first indexing pays only for what was under way again', async () => {
    const { folder, env } = await installation(2_000);
    await using _ = folder;
    let answered = 0;
    api.fault = (response, request, good) => {
      if (isProbe(request) || answered++ < 20) response.end(JSON.stringify(good()));
    };
    await using first = await serve(env);
    await vi.waitFor(() => expect(answered).toBeGreaterThan(20), { timeout: 60_000 });
    await first.stop('SIGKILL');
    const paid = api.embedded.length;
    expect(paid).toBeGreaterThanOrEqual(1_000);

    api.fault = undefined;
    await using second = await serve(env);
    await second.ready();
    expect(new Set(api.embedded).size).toBe(2_000);
    expect(api.embedded.length - 2_000).toBeLessThanOrEqual(400);
    await second.stop();
  });

  it('answers while the API hangs, says so, and is well again when it answers, with the limits as shipped', async () => {
    const { folder, env } = await installation(3);
    await using _ = folder;
    const log = path.join(folder.path, 'log');
    await using program = await serve({ ...env, LOG_LEVEL: 'debug' }, log);
    await program.ready();
    const bestFor = async (query: string) => (await search(program.url, query))[0];
    // On a busy machine the vector of a search may come too late for it. It would serve the next one with the same words.
    const semanticOf = async (ending: string) => {
      const scores: number[] = [];
      for (const words of ['colours', 'some colours', 'all colours']) {
        const best = await bestFor(`${words} of kind 1${ending}`);
        expect(best).toMatchObject({ id: 'server-1' });
        scores.push(best.scores.semantic);
      }
      return Math.max(...scores);
    };
    expect(await semanticOf('')).toBeGreaterThan(0.5);

    api.fault = hang;
    for (const query of ['colours', 'kind 1', 'kind 2', 'colours of kind 2'])
      expect((await bestFor(query)).scores.semantic).toBe(0);
    expect(await degraded(program.url)).toEqual([expect.stringMatching(/did not respond in time/)]);

    api.fault = undefined;
    await vi.waitFor(async () => expect(await degraded(program.url)).toEqual([]), { timeout: 60_000 });
    expect(await semanticOf(', please')).toBeGreaterThan(0.5);
    await program.stop();
  });

  it('runs commands on its folder while the API is down, the import of a file among them', async () => {
    const { folder, env } = await installation(3);
    await using _ = folder;
    api.fault = (_response, { authorization }) => expect(authorization).toContain(API_KEY);
    const imported = await run(['catalogue', 'import', env.SWITCHBOARD_CATALOGUE], env);
    expect(imported).toMatchObject({ code: 0 });
    expect(imported.stdout + imported.stderr).not.toContain(API_KEY);
    expect((await run(['search', 'kind 2', '--json'], env)).stdout).toContain('server-2');
  });
});
