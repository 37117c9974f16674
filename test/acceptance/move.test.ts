import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, inject, it } from 'vitest';
import { createDatabase } from '../support/postgres.ts';
import { findPostgres } from '../support/postgres-server.ts';
import { install, onEmbedded, onPostgres } from '../support/processes.ts';

/** Every row of every table as text, but for the revision, which each database counts for itself, sorted, by table; `sql` resolves with the last statement's rows. */
async function contentOf(
  sql: (statements: string) => Promise<Record<string, unknown>[]>,
): Promise<Record<string, string[]>> {
  const tables = await sql(
    `select relname from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r' and relpersistence = 'p'`,
  );
  const content: Record<string, string[]> = {};
  for (const { relname } of tables) {
    const table = String(relname);
    const found = await sql(
      `set timezone = 'UTC'; select (to_jsonb(t) - 'revision')::text as row from ${table} t`,
    );
    content[table] = found.map(({ row }) => String(row)).sort();
  }
  return content;
}

describe.skipIf(inject('postgresUrl') === undefined)('a move', () => {
  it(
    'from the embedded database to Postgres and back loses no key, no token and no count',
    { timeout: 600_000 },
    async () => {
      // As on a trial: the vault's key is the data folder's own file.
      await using installation = await install({ env: { SWITCHBOARD_KEKS: '' } });
      await using database = await createDatabase();
      const before = await installation.start();
      await before.ready();
      const tokens = await before.connect('alice');
      const spare = await before.connect('bob');
      expect((await before.callTool(tokens)).status).toBe(200);
      const { query_log_id } = (await before.post('/v1/search', { query: 'read my mail' })).json.metadata;
      const verdict = { query_log_id, server_id: 'mail', outcome: 'helpful' };
      expect((await before.post('/v1/search/feedback', verdict)).status).toBeLessThan(300);
      const { key } = JSON.parse((await before.command('keys', 'create', '--json')).stdout);

      const file = path.join(installation.dataDir, '..', 'moved.sql');
      const refused = await installation.command(['database', 'dump', file]);
      expect([refused.code, refused.stderr]).toEqual([1, expect.stringContaining('Stop the server first')]);
      await before.stop();
      const dumped = await installation.command(['database', 'dump', file, '--json']);
      expect(dumped.code, dumped.stderr).toBe(0);
      const keyFile = path.join(installation.dataDir, 'vault.key');
      expect(dumped.stderr).toContain(`copy it from ${keyFile} and set it as SWITCHBOARD_KEKS`);
      expect((await stat(file)).mode & 0o777).toBe(0o600);
      const source = await contentOf(statements => onEmbedded(installation.dataDir, statements));
      for (const table of [
        'api_keys',
        'refresh_tokens',
        'connections',
        'signing_keys',
        'server_usage',
        'query_log',
      ])
        expect([table, source[table]?.length]).not.toEqual([table, 0]);
      expect(JSON.parse(dumped.stdout)).toEqual({ file, vault_key: 'k1' });

      const wrong = `k1:${randomBytes(32).toString('base64')}`;
      const unopened = await installation.command(['database', 'restore', file], 'b', {
        DATABASE_URL: database.url,
        SWITCHBOARD_KEKS: wrong,
      });
      expect(unopened.code).toBe(2);
      expect(unopened.stderr).toMatch(/^switchboard: The dump needs the vault key `k1`.*SWITCHBOARD_KEKS/);
      const onServer = (statements: string) => onPostgres(database.url, statements);
      expect(await contentOf(onServer)).toEqual({});

      const there = {
        DATABASE_URL: database.url,
        SWITCHBOARD_KEKS: (await readFile(keyFile, 'utf8')).trim(),
      };
      const restored = await installation.command(['database', 'restore', file, '--json'], 'b', there);
      expect([restored.code, restored.stderr]).toEqual([0, '']);
      expect(JSON.parse(restored.stdout)).toEqual(JSON.parse(dumped.stdout));
      expect(await contentOf(onServer)).toEqual(source);

      const after = await installation.start('b', there);
      await after.ready();
      const search = await after.post('/v1/search', { query: 'read my mail' }, { 'x-api-key': key });
      expect(search.status).toBe(200);
      // The identity token, the user's refresh token and the provider's tokens of before.
      expect((await after.callTool(tokens)).json).toMatchObject({
        result: { content: [{ text: 'Echo: hi' }] },
      });
      const refreshed = await after.refresh(tokens.refresh_token);
      expect(refreshed.status, refreshed.text).toBe(200);
      expect((await after.callTool(refreshed.json)).status).toBe(200);
      // The audit log goes on with numbers of its own.
      await after.connect('carol');
      expect((await contentOf(onServer))['audit_log']?.length).toBeGreaterThan(
        source['audit_log']?.length ?? 0,
      );
      const again = await installation.command(['database', 'restore', file], 'c', there);
      expect([again.code, again.stderr]).toEqual([1, expect.stringContaining('database already has tables')]);
      await after.stop();

      const back = path.join(installation.dataDir, '..', 'back.sql');
      const advised = await installation.command(['database', 'dump', back], 'd', there);
      const [, options = ''] = /pg_dump (.*) -d "\$DATABASE_URL"/.exec(advised.stderr) ?? [];
      const pgDump = path.join(findPostgres() ?? '', 'pg_dump');
      await promisify(execFile)(pgDump, [...options.split(' '), '-d', database.url, '-f', back]);
      const home = { SWITCHBOARD_KEKS: there.SWITCHBOARD_KEKS };
      const returning = await installation.command(['database', 'restore', back], 'e', home);
      expect(returning.code, returning.stderr).toBe(0);
      const embedded = path.join(installation.dataDir, '..', 'e');
      expect(await contentOf(statements => onEmbedded(embedded, statements))).toEqual(
        await contentOf(onServer),
      );
      const returned = await installation.start('e', home);
      expect((await returned.refresh(refreshed.json.refresh_token)).status).toBe(200);
      expect((await returned.refresh(spare.refresh_token)).status).toBe(200);
      await returned.stop();
    },
  );
});
