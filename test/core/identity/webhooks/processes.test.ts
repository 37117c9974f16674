import { randomBytes } from 'node:crypto';
import { describe, expect, inject, it } from 'vitest';
import { databasesOfRun } from '../../../support/full-run.ts';
import {
  eventually,
  install,
  installOnPostgres,
  type Installation,
  type Process,
} from '../../../support/processes.ts';
import { signaturesOf, startReceiver } from '../../../support/webhook-receiver.ts';

const WITHOUT_POSTGRES = inject('postgresUrl') === undefined;

const DATABASES = [
  { name: 'PGlite', open: () => install(), skipped: false },
  { name: 'Postgres', open: () => installOnPostgres(), skipped: WITHOUT_POSTGRES },
] as const;

async function setWebhook(process: Process, url: string): Promise<string> {
  const { code, stdout, stderr } = await process.command('webhook', 'set', url);
  expect(code, stderr).toBe(0);
  const [, secret = ''] = /^Signing secret \(shown once\): (whsec_\S+)$/m.exec(stdout) ?? [];
  return secret;
}

const waiting = async (installation: Installation) =>
  Number((await installation.sql('select count(*)::int as count from webhook_outbox'))[0]?.['count']);

describe.each(databasesOfRun(DATABASES))('kill -9 on $name', ({ open, skipped }) => {
  describe.skipIf(skipped)('', () => {
    it('after the commit, before the event is sent: the next process sends it', async () => {
      await using installation = await open();
      await using receiver = await startReceiver();
      const process = await installation.start();
      const secret = await setWebhook(process, receiver.url);
      await receiver.pause();
      await process.connect('ada');
      await process.stop('SIGKILL');
      await receiver.resume();
      expect(await waiting(installation)).toBe(1);
      // Whatever was tried meanwhile, it is due.
      await installation.sql('update webhook_outbox set next_at = now()');
      await installation.start();
      await eventually('it is sent', () => receiver.all.length === 1);
      expect(receiver.all.map(one => [one.event.type, one.event.data.user_id])).toEqual([
        ['connection.created', 'ada'],
      ]);
      expect(receiver.all.map(one => signaturesOf(one, secret))).toEqual([[true]]);
    });

    it('while it is being sent: the next process sends it again, under the same id', async () => {
      await using installation = await open();
      await using receiver = await startReceiver();
      const process = await installation.start();
      await setWebhook(process, receiver.url);
      receiver.conduct = 'silent';
      await process.connect('ada');
      await eventually('it is being sent', () => receiver.all.length === 1);
      await process.stop('SIGKILL');
      receiver.conduct = 204;
      expect(
        await installation.sql('select attempts, next_at > now() as claimed from webhook_outbox'),
      ).toEqual([{ attempts: 1, claimed: true }]);
      await installation.sql('update webhook_outbox set next_at = now()');
      const next = await installation.start();
      await eventually('it is sent again', () => receiver.all.length === 2);
      expect(receiver.all[1]?.id).toBe(receiver.all[0]?.id);
      expect(receiver.all[1]?.body).toBe(receiver.all[0]?.body);
      await eventually('it is known as delivered', async () =>
        (await next.command('webhook', 'show')).stdout.includes('waiting  0'),
      );
    });
  });
});

describe.skipIf(WITHOUT_POSTGRES)('two processes on one Postgres', () => {
  it('send each event once', async () => {
    await using installation = await installOnPostgres();
    await using receiver = await startReceiver();
    const [a, b] = await Promise.all([installation.start('a'), installation.start('b')]);
    await setWebhook(a, receiver.url);
    await installation.sql(`
      insert into webhook_outbox (id, tenant_id, type, body)
      select 'evt_' || n, 'local', 'connection.created', '{"n":' || n || '}' from generate_series(1, 300) n`);
    // Each of them looks when it has a change of its own.
    await Promise.all([a.connect('of-a'), b.connect('of-b')]);
    await eventually('the outbox is empty', async () => (await waiting(installation)) === 0);
    expect(receiver.all).toHaveLength(302);
    expect(new Set(receiver.all.map(({ id }) => id)).size).toBe(302);
  });
});

describe('the key of the vault', () => {
  const [k1, k2] = [1, 2].map(id => `k${id}:${randomBytes(32).toString('base64')}`) as [string, string];

  it('is changed: the signing secret stays the same', async () => {
    await using installation = await install();
    await using receiver = await startReceiver();
    const first = await installation.start('a', { SWITCHBOARD_KEKS: k1 });
    const secret = await setWebhook(first, receiver.url);
    await first.stop();
    const both = { SWITCHBOARD_KEKS: `${k2},${k1}` };
    expect((await installation.command(['keys', 'retire', 'k1'], 'a', both)).code).toBe(2);
    expect((await installation.command(['keys', 'rewrap'], 'a', both)).code).toBe(0);
    expect((await installation.command(['keys', 'retire', 'k1'], 'a', both)).code).toBe(0);
    expect(await installation.sql('select left(sealed, 3) as key from webhook_secrets')).toEqual([
      { key: 'k2:' },
    ]);
    const second = await installation.start('a', { SWITCHBOARD_KEKS: k2 });
    expect((await second.command('webhook', 'test')).stdout).toMatch(/^Delivered: HTTP 204/);
    expect(receiver.all.map(one => signaturesOf(one, secret))).toEqual([[true]]);
  });

  it('is lost: apps are told of every connection that must be renewed, once there is a new secret', async () => {
    await using installation = await install();
    await using receiver = await startReceiver();
    const first = await installation.start('a', { SWITCHBOARD_KEKS: k1 });
    await setWebhook(first, receiver.url);
    await first.connect('ada');
    await first.connect('bob');
    await eventually('both are told', () => receiver.all.length === 2);
    await first.stop();
    receiver.forget();
    const second = await installation.start('a', {
      SWITCHBOARD_KEKS: k2,
      SWITCHBOARD_VAULT_RESET: 'lose-stored-tokens',
    });
    await eventually('they wait', async () =>
      (await second.command('webhook', 'show')).stdout.includes('switchboard webhook rotate'),
    );
    const { stdout } = await second.command('webhook', 'rotate', '--json');
    const { secret } = JSON.parse(stdout);
    await setWebhook(second, receiver.url);
    await eventually('both are told', () => receiver.all.length === 2);
    for (const { event } of receiver.all)
      expect(event).toMatchObject({ type: 'connection.needs_reauth', data: { reason: 'vault_reset' } });
    expect(new Set(receiver.all.map(({ event }) => event.data.user_id))).toEqual(new Set(['ada', 'bob']));
    for (const one of receiver.all) expect(signaturesOf(one, secret)).toEqual([true]);
  });
});

describe('the command line', () => {
  it('sets, shows, tests, rotates and removes a webhook', async () => {
    await using installation = await install();
    await using receiver = await startReceiver();
    await using process = await installation.start();
    const webhook = (...args: string[]) => process.command('webhook', ...args);

    expect((await webhook('show')).stdout).toMatch(/^No webhook\. Set one: /);
    expect(await webhook('test')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('The tenant local has no webhook. Set one with'),
    });
    expect(await webhook('remove')).toMatchObject({ code: 1 });
    expect(await webhook('set', 'ftp://app.example/', '--tenant', 'local')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('url: "ftp://app.example/" must be an absolute https: or http: URL'),
    });

    const secret = await setWebhook(process, receiver.url);
    expect(await setWebhook(process, receiver.url)).toBe('');
    const shown = await webhook('show');
    expect(shown.stdout).toMatch(/^url +http:.*\nstate +active\nwaiting +0\n$/);
    expect(shown.stdout).not.toContain(secret);

    expect(await webhook('test')).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^Delivered: HTTP 204 after \d+ ms\.\n$/),
    });
    expect(receiver.all.map(one => [one.event, signaturesOf(one, secret)])).toEqual([
      [{ type: 'webhook.test', timestamp: expect.any(String), data: {} }, [true]],
    ]);
    receiver.conduct = 500;
    expect(await webhook('test')).toMatchObject({ code: 1, stdout: 'Not delivered: HTTP 500.\n' });
    await receiver.pause();
    expect((await webhook('test')).stdout).toBe('Not delivered: ECONNREFUSED.\n');
    await receiver.resume();
    receiver.conduct = 204;

    const rotated = await webhook('rotate');
    expect(rotated.stdout).toMatch(
      /^Signing secret \(shown once\): whsec_\S+\nOlder secrets sign until \S+, too\.\n$/,
    );
    receiver.forget();
    await webhook('test');
    expect(receiver.all.map(one => signaturesOf(one, secret))).toEqual([[false, true]]);
    expect((await webhook('rotate', '--overlap', '0s')).stdout).toContain('Older secrets no longer sign.');

    expect(await webhook('remove')).toMatchObject({ code: 0, stdout: 'Removed the webhook.\n' });
    expect((await webhook('show')).stdout).toMatch(/^No webhook/);
    await process.stop();
    expect(await installation.sql('select id from webhook_secrets')).toEqual([]);
    const events = await installation.sql(
      `select event, key_id, tenant_id from audit_log where event like 'webhook%' order by id`,
    );
    expect(events.map(({ event }) => event)).toEqual([
      'webhook_changed',
      'webhook_changed',
      'webhook_rotated',
      'webhook_rotated',
      'webhook_removed',
    ]);
    for (const one of events) expect(one).toMatchObject({ key_id: 'operator', tenant_id: 'local' });
  });
});
