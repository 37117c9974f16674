import { execFileSync } from 'node:child_process';
import { globSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, inject, it } from 'vitest';
import { Balancer, type Target } from '../support/balancer.ts';
import { startLoad } from '../support/load.ts';
import { eventually, installOnPostgres } from '../support/processes.ts';

const git = (...args: string[]) => execFileSync('git', args, { encoding: 'utf8' }).trim();

const commitOf = (folder: string) => git('-C', folder, 'log', '-1', '--format=%h');

/** The last commit before the newest migration came in. */
function olderCommit(): string {
  const newest = globSync('drizzle/*.sql').sort().at(-1) ?? '';
  const [added = ''] = git('log', '--diff-filter=A', '--format=%H', '--', newest).split('\n');
  try {
    return git('rev-parse', '--verify', '--quiet', `${added}^`);
  } catch {
    throw new Error(`This clone lacks the version before ${newest}. Fetch it with: git fetch --unshallow`);
  }
}

/** Installs the older version in a folder of its own. */
function checkOutOlder() {
  const folder = mkdtempSync(path.join(tmpdir(), 'sb-older-'));
  git('worktree', 'add', '--quiet', '--detach', folder, olderCommit());
  execFileSync('npm', ['ci', '--prefix', folder], { stdio: 'ignore' });
  return { folder, [Symbol.dispose]: () => void git('worktree', 'remove', '--force', folder) };
}

describe.skipIf(inject('postgresUrl') === undefined)('an upgrade under load', () => {
  it(
    'and the way back, process by process, fail no request and lose nothing',
    { timeout: 900_000 },
    async () => {
      using older = checkOutOlder();
      const folders = { older: older.folder, newer: path.resolve('.') };
      type Version = keyof typeof folders;
      await using installation = await installOnPostgres({ env: { SWITCHBOARD_RATE_LIMIT: 'off' } });
      const started = async (name: string, version: Version) => {
        const program = path.join(folders[version], 'bin/switchboard.js');
        const process = await installation.start(name, {}, program);
        await process.ready();
        return process;
      };
      const a: Target = { name: 'a', process: await started('a', 'older') };
      const b: Target = { name: 'b', process: await started('b', 'older') };
      const balancer = new Balancer([a, b]);
      await using load = startLoad(await a.process.connect('alice'), balancer, [a, b]);

      const replace = async (target: Target, version: Version) => {
        expect(await target.process.stop('SIGTERM')).toBe(0);
        target.process = await started(target.name, version);
      };
      /** A key that each process makes is good at both. */
      const keysWork = async () => {
        for (const maker of [a, b]) {
          const made = await maker.process.command('keys', 'create', '--json');
          expect([maker.name, made.code, made.stderr]).toEqual([maker.name, 0, '']);
          const { key } = JSON.parse(made.stdout);
          for (const { process } of [a, b]) {
            const found = await process.post('/v1/search', { query: 'mail' }, { 'x-api-key': key });
            expect([maker.name, found.status]).toEqual([maker.name, 200]);
          }
        }
      };
      const step = async (title: string, act: () => Promise<unknown>) => {
        const before = load.counts();
        await act();
        await load.enough();
        await keysWork();
        console.log(title, JSON.stringify(load.since(before)));
        expect(load.failures).toEqual([]);
      };

      await step(`two processes of ${commitOf(folders.older)}`, () => Promise.resolve());
      await step(`switchboard migrate of ${commitOf(folders.newer)}`, async () => {
        const { code, stdout, stderr } = await installation.command(['migrate'], 'c');
        expect([code, stderr]).toEqual([0, '']);
        console.log(stdout.trim());
      });
      await step('a upgraded', () => replace(a, 'newer'));
      const { origin } = new URL(installation.upstream.url);
      expect((await b.process.command('catalogue', 'add', 'maps', `${origin}/maps`)).code).toBe(0);
      await eventually('the newer process knows what the older one adds', async () => {
        const call = { server_id: 'maps', method: 'tools/list' };
        return (await a.process.post('/v1/mcp/call', call)).status !== 404;
      });
      await step('b upgraded', () => replace(b, 'newer'));
      await step('a back', () => replace(a, 'older'));
      await step('b back', () => replace(b, 'older'));
      await step('a forward again', () => replace(a, 'newer'));
      await step('b forward again', () => replace(b, 'newer'));

      const { calls, user } = await load.stop();
      for (const { process } of [a, b]) {
        const refreshed = await process.refresh(user.refresh_token);
        expect(refreshed.status, refreshed.text).toBe(200);
        Object.assign(user, refreshed.json);
      }
      const counted = async () =>
        (await installation.sql('select coalesce(sum(successes), 0)::int as n from server_usage'))[0]?.['n'];
      await eventually('every call is counted', async () => Number(await counted()) >= calls);
      expect(await counted()).toBe(calls);
      expect(installation.upstream.inbox.count('tools/call')).toBe(calls);
    },
  );
});
