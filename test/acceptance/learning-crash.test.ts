import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, inject, it } from 'vitest';
import { databasesOfRun } from '../support/full-run.ts';
import {
  eventually,
  install,
  installOnPostgres,
  type InstallationOptions,
  type Process,
} from '../support/processes.ts';
import { temporaryFolder } from '../support/program.ts';

const DATABASES = [
  { name: 'PGlite', open: (options: InstallationOptions) => install(options), skipped: false },
  {
    name: 'Postgres',
    open: (options: InstallationOptions) => installOnPostgres(options),
    skipped: inject('postgresUrl') === undefined,
  },
] as const;

const linesOf = (log: string, message: string): any[] =>
  log
    .split('\n')
    .filter(line => line.includes(`"${message}"`))
    .map(line => JSON.parse(line));

const call = (process: Process, accessToken: string, queryLogId?: string) =>
  process.post(
    '/v1/mcp/tools/call',
    {
      server_id: 'mail',
      name: 'echo',
      arguments: { message: 'hi' },
      ...(queryLogId === undefined ? {} : { query_log_id: queryLogId }),
    },
    { authorization: `Bearer ${accessToken}` },
  );

const search = async (process: Process, query: string, headers?: Record<string, string>) => {
  const { status, json } = await process.post('/v1/search', { query }, headers);
  expect(status).toBe(200);
  return {
    id: json.metadata.query_log_id as string,
    popularity: json.servers[0].scores.popularity as number,
  };
};

describe.each(databasesOfRun(DATABASES))('kill -9 on $name', ({ open, skipped }) => {
  it.skipIf(skipped)(
    'loses no use that was written, which it is by itself within a second or so, and no key or token at all',
    async () => {
      await using folder = temporaryFolder();
      const logFile = path.join(folder.path, 'log');
      await using installation = await open({ logFile, env: { LOG_LEVEL: 'debug' } });
      const running = await installation.start();
      await running.ready();
      const ada = await running.connect('ada');
      const found = await search(running, 'read my mail');
      // Nothing but time brings any of these writes about.
      const written = async (message: string) => linesOf(await readFile(logFile, 'utf8'), message);
      const verdict = { query_log_id: found.id, server_id: 'mail', outcome: 'helpful' };
      expect((await running.post('/v1/search/feedback', verdict)).status).toBe(200);
      await eventually('the verdict is written', async () => {
        const [outcomes, usage] = [await written('search outcomes written'), await written('usage written')];
        return outcomes.length > 0 && usage.length > 0;
      });
      for (let at = 0; at < 5; at++)
        expect((await call(running, ada.access_token, found.id)).status).toBe(200);
      await eventually('the calls are written', async () => {
        const calls = (await written('usage written')).reduce((sum, line) => sum + line.calls, 0);
        return calls === 5 && (await written('search outcomes written')).length > 1;
      });

      const [made, bob] = [
        await running.command('keys', 'create', '--name', 'fresh', '--json'),
        await running.connect('bob'),
      ];
      const lost = 3;
      for (let at = 0; at < lost; at++) await call(running, ada.access_token, found.id);
      await running.stop('SIGKILL');

      const restarted = await installation.start();
      await restarted.ready();
      const fresh = { 'x-api-key': JSON.parse(made.stdout).key as string };
      const { popularity } = await search(restarted, 'read my mail', fresh);
      expect(popularity).toBeGreaterThan(0);
      for (const { access_token, refresh_token } of [ada, bob]) {
        expect((await call(restarted, access_token)).status).toBe(200);
        expect((await restarted.refresh(refresh_token)).status).toBe(200);
      }
      await restarted.stop('SIGTERM');

      const [usage] = await installation.sql(
        `select sum(successes)::int as successes, sum(failures)::int as failures, sum(helpful)::int as helpful from server_usage`,
      );
      const afterwards = 2;
      expect(usage).toMatchObject({ failures: 0, helpful: 1 });
      expect(usage?.['successes']).toBeGreaterThanOrEqual(5 + afterwards);
      expect(usage?.['successes']).toBeLessThanOrEqual(5 + lost + afterwards);
      const outcomes = await installation.sql(
        `select source, tool, outcome from search_outcomes join query_log on id = query_log_id order by source`,
      );
      expect(outcomes).toEqual([
        { source: 'call', tool: 'echo', outcome: 'success' },
        { source: 'feedback', tool: '', outcome: 'helpful' },
      ]);
    },
  );
});
