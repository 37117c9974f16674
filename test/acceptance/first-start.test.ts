import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, statSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { describe, expect, it } from 'vitest';
import { run, serve, temporaryFolder } from '../support/program.ts';

const search = async (url: string, key: string, query: string) => {
  const response = await fetch(`${url}/v1/search`, {
    method: 'POST',
    headers: { 'x-api-key': key, 'content-type': 'application/json' },
    body: JSON.stringify({ query, limit: 3 }),
  });
  return { status: response.status, json: (await response.json()) as any };
};
/** A catalogue of one server, for what is not about search. */
const SMALL = path.resolve('test/support/one-server.jsonl');
const keyIn = (printed: readonly string[]) =>
  /API key \(shown once\): (sbk_live_\w+)/.exec(printed.join('\n'))?.[1] ?? '';

describe('the first start in an empty folder', () => {
  it('prints a key once, finds fitting servers by meaning among hundreds, and stops cleanly [search.catalogue-size] [search.meaning]', async () => {
    await using folder = temporaryFolder();
    const env = { SWITCHBOARD_DATA_DIR: path.join(folder.path, 'data') };
    await using first = await serve(env);
    const key = keyIn(first.printed);
    expect(key).toMatch(/^sbk_live_/);
    expect(first.printed.join('\n')).toContain(`curl -s ${first.url}/v1/search`);
    await first.ready();

    const topThree = async (query: string) =>
      (await search(first.url, key, query)).json.servers.map((server: any) => server.id as string);
    const fitting: [string, RegExp][] = [
      [
        'create an issue in our bug tracker',
        /linear|atlassian|jira|github|sentry|asana|monday|tracker|issue/,
      ],
      ['what is the weather in Paris tomorrow', /weather|google-maps|meteo|dappier/],
      ['query my postgres database', /postgres|supabase|neon|prisma/],
      ['send an invoice to a customer', /paypal|stripe|invoice|frihet|quickbooks|square/],
      // Exa and Parallel have a tool that reads a page by its address.
      [
        'summarise this web page',
        /fetch|scrape|crawl|web|page|summar|firecrawl|url|jina|markdown|sofya|exa-exa|parallel/,
      ],
    ];
    for (const [query, pattern] of fitting) {
      expect(await topThree(query), query).toEqual(expect.arrayContaining([expect.stringMatching(pattern)]));
    }
    for (const nobodyServes of ['Thanks, that was really kind of you.', 'hey, you there?'])
      expect((await search(first.url, key, nobodyServes)).json.servers, nobodyServes).toEqual([]);
    const { metadata } = (await search(first.url, key, 'anything at all')).json;
    expect(metadata.total_candidates).toBeGreaterThan(490);
    expect(await first.stop('SIGTERM')).toBe(0);

    await using second = await serve(env);
    expect(keyIn(second.printed)).toBe('');
    await second.ready();
    expect((await search(second.url, key, 'query my postgres database')).status).toBe(200);
    expect(await second.stop('SIGINT')).toBe(0);
  });

  it('keeps its data to its owner', async () => {
    await using folder = temporaryFolder();
    const data = path.join(folder.path, 'data');
    await using program = await serve({ SWITCHBOARD_DATA_DIR: data, SWITCHBOARD_CATALOGUE: SMALL });
    expect(statSync(data).mode & 0o777).toBe(0o700);
    expect(statSync(path.join(data, 'control.sock')).mode & 0o777).toBe(0o600);
    expect(statSync(path.join(data, 'vault.key')).mode & 0o777).toBe(0o600);
    expect(readdirSync(data).sort()).toEqual(['control.sock', 'pglite', 'vault.key']);
    await program.stop();
  });

  it('prints no key when one comes from the environment', async () => {
    await using folder = temporaryFolder();
    const key = 'an-operator-chose-this-key-of-32-chars';
    await using program = await serve({
      SWITCHBOARD_DATA_DIR: folder.path,
      SWITCHBOARD_API_KEY: key,
      SWITCHBOARD_CATALOGUE: SMALL,
    });
    expect(program.printed.join('\n')).not.toMatch(/sbk_live_/);
    await program.ready();
    expect((await search(program.url, key, 'x')).status).toBe(200);
    await program.stop();
  });
});

describe('a start that cannot work', () => {
  it('on a folder in use says so in one line and ends with 1', async () => {
    await using folder = temporaryFolder();
    const env = { SWITCHBOARD_DATA_DIR: folder.path, SWITCHBOARD_CATALOGUE: SMALL, PORT: '0' };
    await using program = await serve(env);
    const second = await run(['serve'], env);
    expect(second).toMatchObject({ code: 1, stdout: '' });
    expect(second.stderr).toBe(
      `switchboard: Another Switchboard is running on ${folder.path}. Stop it, or set SWITCHBOARD_DATA_DIR.\n`,
    );
    await program.stop();
  });

  it('with a bad setting says which one in one line and ends with 2', async () => {
    const { code, stderr } = await run([], { PORT: 'eighty' });
    expect({ code, stderr }).toEqual({
      code: 2,
      stderr: expect.stringMatching(/^switchboard: PORT: must be a port number.*\n$/),
    });
  });

  it.each([
    [
      { SWITCHBOARD_DATA_DIR: '/proc/nope' },
      'SWITCHBOARD_DATA_DIR: /proc/nope cannot be created: the parent folder does not exist',
    ],
    [{ SWITCHBOARD_DATA_DIR: SMALL }, `SWITCHBOARD_DATA_DIR: ${SMALL} cannot be created: it is a file`],
    [{ SWITCHBOARD_CATALOGUE: '/no/such.jsonl' }, 'SWITCHBOARD_CATALOGUE: /no/such.jsonl cannot be read: '],
  ])('%j ends with 2 and names the setting', async (wrong, message) => {
    await using folder = temporaryFolder();
    const { code, stderr } = await run([], { SWITCHBOARD_DATA_DIR: folder.path, ...wrong });
    expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringContaining(`switchboard: ${message}`) });
  });

  it('on a port in use ends with 2 and leaves the folder free', async () => {
    await using folder = temporaryFolder();
    await using other = temporaryFolder();
    await using program = await serve({ SWITCHBOARD_DATA_DIR: folder.path, SWITCHBOARD_CATALOGUE: SMALL });
    const env = {
      SWITCHBOARD_DATA_DIR: other.path,
      SWITCHBOARD_CATALOGUE: SMALL,
      PORT: new URL(program.url).port,
    };
    const refused = await run([], env);
    expect(refused.code).toBe(2);
    expect(refused.stderr).toContain(`switchboard: PORT: ${env.PORT} is already in use on 127.0.0.1`);
    expect((await run(['keys', 'list', '--json'], env)).stdout).toBe('{"keys":[],"next_cursor":null}\n');
    await program.stop();
    await using next = await serve({ ...env, PORT: '0' });
    expect(keyIn(next.printed)).toMatch(/^sbk_live_/);
    await next.stop();
  });
});

describe('npm start', () => {
  it('hands SIGTERM on: npm ends, and the program with it', async () => {
    await using folder = temporaryFolder();
    const env = {
      ...process.env,
      PORT: '0',
      SWITCHBOARD_DATA_DIR: folder.path,
      SWITCHBOARD_CATALOGUE: SMALL,
      LOG_LEVEL: 'silent',
    };
    const npm = spawn('npm', ['start'], { env, stdio: ['ignore', 'pipe', 'ignore'] });
    const exited = once(npm, 'exit');
    const url = await new Promise<string>(resolve => {
      createInterface({ input: npm.stdout }).on('line', line => {
        const found = /^Listening on (\S+)$/.exec(line)?.[1];
        if (found !== undefined) resolve(found);
      });
    });
    npm.kill('SIGTERM');
    await exited;
    await expect
      .poll(
        () =>
          fetch(`${url}/healthz`).then(
            () => 'up',
            () => 'down',
          ),
        { timeout: 60_000 },
      )
      .toBe('down');
  });
});

describe('kill -9', () => {
  it('loses no key: it was stored before it was printed', async () => {
    await using folder = temporaryFolder();
    const env = { SWITCHBOARD_DATA_DIR: folder.path, SWITCHBOARD_CATALOGUE: SMALL };
    await using program = await serve(env);
    const key = keyIn(program.printed);
    await program.stop('SIGKILL');
    await using again = await serve(env);
    expect(keyIn(again.printed)).toBe('');
    expect((await search(again.url, key, 'x')).status).toBe(200);
    await again.stop();
  });
});
